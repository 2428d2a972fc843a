"""Values at run time: which Python value stands for which CEL value, their types, equality and order.

bool, int, float, str, bytes and None stand for themselves; UInt is an unsigned integer; lists are Python lists
(never changed once built); maps are dicts whose keys went through `map_key`; Quantity and Semver come from model.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.cel.check import types
from dovetail.cel.check.types import Kind, Type
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

Value = Any  # a CEL value; its Python class decides its CEL type

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class CelError(Exception):
    """An evaluation error: a value in CEL's eyes, absorbed by && and || when the other side decides."""


class Panic(Exception):
    """Upstream's engine breaks down here. The whole evaluation ends in error; no && or || absorbs it."""


def no_such_overload() -> CelError:
    """The error of an operation on values it is not defined for."""
    return CelError("no such overload")


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Duration:
    """A span of time in nanoseconds, within int64."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))


class Timestamp:
    """A moment in nanoseconds since 1970-01-01T00:00:00Z, between the years 1 and 9999, and how it was written."""

    __slots__ = ("nanos", "offset_seconds")

    def __init__(self, nanos: int, offset_seconds: int = 0) -> None:
        self.nanos = nanos
        self.offset_seconds = (
            offset_seconds  # east of UTC; shows in text, does not count in comparison
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


_NOTHING: Final = object()


class Optional:
    """A value that may be absent."""

    __slots__ = ("_value",)

    def __init__(self, value: Value = _NOTHING) -> None:
        self._value = value

    @property
    def has_value(self) -> bool:
        """Whether there is a value inside."""
        return self._value is not _NOTHING

    @property
    def value(self) -> Value:
        """The value inside; an error when there is none."""
        if self._value is _NOTHING:
            raise CelError("optional.none() dereference")
        return self._value


NONE: Final = Optional()


class MutableList(list[Value]):
    """A list under construction by a comprehension; `+` extends it in place, as upstream's does."""

    __slots__ = ()


class MutableMap(dict[Any, Value]):
    """A map under construction by a comprehension; inserting changes it in place."""

    __slots__ = ()


class TextMap(dict[str, Value]):
    """A map of a device: its keys are text, and a key of another type is never found."""

    __slots__ = ()


class DomainMap(TextMap):
    """Attributes or capacities by domain. Looking up an unknown domain yields an empty map, never an error."""

    __slots__ = ()


class Key:
    """Stands for a bool or double key in a dict, so that `true` and `1`, or `1.0` and `1`, stay apart."""

    __slots__ = ("value",)

    def __init__(self, value: bool | float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.value.__class__ is other.value.__class__
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.value.__class__, self.value))


class Identity:
    """Stands for a key that upstream compares by memory address: a list, map, quantity or URL."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Zoned(Identity):
    """Stands for a timestamp key in a shared zone: the moment and the zone count."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Zoned) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[int, int]:
        return self.value.nanos, self.value.offset_seconds


class Sum(Quantity):
    """A quantity made by add or sub. Upstream's equality refuses one on its right side, and only there."""

    __slots__ = ()

    @classmethod
    def of(cls, amount: Quantity) -> Sum:
        """The same amount, marked."""
        return cls(
            amount.nanos,
            amount.format,
            exponent=amount.exponent,
            is_big=amount.is_big,
            written=amount.written,
        )


class Empty:
    """The message without fields; any two are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empty)

    def __hash__(self) -> int:
        return 0


UNKNOWN_DOMAIN: Final = TextMap()  # one for all, as upstream has it


class Url:
    """A parsed URL; `text` is its normal form, equality is by text."""

    __slots__ = ("escaped_path", "host", "hostname", "port", "query", "scheme", "text")

    def __init__(
        self,
        *,
        text: str,
        scheme: str,
        host: str,
        hostname: str,
        port: str,
        escaped_path: str,
        query: dict[str, list[str]],
    ) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.hostname = hostname
        self.port = port
        self.escaped_path = escaped_path
        self.query = query


class Ip:
    """An IP address: 4 or 16 bytes."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(("ip", self.packed))


class Cidr:
    """An address and a prefix length; the address keeps its host bits."""

    __slots__ = ("packed", "prefix_length")

    def __init__(self, packed: bytes, prefix_length: int) -> None:
        self.packed = packed
        self.prefix_length = prefix_length

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Cidr)
            and self.packed == other.packed
            and self.prefix_length == other.prefix_length
        )

    def __hash__(self) -> int:
        return hash(("cidr", self.packed, self.prefix_length))


class Format:
    """A named string format; `problems(text)` lists what is wrong, `regex_size` is what a check costs."""

    __slots__ = ("name", "problems", "regex_size")

    def __init__(self, name: str, problems: Any, regex_size: int) -> None:
        self.name = name
        self.problems = problems
        self.regex_size = regex_size


TYPE_OF_CLASS: Final[dict[type, types.Type]] = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
    list: types.list_of(types.DYN),
    MutableList: types.list_of(types.DYN),
    dict: types.map_of(types.DYN, types.DYN),
    MutableMap: types.map_of(types.DYN, types.DYN),
    DomainMap: types.map_of(types.DYN, types.DYN),
    TextMap: types.map_of(types.DYN, types.DYN),
    Empty: Type(Kind.STRUCT, "google.protobuf.Empty"),
    Duration: types.DURATION,
    Timestamp: types.TIMESTAMP,
    Optional: types.optional_of(types.DYN),
    Quantity: types.QUANTITY,
    Sum: types.QUANTITY,
    Semver: types.SEMVER,
    Url: types.URL,
    Ip: types.IP,
    Cidr: types.CIDR,
    Format: types.FORMAT,
    types.Type: types.TYPE,
}
NUMBERS: Final = frozenset((int, UInt, float))


