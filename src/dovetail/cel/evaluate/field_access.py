"""Reading fields, keys and elements: `value.name`, `value[key]`, with and without presence tests."""

from __future__ import annotations

from typing import Any, Final

from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import UNKNOWN_DOMAIN, CelError, DomainMap, TextMap, UInt, Value

MISSING: Final = object()
KEY_CLASSES: Final = frozenset((str, int, UInt, bool, float))


def read(holder: Value, key: Value) -> Value:
    """The value at a key, field or index; an error if it is missing."""
    kind = holder.__class__
    if (kind is dict or kind is TextMap) and key.__class__ is str:
        try:
            value = holder[key]
        except KeyError:
            raise missing_key(key) from None
        return list(value) if kind is TextMap and value.__class__ is list else value
    value = look_up(holder, key)
    if value is not MISSING:
        return value
    raise missing_index(key) if isinstance(holder, list) else missing_key(key)


def look_up(holder: Value, key: Value) -> Value:
    """The value at a key, or MISSING. Wrong kinds of list index are errors even in presence tests."""
    if isinstance(holder, dict):
        is_present, value = values.find(holder, key)
        if is_present:
            return _fresh(holder, value)
        return UNKNOWN_DOMAIN if holder.__class__ is DomainMap else MISSING
    if isinstance(holder, list):
        index = list_index(key)
        return holder[index] if 0 <= index < len(holder) else MISSING
    return MISSING


def _fresh(holder: Value, value: Value) -> Value:
    """Upstream wraps a device's inner maps and lists again for each read, which shows when they are map keys."""
    if holder.__class__ is DomainMap:
        return TextMap(value)
    return list(value) if holder.__class__ is TextMap and value.__class__ is list else value


def list_index(key: Value) -> int:
    """A list position from any number without a fraction."""
    if key.__class__ is int or key.__class__ is UInt:
        return int(key)
    if key.__class__ is float and key.is_integer():
        return int(key)
    raise CelError(f"unsupported list index of type {values.type_of(key)}")


def missing_key(key: Any) -> CelError:
    """The error for a missing key, field or element."""
    return CelError(f"no such key: {shown(key)}")


def missing_index(key: Any) -> CelError:
    """The error of reading beyond a list."""
    return CelError(f"index out of bounds: {shown(key)}")


def shown(key: Any) -> str:
    """A key as messages show it."""
    return str(key).lower() if key.__class__ is bool else str(key)
