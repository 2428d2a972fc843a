"""Random version texts: valid ones with pre-releases and build metadata, and near misses."""

from __future__ import annotations

import random
from typing import Final

NUMBERS: Final = (0, 1, 2, 3, 9, 10, 11, 99, 550, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
PRE: Final = (
    "alpha",
    "alpha.1",
    "rc.1",
    "rc.2",
    "rc.10",
    "0",
    "1",
    "x-y-z",
    "1a",
    "a.b.c",
    "-",
    "beta-1.0",
    "9999999999",
)
BUILD: Final = ("build", "build.1", "001", "sha-5114f85", "a.b", "-")
BROKEN: Final = (
    "", "1", "1.2", "1.2.3.4", "v1.2.3", "V1.2.3", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3-ä", "1.2.3+a_b", " 1.2.3", "1.2.3 ", "1.2.x", "-1.2.3", "1.-2.3", "18446744073709551616.0.0",
    "1.2.3-+b", "v1", "v",
    "v01.002", "1.2-rc1", "1-rc.1", "a.b.c", "1..3", "1.2.", ".1.2", "1.2.3--", "1.2.3-a+b+c", "+1.2.3",
    "1.2.3\n", "vv1.2.3",
)  # fmt: skip


def valid(rng: random.Random) -> str:
    """A strict semantic version, mostly small."""
    pool = NUMBERS if rng.random() < 0.2 else NUMBERS[:8]
    made = ".".join(str(rng.choice(pool)) for _ in range(3))
    if rng.random() < 0.35:
        made += "-" + rng.choice(PRE)
    if rng.random() < 0.25:
        made += "+" + rng.choice(BUILD)
    return made


def version(rng: random.Random) -> str:
    """A version or nearly one."""
    roll = rng.random()
    if roll < 0.6:
        return valid(rng)
    if roll < 0.8:
        return rng.choice(BROKEN)
    made = list(valid(rng))
    if rng.random() < 0.5 and made:
        del made[rng.randrange(len(made))]
    else:
        made.insert(rng.randint(0, len(made)), rng.choice(".-+0v a9_é"))
    return "".join(made)


def pair(rng: random.Random) -> tuple[str, str]:
    """Two valid versions that often differ in one place only."""
    first = valid(rng)
    roll = rng.random()
    if roll < 0.2:
        return first, first.partition("+")[0] + "+other"
    if roll < 0.5:
        return first, first.partition("+")[0].partition("-")[0] + "-" + rng.choice(PRE)
    return first, valid(rng)