def type_of(value: Value) -> types.Type:
    """The run-time type of a value."""
    return TYPE_OF_CLASS[value.__class__]


def map_key(key: Value) -> Any:
    """The dict key that stands for a CEL map key. Upstream panics on keys its maps cannot hash."""
    kind = key.__class__
    if kind is str or kind is int or kind is UInt:
        return key
    if kind is bool or kind is float:
        return Key(key)
    if kind is bytes or kind is Semver or kind is Format:
        raise Panic(f"a {type_of(key)} cannot be a map key")
    if isinstance(key, list | dict | Quantity | Url) or (kind is Optional and key.has_value):
        return Identity(key)
    if kind is Timestamp and key.offset_seconds:
        # Upstream shares one zone for each whole hour from -12 to +14 and makes a new one for any other offset.
        hours, remainder = divmod(key.offset_seconds, 3600)
        return Zoned(key) if remainder == 0 and -12 <= hours <= 14 else Identity(key)
    return key


def key_value(key: Any) -> Value:
    """The CEL value of a dict key."""
    return key.value if isinstance(key, Key | Identity) else key


def find(entries: dict[Any, Value], key: Value) -> tuple[bool, Value]:
    """Whether a map holds the key, and what is there. Numbers find numbers of other types when nothing is lost."""
    if key.__class__ is str:
        return (True, entries[key]) if key in entries else (False, None)
    if not entries or isinstance(entries, TextMap):
        return False, None
    wrapped = map_key(key)
    if wrapped in entries:
        return True, entries[wrapped]
    if key.__class__ is float and key.is_integer() and int(key) in entries:
        return True, entries[int(key)]
    return False, None


def equal(left: Value, right: Value) -> bool | None:
    """CEL equality. None where the left value's type refuses the right one: "no such overload" upstream."""
    kind = left.__class__
    right_kind = right.__class__
    if left is None or right is None:
        return left is right
    if kind is right_kind and kind in _PLAIN:
        return bool(left == right)
    if kind in NUMBERS:
        return (
            right_kind in NUMBERS
            and left == left
            and right == right
            and _order_numbers(left, right) == 0
        )
    return _equal_compound(left, right)


_PLAIN: Final = frozenset((str, bool, bytes, int, UInt, float, Duration, Timestamp))


def _equal_compound(left: Value, right: Value) -> bool | None:
    match left:
        case list():
            return _equal_lists(left, right)
        case dict():
            return _equal_maps(left, right)
        case Optional():
            return _equal_optionals(left, right)
        case Empty():
            return isinstance(right, Empty)
        case types.Type():
            return isinstance(right, types.Type) and left.name == right.name
        case Quantity():
            return left == right if right.__class__ is Quantity else None
        case Semver():
            return left == right if right.__class__ is Semver else None
        case Url():
            return left.text == right.text if isinstance(right, Url) else None
        case Ip():
            return left == right if isinstance(right, Ip) else None
        case Cidr():
            return left == right if isinstance(right, Cidr) else None
        case Format():
            return left.name == right.name if isinstance(right, Format) else None
        case _:
            return False


def _equal_lists(left: list[Value], right: Value) -> bool:
    # An element that refuses comparison does not make lists differ: upstream only looks for a plain "false".
    if not isinstance(right, list) or len(left) != len(right):
        return False
    return all(equal(a, b) is not False for a, b in zip(left, right, strict=True))


def _equal_maps(left: dict[Any, Value], right: Value) -> bool:
    if not isinstance(right, dict) or len(left) != len(right):
        return False
    for key, value in left.items():
        is_present, right_value = find(right, key_value(key))
        if not is_present and not isinstance(right, DomainMap):
            return False
        if equal(value, right_value if is_present else UNKNOWN_DOMAIN) is False:
            return False
    return True


def _equal_optionals(left: Optional, right: Value) -> bool | None:
    if not isinstance(right, Optional):
        return False
    if not (left.has_value and right.has_value):
        return left.has_value == right.has_value
    return equal(left.value, right.value)


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; raises where no order is defined between the two."""
    kind, right_kind = left.__class__, right.__class__
    if kind in NUMBERS:
        if right_kind not in NUMBERS:
            raise no_such_overload()
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        return _order_numbers(left, right)
    elif kind is not right_kind or kind not in _ORDERED:
        raise no_such_overload()
    if kind is Duration or kind is Timestamp:
        left, right = left.nanos, right.nanos
    return int(left > right) - int(left < right)


_ORDERED: Final = frozenset((bool, str, bytes, Duration, Timestamp))


def _order_numbers(left: Any, right: Any) -> int:
    """Order of two numbers, neither NaN. An integer meets a double as a double, as upstream rounds it."""
    if left.__class__ is float and right.__class__ is not float:
        return -_order_numbers(right, left)
    if right.__class__ is float and left.__class__ is not float:
        low, high = (
            (0.0, float(UINT_MAX)) if left.__class__ is UInt else (float(INT_MIN), float(INT_MAX))
        )
        if right < low:
            return 1
        if right > high:
            return -1
        left = float(left)
    return int(left > right) - int(left < right)


def size(value: Value) -> int:
    """What a value weighs in cost arithmetic: characters, bytes, entries; 1 for everything else."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    if isinstance(value, Ip):
        return len(value.packed)
    if isinstance(value, Cidr):
        return -(-value.prefix_length // 8)
    if isinstance(value, Optional) and value.has_value:
        return size(value.value)
    return 1
