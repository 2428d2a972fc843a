"""The message types an expression can name: `device` and protobuf's well-known types, with their fields.

Also the names of types as values (`int`, `net.IP`) and the only enum constant.
"""

from __future__ import annotations

from typing import Final

from dovetail.cel.check import types
from dovetail.cel.check.types import Kind, Type
from dovetail.cel.evaluate.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelError,
    Duration,
    Empty,
    Timestamp,
    UInt,
    Value,
)

_PROTO: Final = "google.protobuf."
_JSON_MAP: Final = types.map_of(types.STRING, types.DYN)
_JSON_LIST: Final = types.list_of(types.DYN)


def _wrapper(type_: Type) -> Type:
    return Type(type_.kind, type_.name, nullable=True)


_WRAPPED: Final = {
    "BoolValue": types.BOOL,
    "BytesValue": types.BYTES,
    "DoubleValue": types.DOUBLE,
    "FloatValue": types.DOUBLE,
    "Int32Value": types.INT,
    "Int64Value": types.INT,
    "StringValue": types.STRING,
    "UInt32Value": types.UINT,
    "UInt64Value": types.UINT,
}
_RESULTS: Final[dict[str, Type]] = {
    **{_PROTO + name: _wrapper(type_) for name, type_ in _WRAPPED.items()},
    _PROTO + "Any": types.ANY,
    _PROTO + "Duration": types.DURATION,
    _PROTO + "Timestamp": types.TIMESTAMP,
    _PROTO + "Struct": _JSON_MAP,
    _PROTO + "Value": types.DYN,
    _PROTO + "ListValue": _JSON_LIST,
    _PROTO + "Empty": Type(Kind.STRUCT, _PROTO + "Empty"),
    types.DEVICE.name: types.DEVICE,
}
_SECONDS: Final = {"seconds": types.INT, "nanos": types.INT}
_FIELDS: Final[dict[str, dict[str, Type]]] = {
    **{_PROTO + name: {"value": type_} for name, type_ in _WRAPPED.items()},
    _PROTO + "Any": {"type_url": types.STRING, "value": types.BYTES},
    _PROTO + "Duration": _SECONDS,
    _PROTO + "Timestamp": _SECONDS,
    _PROTO + "Struct": {"fields": _JSON_MAP},
    _PROTO + "Value": {
        "null_value": types.INT,
        "number_value": types.DOUBLE,
        "string_value": types.STRING,
        "bool_value": types.BOOL,
        "struct_value": _JSON_MAP,
        "list_value": _JSON_LIST,
    },
    _PROTO + "ListValue": {"values": _JSON_LIST},
    _PROTO + "Empty": {},
}
_TYPE_NAMES: Final[dict[str, Type]] = {
    type_.name: type_
    for type_ in (
        types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING,
        types.TIMESTAMP, types.TYPE, types.UINT, types.IP, types.CIDR,
        types.list_of(types.DYN), types.map_of(types.DYN, types.DYN), types.optional_of(types.DYN),
    )
}  # fmt: skip


class Messages:
    """Types and fields by name; `device_fields` are those of the one variable."""

    def __init__(self, device_fields: dict[str, Type]) -> None:
        self._device = device_fields

    def message_type(self, name: str) -> Type | None:
        """The type of `name{...}`."""
        return _RESULTS.get(name)

    def initial_field(self, message: str, name: str) -> Type | None:
        """The type of a field in `message{name: ...}`."""
        fields = self._device if message == types.DEVICE.name else _FIELDS[message]
        return fields.get(name)

    def field(self, message: str, name: str) -> Type | None:
        """The type of `value.name` for a value of the message type."""
        return self._device.get(name) if message == types.DEVICE.name else None

    def field_names(self, message: str) -> list[str]:
        """The known fields, for suggestions."""
        return sorted(self._device) if message == types.DEVICE.name else []

    def constant(self, name: str) -> tuple[Type, Value] | None:
        """A name that is a constant: a type, or protobuf's null enum value."""
        if name in _TYPE_NAMES:
            return types.type_of_type(_TYPE_NAMES[name]), _TYPE_NAMES[name]
        if name == _PROTO + "NullValue.NULL_VALUE":
            return types.INT, 0
        if name in _RESULTS:
            return types.type_of_type(_RESULTS[name]), _RESULTS[name]
        return None


_ZERO: Final[dict[Kind, Value]] = {
    Kind.BOOL: False,
    Kind.BYTES: b"",
    Kind.DOUBLE: 0.0,
    Kind.INT: 0,
    Kind.STRING: "",
    Kind.UINT: UInt(0),
}


def build(name: str, fields: dict[str, Value]) -> Value:
    """The value of `name{...}`: well-known messages are plain values."""
    short = name.removeprefix(_PROTO)
    if short in _WRAPPED:
        return _wrapped(short, fields)
    if short == "Timestamp":
        return Timestamp(_nanoseconds(fields))
    if short == "Duration":
        return _duration(fields)
    if short == "Empty":
        return Empty()
    if short == "Struct":
        return fields.get("fields", {})
    if short == "ListValue":
        return fields.get("values", [])
    if short == "Value":
        if "null_value" in fields or not fields:
            return None
        return next(reversed(fields.values()))
    raise CelError(f"values of type {name} cannot be used here")


def _nanoseconds(fields: dict[str, Value]) -> int:
    seconds: int = fields.get("seconds", 0)
    nanos: int = fields.get("nanos", 0)
    return seconds * 10**9 + nanos


def _duration(fields: dict[str, Value]) -> Duration:
    nanoseconds = _nanoseconds(fields)
    if not INT_MIN <= nanoseconds <= INT_MAX:
        raise CelError("duration out of range")
    return Duration(nanoseconds)


def _wrapped(short: str, fields: dict[str, Value]) -> Value:
    type_ = _WRAPPED[short]
    value = fields.get("value")
    if value is None:
        return _ZERO[type_.kind]
    bounds = {"Int32Value": (-(2**31), 2**31 - 1), "UInt32Value": (0, 2**32 - 1)}.get(
        short, (INT_MIN, UINT_MAX)
    )
    if type_.kind in (Kind.INT, Kind.UINT) and not bounds[0] <= value <= bounds[1]:
        raise CelError("integer overflow")
    return value
