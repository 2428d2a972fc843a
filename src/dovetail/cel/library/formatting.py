"""`"%d GPUs".format([8])`: what a format text asks for, and values written that way.

Given a format text and a list of values; returns the text or raises CelError. Writes as the second version of
upstream's string library does, which prints doubles as people in the United States read them: `%f` groups
thousands, `%e` writes 1.5×10⁰³.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dovetail import cache
from dovetail.cel.check.declarations import Overload, member
from dovetail.cel.check.types import Type
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import INT_MAX, CelError, Duration, Timestamp, UInt, Value
from dovetail.cel.library import conversions, gotext, size_limits, times

DEFAULT_PRECISION: Final = 6
_WIDEST_NUMBER: Final = (
    1_000_000  # a precision that passes this before its last digit makes the verb unreadable
)
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NOT_NUMBERS: Final = frozenset(("NaN", "Infinity", "-Infinity"))
_VERBS: Final = frozenset("sdfebxXo")


class Clause(msgspec.Struct, frozen=True, gc=False):
    """One `%…` of a format: the verb and the precision written before it, if any."""

    verb: str
    precision: int | None = None


Piece = str | Clause


@cache.remembered(1024)
def parse(text: str) -> tuple[Piece, ...]:
    """Literal text and clauses in turn. Raises CelError for an unknown verb or an unfinished clause."""
    pieces: list[Piece] = []
    position = 0
    while (percent := text.find("%", position)) >= 0:
        if percent > position:
            pieces.append(text[position:percent])
        if text.startswith("%%", percent):
            pieces.append("%")
            position = percent + 2
        else:
            clause, position = _clause(text, percent + 1)
            pieces.append(clause)
    if position < len(text):
        pieces.append(text[position:])
    return tuple(pieces)


def _clause(text: str, position: int) -> tuple[Clause, int]:
    precision = None
    if text.startswith(".", position):
        end = position + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        precision = _precision(text[position + 1 : end])
        position = end
    if position >= len(text):
        raise CelError("could not parse formatting clause: unexpected end of string")
    verb = text[position]
    if verb not in _VERBS:
        raise CelError(
            f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        )
    return Clause(verb, precision), position + 1


def _precision(digits: str) -> int:
    significant = digits.lstrip("0")
    if not digits or len(significant) > 19 or int(significant or 0) > INT_MAX:
        raise CelError("could not parse formatting clause: error while parsing precision")
    return int(significant or 0)


def format_text(text: str, arguments: list[Value]) -> str:
    """The text with its clauses filled in from the list, in order. Arguments left over are ignored."""
    written: list[str] = []
    length = 0
    used = 0
    for piece in parse(text):
        if isinstance(piece, Clause):
            if used >= len(arguments):
                raise CelError(f"index {used} out of range")
            piece, used = _filled(piece, arguments[used]), used + 1
        length += len(piece)
        size_limits.check_text(length)
        written.append(piece)
    return "".join(written)


def _filled(clause: Clause, value: Value) -> str:
    match clause.verb:
        case "s":
            return plain(value)
        case "d":
            return decimal(value)
        case "f":
            return fixed(_double(value, "fixed-point"), clause.precision)
        case "e":
            return scientific(_double(value, "scientific"), clause.precision)
        case "b":
            return binary(value)
        case "o":
            return octal(value)
        case "x":
            return hexadecimal(value)
        case _:
            return hexadecimal(value).upper()


def plain(value: Value) -> str:
    """A value as `%s` shows it."""
    writer = _PLAIN.get(value.__class__)
    if writer is None:
        raise _refused(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
            f"durations, and timestamps, was given {_type_name(value)}"
        )
    return writer(value)


def decimal(value: Value) -> str:
    """An integer in decimal."""
    if value.__class__ is not int and value.__class__ is not UInt:
        raise _refused(
            f"decimal clause can only be used on integers, was given {_type_name(value)}"
        )
    return int.__repr__(value)


def binary(value: Value) -> str:
    """An integer or bool in base 2."""
    if value.__class__ not in (int, UInt, bool):
        raise _refused(
            f"only integers and bools can be formatted as binary, was given {_type_name(value)}"
        )
    return f"{int(value):b}"


def octal(value: Value) -> str:
    """An integer in base 8."""
    if value.__class__ not in (int, UInt):
        raise _refused(f"octal clause can only be used on integers, was given {_type_name(value)}")
    return f"{int(value):o}"


def hexadecimal(value: Value) -> str:
    """An integer in base 16, or the bytes of a text."""
    if value.__class__ in (int, UInt):
        return f"{int(value):x}"
    if value.__class__ is str:
        return str(value.encode("utf-8", "surrogateescape").hex())
    if value.__class__ is bytes:
        return str(value.hex())
    raise _refused(
        f"only integers, byte buffers, and strings can be formatted as hex, was given {_type_name(value)}"
    )


def _double(value: Value, clause: str) -> float:
    if value.__class__ is str and value in _NOT_NUMBERS:
        return float(value)
    if value.__class__ is not float:
        raise _refused(
            f"{clause} clause can only be used on doubles, was given {_type_name(value)}"
        )
    return float(value)


def fixed(number: float, precision: int | None) -> str:
    """A double with grouped thousands. The bounds of upstream's small counters show with huge precisions."""
    if precision is None:
        precision = DEFAULT_PRECISION
    if precision // 10 > _WIDEST_NUMBER:
        return "%!(NOVERB)"
    if not math.isfinite(number):
        return _not_finite(number)
    most, least = _int16(precision), precision % 256
    exact = f"{abs(number):.{most}f}" if most >= 0 else gotext.positional(abs(number))
    whole, _, fraction = exact.partition(".")
    fraction = fraction.rstrip("0").ljust(least, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{int(whole):,}.{fraction}" if fraction else f"{sign}{int(whole):,}"


def scientific(number: float, precision: int | None) -> str:
    """A double with six places and a power of ten. Upstream takes the precision for a width."""
    width = DEFAULT_PRECISION if precision is None else precision
    if width // 10 > _WIDEST_NUMBER:
        return "%!(NOVERB)"
    if not math.isfinite(number):
        return _not_finite(number).rjust(width % 2**16)
    mantissa, _, exponent = f"{abs(number):.6e}".partition("e")
    power = f"{int(exponent):03d}" if exponent[0] == "-" else f"{int(exponent):02d}"
    sign = "-" if number < 0 else ""
    return f"{sign}{mantissa}×10{power.translate(_SUPERSCRIPTS)}".rjust(width % 2**16)


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


def _int16(number: int) -> int:
    return (number + 2**15) % 2**16 - 2**15


def _listed(elements: list[Value]) -> str:
    return f"[{', '.join(_bounded(map(nested, elements)))}]"


def _mapped(entries: dict[object, Value]) -> str:
    written = sorted(
        (_map_key(values.key_value(key)), nested(value)) for key, value in entries.items()
    )
    return f"{{{', '.join(_bounded(f'{key}:{value}' for key, value in written))}}}"


def _map_key(key: Value) -> str:
    if key.__class__ not in (str, bool, int, UInt):
        raise _refused(f"no formatting function for map key of type {_type_name(key)}")
    return nested(key)


def _bounded(parts: Iterable[str]) -> list[str]:
    pieces: list[str] = []
    length = 0
    for part in parts:
        length += len(part)
        size_limits.check_text(length)
        pieces.append(part)
    return pieces


def nested(value: Value) -> str:
    """A value inside a list or map: strings in quotes, doubles with six places, times as CEL writes them."""
    kind = value.__class__
    if kind is str:
        return gotext.quoted(value)
    if kind is bytes:
        return "b" + gotext.quoted(conversions.bytes_to_string(value))
    if kind is float:
        text = gotext.fixed(value, DEFAULT_PRECISION)
        return text if math.isfinite(value) else f'"{text}"'
    if kind is Timestamp:
        return f'timestamp("{conversions.timestamp_to_string(value)}")'
    if kind is Duration:
        return f'duration("{times.duration_text(value)}")'
    if kind not in _PLAIN:
        raise _refused(f"no formatting function for {_type_name(value)}")
    return _PLAIN[kind](value)


def _null(_: None) -> str:
    return "null"


def _type(value: Type) -> str:
    return value.name


_PLAIN: Final[dict[type, Callable[..., str]]] = {
    str: conversions.identity,
    bool: conversions.bool_to_string,
    int: int.__repr__,
    UInt: int.__repr__,
    float: gotext.shortest,
    bytes: conversions.bytes_to_string,
    Timestamp: conversions.timestamp_to_string,
    Duration: times.duration_text,
    Type: _type,
    type(None): _null,
    list: _listed,
    values.MutableList: _listed,
    dict: _mapped,
    values.MutableMap: _mapped,
    values.DomainMap: _mapped,
    values.TextMap: _mapped,
}


def _type_name(value: Value) -> str:
    return values.type_of(value).name


def _refused(reason: str) -> CelError:
    return CelError(f"error during formatting: {reason}")


OVERLOADS: tuple[Overload, ...] = (
    member("format", "string_format", "string, list(dyn) -> string", format_text),
)
