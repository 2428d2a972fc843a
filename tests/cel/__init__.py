"""What the tests of expressions share: calling a library function by name, and values as CEL would write them."""

from __future__ import annotations

import math
from typing import Any

from dovetail.cel import library
from dovetail.cel.check import types
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import (
    CelError,
    Cidr,
    Duration,
    Ip,
    Optional,
    Timestamp,
    UInt,
    Url,
)
from dovetail.cel.library import kubernetes, network, times, urls
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

Case = tuple[str, tuple[Any, ...], Any]  # function, arguments with the receiver first, result


class Refused:
    """The result of a case that must be an error."""

    def __repr__(self) -> str:
        return "ERROR"


ERROR = Refused()
NONE = values.NONE
NAN = math.nan
INF = math.inf
u = UInt
some = Optional
span = times.parse_duration
moment = times.parse_timestamp
ip = network.parse_ip
cidr = network.parse_cidr
url = urls.parse
quantity = kubernetes.to_quantity
semver = kubernetes.to_semver


def listed(text: str, separator: str = "|") -> list[str]:
    """Texts to try, written on few lines."""
    return text.split(separator)


def overload_for(name: str, arguments: tuple[Any, ...]) -> Any:
    """The overload that takes these arguments; a test that names none is wrong."""
    overloads = [o for o in library.STORED.functions[name] if o.accepts(arguments)]
    assert overloads, f"no overload of {name} takes {arguments}"
    return overloads[0]


def call(name: str, *arguments: Any) -> Any:
    """The result of a library function, or ERROR."""
    try:
        return overload_for(name, arguments).implementation(*arguments)
    except CelError:
        return ERROR


def assert_same(result: Any, expected: Any) -> None:
    """Same type and same value; NaN is NaN."""
    if expected is ERROR or result is ERROR:
        assert result is expected
        return
    assert values.type_of(result) == values.type_of(expected)
    if isinstance(expected, list):
        assert len(result) == len(expected)
        for item, other in zip(result, expected, strict=True):
            assert_same(item, other)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(result)
    elif isinstance(expected, Optional):
        assert result.has_value == expected.has_value
        if expected.has_value:
            assert_same(result.value, expected.value)
    else:
        assert values.equal(result, expected) is True


def written(name: str, arguments: tuple[Any, ...]) -> str:
    """The call as CEL source."""
    texts = [literal(argument) for argument in arguments]
    if any(o.is_member for o in library.STORED.functions[name] if o.accepts(arguments)):
        return f"{texts[0]}.{name}({', '.join(texts[1:])})"
    return f"{name}({', '.join(texts)})"


def literal(value: Any) -> str:
    """A value as CEL source; what has no literal of its own is hidden from the checker by dyn()."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case UInt():
            return f"{int(value)}u"
        case int():
            return str(value) if value > values.INT_MIN else f"({value + 1} - 1)"
        case float():
            return repr(value) if math.isfinite(value) else f'double("{value}")'
        case str():
            return text_literal(value)
        case bytes():
            return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
        case list():
            return f"[{', '.join(_element(element) for element in value)}]"
        case dict():
            entries = ((values.key_value(key), entry) for key, entry in value.items())
            return (
                f"{{{', '.join(f'{_element(key)}: {_element(entry)}' for key, entry in entries)}}}"
            )
        case _:
            return _opaque_literal(value)


def text_literal(text: str) -> str:
    """A string in double quotes with everything unusual escaped."""
    escaped = (
        c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}"
        for c in text
    )
    return f'"{"".join(escaped)}"'


def _opaque_literal(value: Any) -> str:
    match value:
        case Duration():
            return f'duration("{value.nanos}ns")'
        case Timestamp():
            text = times.timestamp_text(value.nanos, value.offset_seconds)
            return f'timestamp("{text.replace("+25:00", "+24:60")}")'  # upstream prints an offset it does not read
        case Optional():
            return f"optional.of({literal(value.value)})" if value.has_value else "optional.none()"
        case Quantity():
            return f'quantity("{value}")'
        case Semver():
            return f'semver("{value}")'
        case Ip():
            return f'ip("{network.ip_text(value)}")'
        case Cidr():
            return f'cidr("{network.cidr_text(value)}")'
        case Url():
            return f"url({text_literal(value.text)})"
        case types.Type():
            return value.name
        case _:
            raise AssertionError(f"no literal for {value!r}")


def _element(value: Any) -> str:
    return f"dyn({literal(value)})"
