"""What the operators do: declarations for the checker and arithmetic for the planner. Integers never wrap."""

from __future__ import annotations

import math
from typing import Final

from dovetail.cel.check.declarations import Library, Overload, function
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelError,
    Duration,
    MutableList,
    Panic,
    Timestamp,
    UInt,
    Value,
    no_such_overload,
)

TIMESTAMP_MIN: Final = -62135596800 * 10**9  # 0001-01-01T00:00:00Z
TIMESTAMP_MAX: Final = 253402300799 * 10**9 + 999_999_999  # 9999-12-31T23:59:59.999999999Z
MAX_LIST: Final = 1_000_000  # no selector within the cost limit needs longer lists
MAX_TEXT: Final = 16 * 2**20


def add(left: Value, right: Value) -> Value:
    """`+`: numbers, text, bytes, lists, times."""
    kind, right_kind = left.__class__, right.__class__
    if kind is int and right_kind is int:
        return _int(left + right)
    if kind is UInt and right_kind is UInt:
        return _uint(int(left) + int(right))
    if kind is right_kind and (kind is float or kind is str or kind is bytes):
        if kind is not float and len(left) + len(right) > MAX_TEXT:
            raise Panic(f"text longer than {MAX_TEXT} characters")
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return _concatenated(left, right)
    if kind is Duration and right_kind is Duration:
        return _duration(left.nanos + right.nanos)
    if (kind is Duration and right_kind is Timestamp) or (
        kind is Timestamp and right_kind is Duration
    ):
        offset = (left if kind is Timestamp else right).offset_seconds
        return timestamp(left.nanos + right.nanos, offset)
    raise no_such_overload()


def subtract(left: Value, right: Value) -> Value:
    """`-`: numbers and times."""
    kind, right_kind = left.__class__, right.__class__
    if kind is int and right_kind is int:
        return _int(left - right)
    if kind is UInt and right_kind is UInt:
        return _uint(int(left) - int(right))
    if kind is float and right_kind is float:
        return left - right
    if kind is right_kind and (kind is Duration or kind is Timestamp):
        return _duration(left.nanos - right.nanos)
    if kind is Timestamp and right_kind is Duration:
        return timestamp(left.nanos - right.nanos, left.offset_seconds)
    raise no_such_overload()


def multiply(left: Value, right: Value) -> Value:
    """`*`: numbers."""
    kind = left.__class__
    if kind is right.__class__:
        if kind is int:
            return _int(left * right)
        if kind is UInt:
            return _uint(int(left) * int(right))
        if kind is float:
            return left * right
    raise no_such_overload()


def divide(left: Value, right: Value) -> Value:
    """`/`: integers towards zero, doubles as IEEE 754 says."""
    kind = left.__class__
    if kind is not right.__class__:
        raise no_such_overload()
    if kind is float:
        return _divide_doubles(left, right)
    if kind is not int and kind is not UInt:
        raise no_such_overload()
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    if kind is UInt:
        return UInt(quotient)
    return _int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo(left: Value, right: Value) -> Value:
    """`%`: integers, with the sign of the left."""
    kind = left.__class__
    if kind is not right.__class__ or (kind is not int and kind is not UInt):
        raise no_such_overload()
    if right == 0:
        raise CelError("modulus by zero")
    if kind is int and left == INT_MIN and right == -1:
        raise CelError("integer overflow")
    remainder = abs(left) % abs(right)
    return UInt(remainder) if kind is UInt else (-remainder if left < 0 else remainder)


def negate(value: Value) -> Value:
    """Unary `-`."""
    if value.__class__ is int:
        return _int(-value)
    if value.__class__ is float:
        return -value
    if value.__class__ is Duration:
        return _duration(-value.nanos)
    raise no_such_overload()


