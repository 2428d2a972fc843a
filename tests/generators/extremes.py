"""Objects at the edges of what a server stores: amounts no machine has, thousands of escapes, sizes near its limit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

AMOUNTS: Final = (
    "1e309",
    "1e1024",
    "1e1100",
    "-1e1100",
    "1e1500",
    "1e2147483646",
    "1e-2000",
    "1e4294967296",
    "9" * 1500,
    "1" + "0" * 5000 + "Ki",
    "0." + "0" * 2000 + "1",
    "9223372036854775807",
    "9223372036854775808m",
)
AMOUNT_FIELDS: Final = frozenset(
    {"requests", "limits", "overhead", "allocatable", "capacity", "consumedCapacity"}
)
HALF: Final = r"\ud800"
ESCAPES: Final = (r"\n", r"\ud83d\ude00", r"\"", "\\\\", r"\u0000", HALF)
SIZES: Final = (20_000, 100_000, 700_000)


def with_extreme_amounts(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The object with some of its amounts beyond all bounds; one that has none gets an annotation of that kind."""
    places = [*_amounts(tree)]
    if not places:
        return tree
    for amounts, name in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 5)))):
        amounts[name] = rng.choice(AMOUNTS)
    return tree


def with_escapes(document: bytes, rng: random.Random) -> bytes:
    """The document with half a character in an annotation, and thousands of escapes beside it."""
    count = rng.choice((10, 1_000, 20_000))
    text = HALF + "".join(rng.choice(ESCAPES) * rng.choice((1, count // 10)) for _ in range(10))
    annotation = b'"annotations":{"hostile":"' + text.encode() + b'"},'
    return document.replace(b'"metadata":{', b'"metadata":{' + annotation, 1)


def filled(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The object with so much in it that a server hardly takes it."""
    metadata = tree.get("metadata")
    if isinstance(metadata, dict):
        metadata["annotations"] = {"filler": "x" * rng.choice(SIZES)}
    return tree


def _amounts(node: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(node, list):
        for item in node:
            yield from _amounts(item)
        return
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        if name in AMOUNT_FIELDS and isinstance(value, dict):
            yield from ((value, key) for key, amount in value.items() if isinstance(amount, str))
        if name == "value" and isinstance(value, str):
            yield node, name
        yield from _amounts(value)
