"""Values that may be absent: creating, testing and unwrapping them.

Given values; returns values. `or` and `orValue` look at their argument only when needed: the planner
runs them.
"""

from __future__ import annotations

from typing import Final

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import (
    CelError,
    DomainMap,
    Duration,
    Optional,
    Timestamp,
    UInt,
    Value,
)
from dovetail.cel.library import times

_PLAIN: Final = frozenset((bool, int, UInt, float, str, bytes))
_ZERO_MOMENT: Final = times.FIRST_SECOND * times.SECOND


def of_non_zero(value: Value) -> Optional:
    """The value, unless it is the empty or zero value of its type."""
    return values.NONE if is_zero(value) else Optional(value)


def is_zero(value: Value) -> bool:
    """Whether a value is null, false, zero or empty. Kubernetes' own types have no zero."""
    kind = value.__class__
    if value is None:
        return True
    if kind in _PLAIN:
        return not value
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _ZERO_MOMENT)
    # Attributes by domain count as non-zero even when empty: upstream's map type cannot check.
    return isinstance(value, list | dict) and kind is not DomainMap and not value


def value_of(optional: Optional) -> Value:
    """The value inside; an error if it is absent."""
    return optional.value


def has_value(optional: Optional) -> bool:
    """Whether there is a value inside."""
    return optional.has_value


def unwrap(optionals: list[Value]) -> list[Value]:
    """The values that are there."""
    for element in optionals:
        if element.__class__ is not Optional:
            raise CelError(f"value of type {values.type_of(element)} is not optional")
    return [element.value for element in optionals if element.has_value]


def _none() -> Optional:
    return values.NONE


OVERLOADS: tuple[Overload, ...] = (
    function("optional.of", "optional_of", "<V> -> optional(<V>)", Optional),
    function(
        "optional.ofNonZeroValue", "optional_ofNonZeroValue", "<V> -> optional(<V>)", of_non_zero
    ),
    function("optional.none", "optional_none", "-> optional(<V>)", _none),
    member("value", "optional_value", "optional(<V>) -> <V>", value_of),
    member("hasValue", "optional_hasValue", "optional(<V>) -> bool", has_value),
    member("or", "optional_or_optional", "optional(<V>), optional(<V>) -> optional(<V>)"),
    member("orValue", "optional_orValue_value", "optional(<V>), <V> -> <V>"),
    function("optional.unwrap", "optional_unwrap", "list(optional(<V>)) -> list(<V>)", unwrap),
    member("unwrapOpt", "optional_unwrapOpt", "list(optional(<V>)) -> list(<V>)", unwrap),
)