def logical_not(value: Value) -> Value:
    """`!`."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload()


def contained(element: Value, container: Value) -> bool:
    """`in`: an element of a list or a key of a map."""
    if isinstance(container, list):
        return any(values.equal(element, item) is True for item in container)
    if isinstance(container, dict):
        return values.find(container, element)[0]
    raise no_such_overload()


def less(left: Value, right: Value) -> bool:
    """`<`."""
    return values.compare(left, right) < 0


def less_equal(left: Value, right: Value) -> bool:
    """`<=`."""
    return values.compare(left, right) <= 0


def greater(left: Value, right: Value) -> bool:
    """`>`."""
    return values.compare(left, right) > 0


def greater_equal(left: Value, right: Value) -> bool:
    """`>=`."""
    return values.compare(left, right) >= 0


def equals(left: Value, right: Value) -> bool:
    """`==`; an error where the types refuse each other."""
    same = values.equal(left, right)
    if same is None:
        raise no_such_overload()
    return same


def differs(left: Value, right: Value) -> bool:
    """`!=`; refusing each other counts as different."""
    return values.equal(left, right) is not True


def timestamp(nanos: int, offset_seconds: int = 0) -> Timestamp:
    """A moment within the years 1 to 9999."""
    if not TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(nanos, offset_seconds)


BINARY: Final = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "_<_": less,
    "_<=_": less_equal,
    "_>_": greater,
    "_>=_": greater_equal,
    "_==_": equals,
    "_!=_": differs,
    "@in": contained,
}
UNARY: Final = {"-_": negate, "!_": logical_not}


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _uint(value: int) -> UInt:
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def _duration(nanos: int) -> Duration:
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise CelError("integer overflow")


def _divide_doubles(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _concatenated(left: list[Value], right: list[Value]) -> list[Value]:
    if len(left) + len(right) > MAX_LIST:
        raise Panic(f"list longer than {MAX_LIST} elements")
    if left.__class__ is MutableList:
        left.extend(right)
        return left
    return [*left, *right]


def _declared() -> list[Overload]:
    overloads: list[Overload] = []

    def declare(name: str, prefix: str, kinds: str, result: str) -> None:
        for kind in kinds.split():
            label, _, signature = kind.partition("=")
            args = signature.replace("+", ", ") or f"{label}, {label}"
            overloads.append(
                function(name, f"{prefix}_{label}", f"{args} -> {result or args.split(',')[0]}")
            )

    declare("_+_", "add", "bytes double duration_duration=duration+duration", "")
    overloads.append(function("_+_", "add_duration_timestamp", "duration, timestamp -> timestamp"))
    overloads.append(function("_+_", "add_timestamp_duration", "timestamp, duration -> timestamp"))
    declare("_+_", "add", "int64=int+int list=list(<A>)+list(<A>) string uint64=uint+uint", "")
    declare("_-_", "subtract", "double duration_duration=duration+duration int64=int+int", "")
    overloads.append(
        function("_-_", "subtract_timestamp_duration", "timestamp, duration -> timestamp")
    )
    overloads.append(
        function("_-_", "subtract_timestamp_timestamp", "timestamp, timestamp -> duration")
    )
    declare("_-_", "subtract", "uint64=uint+uint", "")
    for name, prefix in (("_*_", "multiply"), ("_/_", "divide")):
        declare(name, prefix, "double int64=int+int uint64=uint+uint", "")
    declare("_%_", "modulo", "int64=int+int uint64=uint+uint", "")
    comparable = (
        "bool int64=int+int int64_double=int+double int64_uint64=int+uint uint64=uint+uint "
        "uint64_double=uint+double uint64_int64=uint+int double double_int64=double+int "
        "double_uint64=double+uint string bytes timestamp duration"
    )
    for name, prefix in (
        ("_<_", "less"),
        ("_<=_", "less_equals"),
        ("_>_", "greater"),
        ("_>=_", "greater_equals"),
    ):
        declare(name, prefix, comparable, "bool")
    overloads.extend(
        (
            function("_==_", "equals", "<A>, <A> -> bool"),
            function("_!=_", "not_equals", "<A>, <A> -> bool"),
            function("_&&_", "logical_and", "bool, bool -> bool"),
            function("_||_", "logical_or", "bool, bool -> bool"),
            function("!_", "logical_not", "bool -> bool"),
            function("-_", "negate_double", "double -> double"),
            function("-_", "negate_int64", "int -> int"),
            function("@not_strictly_false", "not_strictly_false", "bool -> bool"),
            function("_?_:_", "conditional", "bool, <A>, <A> -> <A>"),
            function("@in", "in_list", "<A>, list(<A>) -> bool"),
            function("@in", "in_map", "<A>, map(<A>, <B>) -> bool"),
            function("_[_]", "index_list", "list(<A>), int -> <A>"),
            function("_[_]", "index_map", "map(<A>, <B>), <A> -> <B>"),
            function(
                "_[_]", "optional_list_index_int", "optional(list(<V>)), int -> optional(<V>)"
            ),
            function(
                "_[_]", "optional_map_index_value", "optional(map(<K>, <V>)), <K> -> optional(<V>)"
            ),
            function("_[?_]", "list_optindex_optional_int", "list(<V>), int -> optional(<V>)"),
            function(
                "_[?_]",
                "optional_list_optindex_optional_int",
                "optional(list(<V>)), int -> optional(<V>)",
            ),
            function("_[?_]", "map_optindex_optional_value", "map(<K>, <V>), <K> -> optional(<V>)"),
            function(
                "_[?_]",
                "optional_map_optindex_optional_value",
                "optional(map(<K>, <V>)), <K> -> optional(<V>)",
            ),
        )
    )
    return overloads


LIBRARY: Final = Library(_declared())
