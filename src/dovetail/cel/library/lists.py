"""The functions on lists and the two that build what comprehensions return.

Given lists that passed the signature, of which only the first element was looked at; returns new values,
never changes a list. `cel.@mapInsert` alone changes its map, which no expression sees before it is finished.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate import operators, values
from dovetail.cel.evaluate.values import (
    CelError,
    Duration,
    MutableMap,
    Optional,
    Timestamp,
    UInt,
    Value,
)
from dovetail.cel.library import ordering, size_limits

_ORDERED: Final = frozenset((int, UInt, float, bool, Duration, Timestamp, str, bytes))
_HASHABLE: Final = frozenset(
    (str, int, UInt, bool, bytes)
)  # equal exactly when Python finds them equal


def is_sorted(elements: list[Value]) -> bool:
    """Whether no element is greater than the next. Elements that cannot be compared are ignored."""
    _check_ordered(elements)
    return not any(_compared(a, b) == 1 for a, b in itertools.pairwise(elements))


def smallest(elements: list[Value]) -> Value:
    """The first of the least elements."""
    return _chosen(elements, "min", replaced_by=1)


def largest(elements: list[Value]) -> Value:
    """The first of the greatest elements."""
    return _chosen(elements, "max", replaced_by=-1)


def _chosen(elements: list[Value], name: str, *, replaced_by: int) -> Value:
    if not elements:
        raise CelError(f"{name} called on empty list")
    _check_ordered(elements)
    best = elements[0]
    for element in elements:
        if _compared(best, element) == replaced_by:
            best = element
    return best


def _check_ordered(elements: list[Value]) -> None:
    for element in elements:
        if element.__class__ not in _ORDERED:
            raise values.no_such_overload()


def _compared(left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None if the two have no order, which upstream ignores."""
    try:
        return values.compare(left, right)
    except CelError:
        return None


def _sum_of(zero: Value) -> Callable[[list[Value]], Value]:
    def total(elements: list[Value]) -> Value:
        amount = zero
        for element in elements:
            amount = operators.add(amount, element)
        return amount

    return total


def index_of(elements: list[Value], sought: Value) -> int:
    """The index of the first element equal to a value; -1 if absent."""
    return next(
        (at for at, element in enumerate(elements) if values.equal(element, sought) is True), -1
    )


def last_index_of(elements: list[Value], sought: Value) -> int:
    """The index of the last element equal to a value; -1 if absent."""
    backwards = range(len(elements) - 1, -1, -1)
    return next((at for at in backwards if values.equal(elements[at], sought) is True), -1)


def includes(target: Value, sought: Value) -> bool:
    """Whether a list holds a value; for anything else, whether it is that value."""
    if isinstance(target, list):
        return any(values.equal(element, sought) is True for element in target)
    return values.equal(target, sought) is True


def distinct(elements: list[Value]) -> list[Value]:
    """The elements without those equal to an earlier one."""
    if _plain_kind(elements) is not None:
        return list(dict.fromkeys(elements))
    size_limits.check_pairs(elements, elements)
    unique: list[Value] = []
    for element in elements:
        if not any(values.equal(element, earlier) is True for earlier in unique):
            unique.append(element)
    return unique


def _plain_kind(elements: list[Value]) -> type | None:
    """The common class of all elements, if Python's equality applies to it."""
    kinds = {element.__class__ for element in elements}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= _HASHABLE else None


def flatten(elements: Value, depth: int = 1) -> list[Value]:
    """The list with the lists inside it opened, down to a depth."""
    if not isinstance(elements, list) or depth.__class__ is not int:
        raise values.no_such_overload()
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Value] = []
    _flatten(elements, depth, into=flat)
    return flat


def _flatten(elements: list[Value], depth: int, *, into: list[Value]) -> None:
    for element in elements:
        if depth > 0 and isinstance(element, list):
            _flatten(element, depth - 1, into=into)
        else:
            size_limits.check_elements(len(into) + 1)
            into.append(element)


def number_range(count: int) -> list[int]:
    """0 up to a count."""
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > size_limits.MAX_ELEMENTS:
        raise CelError(
            f"lists.range: size {count} exceeds maximum allowed ({size_limits.MAX_ELEMENTS})"
        )
    return list(range(count))


def backwards(elements: list[Value]) -> list[Value]:
    """The elements from last to first."""
    return elements[::-1]


def cut(elements: list[Value], start: int, end: int) -> list[Value]:
    """The elements from an index up to, not including, another."""
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(elements):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def sort(elements: list[Value]) -> list[Value]:
    """The elements from least to greatest; all must be of one type that has an order."""
    return sort_by_keys(elements, elements)


