"""The sizes of values in cost arithmetic, and the cost of traversing them. Knows nothing about calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from dovetail.cel.cost.cost_range import REGEX, TRAVERSAL
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import Panic, Value

Price = Callable[
    [Sequence[Value], Value], int
]  # the cost of a call, from its arguments and its result

_SIZED: Final = frozenset(
    (
        str,
        bytes,
        list,
        dict,
        values.MutableList,
        values.MutableMap,
        values.DomainMap,
        values.TextMap,
    )
)


class TrackerFailure(Panic):
    """Upstream's cost tracker fails on a call. The whole evaluation ends in an error; no || absorbs it."""


def size(value: Value) -> int:
    """The size that the libraries use: an optional counts 1, whatever it holds."""
    kind = value.__class__
    if kind in _SIZED:
        return len(value)
    return 1 if kind is values.Optional else values.size(value)


def inner_size(value: Value) -> int:
    """The size that the language's own operations use: an optional counts as much as its value."""
    return len(value) if value.__class__ in _SIZED else values.size(value)


def walk(characters: float) -> int:
    """The cost of one traversal of so many characters."""
    return math.ceil(characters * TRAVERSAL)


def regex(text_size: int, pattern_size: int) -> int:
    """The cost of matching; one character is added, so that an empty text still pays for its pattern."""
    return walk(1.0 + text_size) * math.ceil(pattern_size * REGEX)


def traversal(value: Value) -> int:
    """The cost of visiting every leaf; here text is measured in bytes and rounded down."""
    match value:
        case str():
            return int(len(value.encode()) * TRAVERSAL)
        case bytes():
            return int(len(value) * TRAVERSAL)
        case list():
            return sum(map(traversal, value))
        case dict():
            return sum(traversal(values.key_value(k)) + traversal(v) for k, v in value.items())
        case _:
            return 1
