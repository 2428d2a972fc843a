"""Prices of the list extension (version 3) and the set extension, by overload.

The string extension has its own prices only from version 5 on; Kubernetes uses version 2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.cel.check import types
from dovetail.cel.cost import cost_range
from dovetail.cel.cost.cost_range import CALL_COST, LIST_COST, TRAVERSAL
from dovetail.cel.cost.cost_sizes import Price, TrackerFailure, size
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Value
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

PLAIN_KINDS: Final = (
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
)
TEXT_KINDS: Final = ("string", "bytes")


def _list_call(factor: float, count: int) -> int:
    work = cost_range.to_unsigned(float(count) * (factor if factor >= 0.0 else 1.0))
    return min(work + CALL_COST + LIST_COST, cost_range.MAX)


def _output(args: Sequence[Value], result: Value) -> int:
    return _list_call(1.0, size(result))


def _flatten(args: Sequence[Value], result: Value) -> int:
    return _list_call(1.0, size(args[0]))


def _flatten_deep(args: Sequence[Value], result: Value) -> int:
    depth = args[1]
    if depth.__class__ is not int:
        raise _failure(f"ref.Val is {_go_name(depth)}, not types.Int")
    return _list_call(float(depth), size(args[0]))


def _compare_list(args: Sequence[Value], result: Value) -> int:
    return _compare_all(args[0])


def _compare_keys(args: Sequence[Value], result: Value) -> int:
    return _compare_all(args[1])


def _compare_all(elements: Value) -> int:
    """Every element with every other."""
    if not isinstance(elements, list):
        missing = "Contains" if elements.__class__ in _ADDABLE else "Add"
        raise _failure(f"{_go_name(elements)} is not traits.Lister: missing method {missing}")
    is_text = bool(elements) and isinstance(elements[0], str | bytes)
    return _list_call(2.0 + TRAVERSAL if is_text else 2.0, len(elements) ** 2)


def _set_call(rounds: float, args: Sequence[Value], result: Value) -> int:
    return CALL_COST + int(float(size(args[0]) * size(args[1])) * rounds)


PRICES: Final[Mapping[str, Price]] = {
    "list_slice": _output,
    "lists_range": _output,
    "list_reverse": _output,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten_deep,
    "list_distinct": _compare_list,
    **{f"list_{kind}_sort": _compare_list for kind in (*PLAIN_KINDS, *TEXT_KINDS)},
    **{f"list_{kind}_sortByAssociatedKeys": _compare_keys for kind in (*PLAIN_KINDS, *TEXT_KINDS)},
    "list_sets_contains_list": functools.partial(_set_call, 1.0),
    "list_sets_intersects_list": functools.partial(_set_call, 1.0),
    "list_sets_equivalent_list": functools.partial(_set_call, 2.0),
}

# Overloads whose price breaks down (TrackerFailure) on an error or a value of another type.
FRAGILE: Final = frozenset(
    id for id, price in PRICES.items() if price in (_flatten_deep, _compare_list, _compare_keys)
)

# Upstream's names for the values that make its cost tracker fail.
_GO_NAMES: Final[Mapping[type, str]] = {
    bool: "types.Bool",
    int: "types.Int",
    values.UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    values.Duration: "types.Duration",
    values.Timestamp: "types.Timestamp",
    values.Optional: "*types.Optional",
    types.Type: "*types.Type",
    dict: "*types.baseMap",
    values.MutableMap: "*types.baseMap",
    values.DomainMap: "cel.mapper",
    values.TextMap: "*types.baseMap",
    Quantity: "cel.Quantity",
    Semver: "cel.Semver",
    values.Ip: "cel.IP",
    values.Cidr: "cel.CIDR",
    values.Url: "cel.URL",
    values.Format: "cel.Format",
}
_ADDABLE: Final = frozenset(
    (int, values.UInt, float, str, bytes, values.Duration, values.Timestamp)
)


def _failure(reason: str) -> TrackerFailure:
    return TrackerFailure(f"internal error: interface conversion: {reason}")


def _go_name(value: Value) -> str:
    return (
        "*types.Err" if isinstance(value, CelError) else _GO_NAMES.get(value.__class__, "ref.Val")
    )
