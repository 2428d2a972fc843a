"""Lists taken as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`.

Given two lists; returns a bool. Elements are compared as CEL does, so 1 is 1.0; values that refuse comparison
differ.
"""

from __future__ import annotations

from typing import Final

from dovetail.cel.check.declarations import Overload, function
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import UInt, Value
from dovetail.cel.library import size_limits

_PLAIN: Final = frozenset(
    (frozenset((str,)), frozenset((int,)), frozenset((UInt,)), frozenset((bytes,)))
)


def contains(elements: list[Value], subset: list[Value]) -> bool:
    """Whether every wanted value is among the elements."""
    if _are_alike(elements, subset):
        return set(subset) <= set(elements)
    size_limits.check_pairs(elements, subset)
    return all(_holds(elements, value) for value in subset)


def equivalent(left: list[Value], right: list[Value]) -> bool:
    """Whether each list contains the other."""
    return contains(left, right) and contains(right, left)


def intersects(left: list[Value], right: list[Value]) -> bool:
    """Whether some element is in both."""
    if _are_alike(left, right):
        return not set(left).isdisjoint(right)
    size_limits.check_pairs(left, right)
    return any(_holds(right, element) for element in left)


def _holds(elements: list[Value], sought: Value) -> bool:
    return any(values.equal(sought, element) is True for element in elements)


def _are_alike(left: list[Value], right: list[Value]) -> bool:
    """Whether all elements have one type that Python compares as CEL does."""
    return frozenset(element.__class__ for element in (*left, *right)) in _PLAIN


_SIGNATURE = "list(<T>), list(<T>) -> bool"
OVERLOADS: tuple[Overload, ...] = (
    function("sets.contains", "list_sets_contains_list", _SIGNATURE, contains),
    function("sets.equivalent", "list_sets_equivalent_list", _SIGNATURE, equivalent),
    function("sets.intersects", "list_sets_intersects_list", _SIGNATURE, intersects),
)
