"""Derived attributes (alpha in 1.37): an expression whose value becomes an attribute of the device."""

from __future__ import annotations

from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Value
from dovetail.kubetypes.resource.slices import DeviceAttribute
from dovetail.quantity.semver import Semver


def attribute_of(value: Value) -> DeviceAttribute:
    """The attribute made from a value; lists must hold one kind. Raises CelError for other values."""
    while value.__class__ is values.Optional and value.has_value:
        value = value.value
    match value:
        case bool():
            return DeviceAttribute(bool_value=value)
        case int() if value.__class__ is int:
            return DeviceAttribute(int_value=value)
        case str():
            return DeviceAttribute(string_value=value)
        case Semver():
            return DeviceAttribute(version_value=str(value))
        case list():
            return _list_attribute(value)
    raise CelError(f"a {values.type_of(value)} cannot be an attribute")


def _list_attribute(items: list[Value]) -> DeviceAttribute:
    kinds = {item.__class__ for item in items}
    if len(kinds) > 1:
        raise CelError("the items of a list attribute must be of one type")
    match kinds.pop() if kinds else str:
        case kind if kind is bool:
            return DeviceAttribute(bool_values=tuple(items))
        case kind if kind is int:
            return DeviceAttribute(int_values=tuple(items))
        case kind if kind is str:
            return DeviceAttribute(string_values=tuple(items))
        case kind if kind is Semver:
            return DeviceAttribute(version_values=tuple(map(str, items)))
    raise CelError(f"a {values.type_of(items[0])} cannot be in a list attribute")
