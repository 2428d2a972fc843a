"""Conversions between types: which texts are numbers, how numbers are written. Upstream gave every value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cel import ERROR, INF, NAN, Case, assert_same, call, listed, u

CASES: list[Case] = [
    ("int", ("0",), 0),
    ("int", ("+1",), 1),
    ("int", ("+",), ERROR),
    ("int", ("0x10",), ERROR),
    ("int", ("9223372036854775808",), ERROR),
    ("int", ("١",), ERROR),
    ("int", ("18446744073709551616",), ERROR),
    ("int", ("1 ",), ERROR),
    ("int", (-1.9,), -1),
    ("int", (9.223372036854776e18,), ERROR),
    ("int", (-9.223372036854775e18,), -9223372036854774784),
    ("int", (1e30,), ERROR),
    ("int", (-0.5,), 0),
    ("int", (1,), 1),
    ("int", (-9223372036854775808,), -9223372036854775808),
    ("int", (u(1),), 1),
    ("uint", ("0",), u(0)),
    ("uint", ("+1",), ERROR),
    ("uint", ("+",), ERROR),
    ("uint", ("0x10",), ERROR),
    ("uint", ("9223372036854775808",), u(9223372036854775808)),
    ("uint", ("١",), ERROR),
    ("uint", ("18446744073709551616",), ERROR),
    ("uint", ("1 ",), ERROR),
    ("uint", (-1.9,), ERROR),
    ("uint", (9.223372036854776e18,), u(9223372036854775808)),
    ("uint", (-9.223372036854775e18,), ERROR),
    ("uint", (1e30,), ERROR),
    ("uint", (-0.5,), ERROR),
    ("uint", (1,), u(1)),
    ("uint", (-9223372036854775808,), ERROR),
    ("uint", (u(1),), u(1)),
    ("double", ("0",), 0.0),
    ("double", (".5",), 0.5),
    ("double", ("inf",), INF),
    ("double", ("nan",), NAN),
    ("double", ("1_",), ERROR),
    ("double", ("0x1.8p1",), 3.0),
    ("double", ("0x1_fp0",), 31.0),
    ("double", ("4.9e-324",), 5e-324),
    ("double", ("0x0p99999",), 0.0),
    ("double", ("123456789012345678901234567890",), 1.2345678901234568e29),
    ("double", (0.0,), 0.0),
    ("double", (100000.0,), 100000.0),
    ("double", (1e22,), 1e22),
    ("double", (3.141592653589793,), 3.141592653589793),
    ("double", (2.5e-08,), 2.5e-08),
    ("double", (-9223372036854775808,), -9.223372036854776e18),
    ("bool", ("1",), True),
    ("bool", ("t",), True),
    ("bool", ("T",), True),
    ("bool", ("true",), True),
    ("bool", ("True",), True),
    ("bool", ("0",), False),
    ("bool", ("f",), False),
    ("bool", ("F",), False),
    ("bool", ("FALSE",), False),
    ("bool", ("False",), False),
    ("bool", ("tRUE",), ERROR),
    ("bool", ("yes",), ERROR),
    ("bool", ("2",), ERROR),
    ("bool", ("",), ERROR),
    ("bool", (" true",), ERROR),
    ("bool", (True,), True),
    ("string", (True,), "true"),
    ("string", (-0.0,), "-0"),
    ("string", (1.5,), "1.5"),
    ("string", (1000000.0,), "1e+06"),
    ("string", (1e20,), "1e+20"),
    ("string", (1.5e300,), "1.5e+300"),
    ("string", (1.7976931348623157e308,), "1.7976931348623157e+308"),
    ("string", (0.3,), "0.3"),
    ("string", (-INF,), "-Inf"),
    ("string", (100.25,), "100.25"),
    ("string", (1,), "1"),
    ("string", (9007199254740993,), "9007199254740993"),
    ("string", (u(9223372036854775808),), "9223372036854775808"),
    ("string", (b"",), ""),
    ("string", (b"\xed\xa0\x80",), ERROR),
    ("string", ("",), ""),
    ("bytes", (b"",), b""),
    ("bytes", (b"abc",), b"abc"),
    ("bytes", (b"\xc3\xa9",), b"\xc3\xa9"),
    ("bytes", (b"\xff",), b"\xff"),
    ("bytes", (b"\xed\xa0\x80",), b"\xed\xa0\x80"),
    ("bytes", (b"\xf0\x9f\x98\x80",), b"\xf0\x9f\x98\x80"),
    ("bytes", (b"\xc0\x80",), b"\xc0\x80"),
    ("bytes", ("",), b""),
    ("bytes", ("abc",), b"abc"),
    ("bytes", ("é😀",), b"\xc3\xa9\xf0\x9f\x98\x80"),
    ("bytes", ("\x00",), b"\x00"),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_conversion_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_a_text_of_a_million_digits_is_refused_at_once() -> None:
    assert call("int", "1" * 1_000_000) is ERROR
    assert call("double", "1" * 1_000_000) is ERROR
    assert call("int", "0" * 1_000_000 + "7") == 7


INTEGERS = listed(
    "0 1 -1 +1 007 -0 + - 1_000 0x10 1e3 1.0 9223372036854775807 9223372036854775808 -9223372036854775808 "
    "-9223372036854775809 \u0661 00000000000000000000000000000000000000005 18446744073709551615 18446744073709551616",
    " ",
)
DOUBLES = listed(
    "0 -0 1 +1.5 1. . .5 -.5e-3 1e5 1E+5 1e 1e+ e5 inf Inf +inf -INF infinity -Infinity infin nan NaN +NaN -nan "
    "1_000 1__0 _1 1_ 1_.5 1._5 1e1_0 1e_5 0x1p3 0X1P-3 0x1.8p1 0x.8p1 0x1 0xp1 0x1p 0x_1p3 0x1_fp0 0x1p1_0 1p3 "
    "1e308 1e309 -1e309 1e-400 4.9e-324 2.4e-324 0x1p1023 0x1p1024 0x1.fffffffffffff8p1023 0x1p-1074 0x1p-1075 "
    "0x0p99999 0b1 0o7 1f 1d \u0661 0.1 123456789012345678901234567890 0x1.0000000000000800000000000001p0 "
    "\u0131nf 1,5",
    " ",
)
BOOLS = listed("1 t T true TRUE True 0 f F false FALSE False tRUE yes on 2", " ")
WRITTEN = (
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        0.1,
        100000.0,
        999999.0,
        1000000.0,
        1234567.0,
        123456789.0,
        1e20,
        1e21,
        1e22,
    ),
    *(
        1.5e300,
        0.0001,
        0.00001,
        0.00012345,
        1e-5,
        1.7976931348623157e308,
        5e-324,
        3.141592653589793,
        0.3,
        123456.7,
    ),
    *(12345678.9, INF, -INF, NAN, 2.5e-8, 100.25, 1e100),
)
CUT = (
    *(
        0.0,
        -0.0,
        1.9,
        -1.9,
        0.5,
        9.223372036854775e18,
        9223372036854775807.0,
        -9223372036854775808.0,
    ),
    *(
        -9.223372036854777e18,
        -9.223372036854775e18,
        1.8446744073709552e19,
        1.844674407370955e19,
        1e30,
    ),
    *(INF, -INF, NAN, -0.5, 4294967296.5),
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text in (*INTEGERS, "", " 1", "1 "):
        yield "int", text
        yield "uint", text
    for text in (*DOUBLES, "", " 1", "1 "):
        yield "double", text
    for text in (*BOOLS, "", " true"):
        yield "bool", text
    for name in ("bool", "string"):
        yield name, True
        yield name, False
    for number in WRITTEN:
        yield "string", number
        yield "double", number
    for number in CUT:
        yield "int", number
        yield "uint", number
    for name in ("int", "uint", "double", "string"):
        for whole in (0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1):
            yield name, whole
        for whole in (0, 1, 2**63, 2**64 - 1, 2**53 + 1):
            yield name, u(whole)
    for data in (
        b"",
        b"abc",
        b"\xc3\xa9",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98\x80",
        b"\xc0\x80",
    ):
        yield "string", data
        yield "bytes", data
    for text in ("", "abc", "é\U0001f600", "\x00"):
        yield "bytes", text
        yield "string", text
