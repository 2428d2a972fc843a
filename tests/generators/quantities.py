"""Random quantity texts in every notation, the edges of each, and some that are none. Exponents stay small."""

from __future__ import annotations

import random
from typing import Final

SUFFIXES: Final = (
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
)
EDGES: Final = (
    "0", "-0", "0.0", "1", "1024", "1Ki", "1000", "1k", "80Gi", "40960Mi", "0.5Gi", "1.5", "1500m", "100m",
    "1n", "0.1n", "-1n",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "8Ei", "7Ei",
    "9E", "10E",
    "1e3", "1E3", "1e-3", "12e6", "5e18", "1e19", "+1", "-1.5Gi", "1.", ".5", "00012", "1000000000000000000000",
    "0.000000001",
    "0.0000000001", "999999999999999999999n", "1.0000000001", "1023Ki", "1048576Ki", "0Ki", "1e0", "1E-9", "1e-10",
)  # fmt: skip
BROKEN: Final = (
    "", " ", "1 ", " 1", "1gi", "1Kib", "Gi", "--1", "+-1", "1.2.3", "0x10", "1_000", "1,5", "NaN", "inf", "e3",
    "1e", "1e+",
    "1e1.5", "1mi", "1 Gi", "１", "1K", "1kk", "1EiB", ".", "-", "+", "m", "E", "1e3Ki", "1\n",
)  # fmt: skip


def quantity(rng: random.Random) -> str:
    """A text that is a quantity."""
    if rng.random() < 0.4:
        return rng.choice(EDGES)
    return _number(rng) + _scale(rng)


def text(rng: random.Random) -> str:
    """A text that is a quantity, or nearly one."""
    roll = rng.random()
    if roll < 0.7:
        return quantity(rng)
    if roll < 0.85:
        return rng.choice(BROKEN)
    made = list(quantity(rng))
    made.insert(rng.randint(0, len(made)), rng.choice(".-+eEkKmMiGn 0_"))
    made = made[:24]
    return "".join(made) if not _has_long_exponent("".join(made)) else "1e9"


def pair(rng: random.Random) -> tuple[str, str]:
    """Two quantities, often near each other."""
    first = quantity(rng)
    roll = rng.random()
    if roll < 0.15:
        return first, first
    if roll < 0.3:
        return first, first.removeprefix("-") if first.startswith(
            "-"
        ) else "-" + first.removeprefix("+")
    return first, quantity(rng)


def _number(rng: random.Random) -> str:
    sign = rng.choice(("", "", "", "", "-", "+"))
    whole = "".join(
        rng.choice("0123456789") for _ in range(rng.choice((1, 1, 2, 3, 4, 7, 12, 18, 19, 20, 26)))
    )
    if rng.random() < 0.35:
        return (
            sign
            + whole
            + "."
            + "".join(
                rng.choice("0123456789") for _ in range(rng.choice((0, 1, 2, 3, 8, 9, 10, 12)))
            )
        )
    return sign + whole


def _scale(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return (
            rng.choice("eE")
            + rng.choice(("", "-", "+"))
            + str(rng.choice((0, 1, 2, 3, 5, 6, 9, 12, 17, 18, 19, 21, 30)))
        )
    return rng.choice(SUFFIXES)


def _has_long_exponent(candidate: str) -> bool:
    _, marker, exponent = candidate.lower().rpartition("e")
    return bool(marker) and sum(letter.isdigit() for letter in exponent) > 2