def sort_by_keys(elements: list[Value], keys: list[Value]) -> list[Value]:
    """The elements in the order of their keys."""
    if len(elements) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if keys[0].__class__ not in _ORDERED:
        raise CelError("list elements must be comparable")
    if any(key.__class__ is not keys[0].__class__ for key in keys):
        raise CelError("list elements must have the same type")
    return [elements[at] for at in _order(keys)]


def _order(keys: list[Value]) -> list[int]:
    return ordering.order(
        [key.nanos for key in keys] if keys[0].__class__ in (Duration, Timestamp) else keys
    )


def first(elements: list[Value]) -> Optional:
    """The first element, if any."""
    return Optional(elements[0]) if elements else values.NONE


def last(elements: list[Value]) -> Optional:
    """The last element, if any."""
    return Optional(elements[-1]) if elements else values.NONE


def map_insert(entries: dict[object, Value], key: Value, value: Value) -> dict[object, Value]:
    """The map with one more entry; an existing key is an error."""
    is_present, _ = values.find(entries, key)
    if is_present:
        raise CelError(f"insert failed: key {key} already exists")
    target = entries if isinstance(entries, MutableMap) else MutableMap(entries)
    try:
        target[values.map_key(key)] = value
    except TypeError:
        raise CelError(f"unsupported key type: {values.type_of(key)}") from None
    return target


def map_insert_all(
    entries: dict[object, Value], additions: dict[object, Value]
) -> dict[object, Value]:
    """The map with the entries of another; an existing key is an error."""
    for key, value in additions.items():
        entries = map_insert(entries, values.key_value(key), value)
    return entries


def _unguarded(overload: Overload) -> Overload:
    """An overload that accepts any value at run time and checks it itself, as upstream declares `flatten`."""
    overload.guards = (None,) * len(overload.guards)
    return overload


_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_RUN_TIME_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}
_ZEROS: Final[dict[str, Value]] = {
    "int": 0,
    "uint": UInt(0),
    "double": 0.0,
    "duration": Duration(0),
}

KUBERNETES: tuple[Overload, ...] = (
    *(
        member("isSorted", f"list_{t}_is_sorted_bool", f"list({t}) -> bool", is_sorted)
        for t in _COMPARABLE
    ),
    *(
        member("sum", f"list_{t}_sum_{t}", f"list({t}) -> {t}", _sum_of(zero))
        for t, zero in _ZEROS.items()
    ),
    *(member("max", f"list_{t}_max_{t}", f"list({t}) -> {t}", largest) for t in _COMPARABLE),
    *(member("min", f"list_{t}_min_{t}", f"list({t}) -> {t}", smallest) for t in _COMPARABLE),
    member("indexOf", "list_a_index_of_int", "list(<A>), <A> -> int", index_of),
    member("lastIndexOf", "list_a_last_index_of_int", "list(<A>), <A> -> int", last_index_of),
)
INCLUDES: Overload = member("includes", "list_includes_dyn_dyn", "dyn, dyn -> bool", includes)
EXTENDED: tuple[Overload, ...] = (
    member("slice", "list_slice", "list(<T>), int, int -> list(<T>)", cut),
    _unguarded(member("flatten", "list_flatten", "list(list(<T>)) -> list(<T>)", flatten)),
    _unguarded(member("flatten", "list_flatten_int", "list(dyn), int -> list(dyn)", flatten)),
    *(
        member("sort", f"list_{_RUN_TIME_NAMES.get(t, t)}_sort", f"list({t}) -> list({t})", sort)
        for t in _COMPARABLE
    ),
    *(
        member(
            "@sortByAssociatedKeys",
            f"list_{_RUN_TIME_NAMES.get(t, t)}_sortByAssociatedKeys",
            f"list(<T>), list({t}) -> list(<T>)",
            sort_by_keys,
        )
        for t in _COMPARABLE
    ),
    function("lists.range", "lists_range", "int -> list(int)", number_range),
    member("reverse", "list_reverse", "list(<T>) -> list(<T>)", backwards),
    member("distinct", "list_distinct", "list(<T>) -> list(<T>)", distinct),
    member("last", "list_last", "list(<V>) -> optional(<V>)", last),
    member("first", "list_first", "list(<V>) -> optional(<V>)", first),
    function(
        "cel.@mapInsert",
        "@mapInsert_map_key_value",
        "map(<K>, <V>), <K>, <V> -> map(<K>, <V>)",
        map_insert,
    ),
    function(
        "cel.@mapInsert",
        "@mapInsert_map_map",
        "map(<K>, <V>), map(<K>, <V>) -> map(<K>, <V>)",
        map_insert_all,
    ),
)
