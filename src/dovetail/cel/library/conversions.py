"""The type conversions: `int("3")`, `string(1.5)`, `timestamp(0)` and the rest.

Given a value of a type the signature names; returns the value of the other type, or raises CelError when
there is none: a text that spells nothing, a number out of range.
"""

from __future__ import annotations

import math
import re
from typing import Final

from dovetail.cel.check import types
from dovetail.cel.check.declarations import Overload, function
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelError,
    Duration,
    Timestamp,
    UInt,
    Value,
)
from dovetail.cel.library import gotext, strings, times

_SIGNED: Final = r"[+-]?[0-9]+"
_UNSIGNED: Final = r"[0-9]+"
_DECIMAL: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEXADECIMAL: Final = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_UNDERSCORES: Final = r"(?<=[0-9])_(?=[0-9])"
_HEXADECIMAL_UNDERSCORES: Final = r"(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])"
_SPECIAL: Final = r"(?ai:[+-]?inf(?:inity)?|nan)"
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def identity(value: Value) -> Value:
    """The value itself."""
    return value


def string_to_bool(text: str) -> bool:
    """True and false in the spellings upstream accepts."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _cannot("string", "bool")


def string_to_int(text: str) -> int:
    """A decimal integer within int64, with an optional sign."""
    number = _whole(text) if re.fullmatch(_SIGNED, text) else None
    if number is None or not INT_MIN <= number <= INT_MAX:
        raise _cannot("string", "int")
    return number


def string_to_uint(text: str) -> UInt:
    """A decimal integer within uint64, without a sign."""
    number = _whole(text) if re.fullmatch(_UNSIGNED, text) else None
    if number is None or number > UINT_MAX:
        raise _cannot("string", "uint")
    return UInt(number)


def string_to_double(text: str) -> float:
    """A decimal or hexadecimal floating-point text, an infinity or nan; too large a number is an error."""
    plain = text
    if "_" in text:
        separators = _HEXADECIMAL_UNDERSCORES if "x" in text.lower() else _UNDERSCORES
        plain = re.sub(separators, "", text)
    if re.fullmatch(_DECIMAL, plain):
        number = float(plain)
        if math.isfinite(number):
            return number
    elif re.fullmatch(_HEXADECIMAL, plain):
        try:
            return float.fromhex(plain)
        except OverflowError:
            pass
    elif re.fullmatch(_SPECIAL, text):
        return float(text)
    raise _cannot("string", "double")


def double_to_int(number: float) -> int:
    """The double without its fraction. The ends of the int64 range are out of range already."""
    if not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return int(number)


def double_to_uint(number: float) -> UInt:
    """The double without its fraction; negative ones are out of range."""
    if not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return UInt(int(number))


def int_to_uint(number: int) -> UInt:
    """The same number, unless negative."""
    if number < 0:
        raise CelError("unsigned integer overflow")
    return UInt(number)


def uint_to_int(number: UInt) -> int:
    """The same number, if it fits."""
    if number > INT_MAX:
        raise CelError("integer overflow")
    return int(number)


def int_to_timestamp(seconds: int) -> Timestamp:
    """The moment so many seconds after 1970 began."""
    times.check_second(seconds)
    return Timestamp(seconds * times.SECOND)


def duration_to_int(duration: Duration) -> int:
    """Nanoseconds."""
    return duration.nanos


def timestamp_to_int(moment: Timestamp) -> int:
    """Whole seconds since 1970, rounded down."""
    return moment.nanos // times.SECOND


def bool_to_string(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def bytes_to_string(data: bytes) -> str:
    """The text that UTF-8 bytes spell."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def timestamp_to_string(moment: Timestamp) -> str:
    """RFC 3339."""
    return times.timestamp_text(moment.nanos, moment.offset_seconds)


def _whole(text: str) -> int | None:
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 20:  # no 64-bit number is longer
        return None
    return -int(digits or 0) if text[0] == "-" else int(digits or 0)


def _cannot(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _of_type(value: Value) -> types.Type:
    return values.type_of(value)


OVERLOADS: tuple[Overload, ...] = (
    function("type", "type", "<A> -> type(<A>)", _of_type),
    function("dyn", "to_dyn", "<A> -> dyn", identity),
    function("bool", "bool_to_bool", "bool -> bool", identity),
    function("bool", "string_to_bool", "string -> bool", string_to_bool),
    function("bytes", "bytes_to_bytes", "bytes -> bytes", identity),
    function("bytes", "string_to_bytes", "string -> bytes", strings.to_bytes),
    function("double", "double_to_double", "double -> double", identity),
    function("double", "int64_to_double", "int -> double", float),
    function("double", "string_to_double", "string -> double", string_to_double),
    function("double", "uint64_to_double", "uint -> double", float),
    function("duration", "duration_to_duration", "duration -> duration", identity),
    function("duration", "string_to_duration", "string -> duration", times.parse_duration),
    function("int", "int64_to_int64", "int -> int", identity),
    function("int", "double_to_int64", "double -> int", double_to_int),
    function("int", "duration_to_int64", "duration -> int", duration_to_int),
    function("int", "string_to_int64", "string -> int", string_to_int),
    function("int", "timestamp_to_int64", "timestamp -> int", timestamp_to_int),
    function("int", "uint64_to_int64", "uint -> int", uint_to_int),
    function("string", "string_to_string", "string -> string", identity),
    function("string", "bool_to_string", "bool -> string", bool_to_string),
    function("string", "bytes_to_string", "bytes -> string", bytes_to_string),
    function("string", "double_to_string", "double -> string", gotext.shortest),
    function("string", "duration_to_string", "duration -> string", times.duration_text),
    function("string", "int64_to_string", "int -> string", str),
    function("string", "timestamp_to_string", "timestamp -> string", timestamp_to_string),
    function("string", "uint64_to_string", "uint -> string", int.__repr__),
    function("timestamp", "timestamp_to_timestamp", "timestamp -> timestamp", identity),
    function("timestamp", "int64_to_timestamp", "int -> timestamp", int_to_timestamp),
    function("timestamp", "string_to_timestamp", "string -> timestamp", times.parse_timestamp),
    function("uint", "uint64_to_uint64", "uint -> uint", identity),
    function("uint", "double_to_uint64", "double -> uint", double_to_uint),
    function("uint", "int64_to_uint64", "int -> uint", int_to_uint),
    function("uint", "string_to_uint64", "string -> uint", string_to_uint),
)
