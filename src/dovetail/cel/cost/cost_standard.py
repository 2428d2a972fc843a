"""Prices of the language's own operations, by overload. Whatever is missing here costs 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.cel.cost.cost_sizes import Price, inner_size, regex, walk
from dovetail.cel.evaluate.values import Value

TEXT_COMPARISONS: Final = tuple(
    f"{order}_{kind}"
    for order in ("less", "less_equals", "greater", "greater_equals")
    for kind in ("string", "bytes")
)


def shorter(args: Sequence[Value], result: Value) -> int:
    """The cost of comparing two values: one traversal of the smaller."""
    return walk(min(inner_size(args[0]), inner_size(args[1])))


def _affix(args: Sequence[Value], result: Value) -> int:
    return walk(inner_size(args[1]))


def _convert(args: Sequence[Value], result: Value) -> int:
    return walk(inner_size(args[0]))


def _in_list(args: Sequence[Value], result: Value) -> int:
    return inner_size(args[1])


def _concatenate(args: Sequence[Value], result: Value) -> int:
    return walk(inner_size(args[0]) + inner_size(args[1]))


def _matches(args: Sequence[Value], result: Value) -> int:
    return regex(inner_size(args[0]), inner_size(args[1]))


def _contains(args: Sequence[Value], result: Value) -> int:
    return walk(inner_size(args[0])) * walk(inner_size(args[1]))


PRICES: Final[Mapping[str, Price]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _affix),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _convert
    ),
    **dict.fromkeys((*TEXT_COMPARISONS, "equals", "not_equals"), shorter),
    **dict.fromkeys(("add_string", "add_bytes"), _concatenate),
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "in_list": _in_list,
    "contains_string": _contains,
}
