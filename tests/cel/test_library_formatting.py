"""`format`: verbs, precisions, nested values, errors. Upstream gave every expected text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel.check import types
from dovetail.cel.library import formatting, size_limits
from tests.cel import (
    ERROR,
    INF,
    NAN,
    NONE,
    Case,
    assert_same,
    call,
    cidr,
    ip,
    listed,
    moment,
    quantity,
    semver,
    some,
    span,
    u,
    url,
)

CASES: list[Case] = [
    ("format", ("", []), ""),
    ("format", ("%.f", []), ERROR),
    ("format", ("%d%", [1]), ERROR),
    ("format", ("%s", [u(0)]), "0"),
    ("format", ("%s", ["Inf"]), "Inf"),
    ("format", ("%s", [[1]]), "[1]"),
    ("format", ("%s", [[[1, [2, []]], {}]]), "[[1, [2, []]], {}]"),
    ("format", ("%s", [span("5400000000000ns")]), "5400s"),
    ("format", ("%s", [NONE]), ERROR),
    ("format", ("%d", [0]), "0"),
    ("format", ("%d", [u(255)]), "255"),
    ("format", ("%d", ["1.5"]), ERROR),
    ("format", ("%d", [[1, -2, 3]]), ERROR),
    ("format", ("%d", [[{"a": [1]}]]), ERROR),
    ("format", ("%d", [span("-1500000000ns")]), ERROR),
    ("format", ("%d", [ip("1.2.3.4")]), ERROR),
    ("format", ("%f", [1]), ERROR),
    ("format", ("%f", [u(18446744073709551615)]), ERROR),
    ("format", ("%f", [""]), ERROR),
    ("format", ("%f", [[u(1)]]), ERROR),
    ("format", ("%f", [{}]), ERROR),
    ("format", ("%f", [span("1ns")]), ERROR),
    ("format", ("%f", [semver("1.2.3")]), ERROR),
    ("format", ("%e", [-1]), ERROR),
    ("format", ("%e", [True]), ERROR),
    ("format", ("%e", ["héllo"]), ERROR),
    ("format", ("%e", [[INF, -INF, NAN]]), ERROR),
    ("format", ("%e", [{"a": b"\xff"}]), ERROR),
    ("format", ("%e", [span("9223369200000000000ns")]), ERROR),
    ("format", ("%e", [cidr("10.0.0.0/8")]), ERROR),
    ("format", ("%b", [10]), "1010"),
    ("format", ("%b", [False]), "0"),
    ("format", ("%b", ["\x00\x7f\U0001f600"]), ERROR),
    ("format", ("%b", [["a", "b"]]), ERROR),
    ("format", ("%b", [{"b": 1, "a": 2, "é": 3}]), ERROR),
    ("format", ("%b", [moment("2020-01-01T00:00:00Z")]), ERROR),
    ("format", ("%b", [url("http://a/b")]), ERROR),
    ("format", ("%x", [-10]), "-a"),
    ("format", ("%x", [None]), ERROR),
    ("format", ("%x", [b""]), ""),
    ("format", ("%x", [[b"\xff"]]), ERROR),
    ("format", ("%x", [{1: "x", 2: "y", 10: "z"}]), ERROR),
    ("format", ("%x", [moment("2020-06-15T12:30:45.678Z")]), ERROR),
    ("format", ("%x", [types.parse("int")]), ERROR),
    ("format", ("%X", [255]), "FF"),
    ("format", ("%X", ["NaN"]), "4E614E"),
    ("format", ("%X", [b"ab\xff"]), "6162FF"),
    (
        "format",
        (
            "%X",
            [
                [
                    'q"\\',
                    "\n\t\x00\x7f\xad\u200b\u2028\U000e0001\ufeff\xa0\u3000\U0001f600\u0378\ue000",
                    "é́",
                ]
            ],
        ),
        ERROR,
    ),
    ("format", ("%X", [{u(3): 1, u(20): 2}]), ERROR),
    ("format", ("%X", [moment("0001-01-01T00:00:00Z")]), ERROR),
    ("format", ("%X", [types.parse("null_type")]), ERROR),
    ("format", ("%o", [9223372036854775807]), "777777777777777777777"),
    ("format", ("%o", ["-Infinity"]), ERROR),
    ("format", ("%o", [b"\xc3\xa9"]), ERROR),
    ("format", ("%o", [[b"abc", b"\xc3\xa9", b'\n"']]), ERROR),
    ("format", ("%o", [{"a": {"b": {"c": [1.5]}}}]), ERROR),
    ("format", ("%o", [quantity("1")]), ERROR),
    ("format", ("%o", [types.parse("google.protobuf.Duration")]), ERROR),
    ("format", ("%s", [{"k": span("1ns")}]), '{"k":duration("0.000000001s")}'),
    ("format", ("%s", [{"k": quantity("1")}]), ERROR),
    ("format", ("%s", [[cidr("10.0.0.0/8")]]), ERROR),
    ("format", ("%s", [[types.parse("type")]]), "[type]"),
    ("format", ("%f", [1.5]), "1.500000"),
    ("format", ("%f", [1.5e-06]), "0.000002"),
    ("format", ("%f", [12345.0]), "12,345.000000"),
    ("format", ("%e", [0.125]), "1.250000×10⁻⁰¹"),
    ("format", ("%e", [5e-324]), "4.940656×10⁻³²⁴"),
    ("format", ("%e", [1.005]), "1.005000×10⁰⁰"),
    ("format", ("%e", [-999.0]), "-9.990000×10⁰²"),
    ("format", ("%s", [123.456]), "123.456"),
    ("format", ("%s", [1e-07]), "1e-07"),
    ("format", ("%s", [INF]), "+Inf"),
    ("format", ("%d", [0.0]), ERROR),
    ("format", ("%d", [1234.5678]), ERROR),
    ("format", ("%d", [0.1]), ERROR),
    ("format", ("%d", [-INF]), ERROR),
    ("format", ("%x", [-0.0]), ERROR),
    ("format", ("%x", [-1234567.891]), ERROR),
    ("format", ("%x", [0.3]), ERROR),
    ("format", ("%x", [1.2345678901234567e19]), ERROR),
    ("format", ("%.0f", [1.0]), "1"),
    ("format", ("%.0f", [1000000000000000.0]), "1,000,000,000,000,000"),
    ("format", ("%.0f", [999999.9999999]), "1,000,000"),
    ("format", ("%.0f", [9.9999995]), "10"),
    ("format", ("%.1f", [0.5]), "0.5"),
    ("format", ("%.1f", [1e21]), "1,000,000,000,000,000,000,000.0"),
    ("format", ("%.1f", [5e-07]), "0.0"),
    ("format", ("%.1f", [99999999.5]), "99,999,999.5"),
    ("format", ("%.2f", [1.5]), "1.50"),
    ("format", ("%.2f", [1e22]), "10,000,000,000,000,000,000,000.00"),
    ("format", ("%.2f", [1.5e-06]), "0.00"),
    ("format", ("%.2f", [12345.0]), "12,345.00"),
    ("format", ("%.3f", [2.5]), "2.500"),
    ("format", ("%.3f", [5e-324]), "0.000"),
    ("format", ("%.3f", [2.675]), "2.675"),
    ("format", ("%.3f", [-999.0]), "-999.000"),
    ("format", ("%.10f", [0.125]), "0.1250000000"),
    ("format", ("%.10f", [1e-07]), "0.0000001000"),
    ("format", ("%.10f", [INF]), "∞"),
    ("format", ("%.10f", [-1000.5]), "-1,000.5000000000"),
    ("format", ("%.3e", [1234.5678]), "1.234568×10⁰³"),
    ("format", ("%.3e", [-1e-07]), "-1.000000×10⁻⁰⁷"),
    ("format", ("%.3e", [-INF]), " -∞"),
    ("format", ("%.0e", [-0.0]), "0.000000×10⁰⁰"),
    ("format", ("%.0e", [1234567.891]), "1.234568×10⁰⁶"),
    ("format", ("%.0e", [0.3]), "3.000000×10⁻⁰¹"),
    ("format", ("%.0e", [NAN]), "NaN"),
    ("format", ("%.20e", [1.0]), "       1.000000×10⁰⁰"),
    ("format", ("%.20e", [-1234567.891]), "      -1.234568×10⁰⁶"),
    ("format", ("%.20e", [999999.9999999]), "       1.000000×10⁰⁶"),
    ("format", ("%.20e", [9.9999995]), "       9.999999×10⁰⁰"),
    ("format", ("%.256f", [-0.1]), "-0.1000000000000000055511151231257827021181583404541015625"),
    ("format", ("%.257f", [1234.5]), "1,234.5"),
    ("format", ("%.512f", [0.0]), "0"),
    ("format", ("%.1000f", [INF]), "∞"),
    ("format", ("%.65536f", [1234.5]), "1,234"),
    (
        "format",
        ("%.1000000f", [0.0]),
        "0.0000000000000000000000000000000000000000000000000000000000000000",
    ),
    ("format", ("%.10000009f", [INF]), "∞"),
    ("format", ("%.99999999f", [1e300]), "%!(NOVERB)"),
    ("format", ("%.9223372036854775808f", [2.5]), ERROR),
    ("format", ("%.0000003f", [1234.5]), "1,234.500"),
    ("format", ("%.10e", [0.0]), "0.000000×10⁰⁰"),
    ("format", ("%.13e", [INF]), "            ∞"),
    (
        "format",
        ("%.100e", [1e300]),
        "                                                                                      1.000000×10³⁰⁰",
    ),
    ("format", ("%.65550e", [2.5]), " 2.500000×10⁰⁰"),
    ("format", ("%.10000010e", [1234.5]), "%!(NOVERB)"),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_format_is_filled_in_as_upstream_does(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_arguments_left_over_are_ignored_when_the_text_runs() -> None:
    assert formatting.format_text("%d", [1, 2]) == "1"


def test_the_clauses_of_a_format_are_found() -> None:
    clause = formatting.Clause
    assert formatting.parse("%d of %.3f%%") == (clause("d"), " of ", clause("f", 3), "%")


def test_lists_of_lists_of_large_texts_stop_before_memory_does() -> None:
    doubled: list[Any] = ["x" * 1_000_000]
    for _ in range(30):
        doubled = [doubled, doubled]
    with pytest.raises(size_limits.TooLargeError):
        formatting.format_text("%s", [doubled])


BROKEN = listed("|plain|100%%|%%%%|%%d|%|a%|%.|%.3|%.f|%z|%5d|%-d|%+d|% d|%D|%é|é%dé|%d %d|%d%")
DOUBLES = (
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        0.125,
        123.456,
        1234.5678,
        1234567.891,
        -1234567.891,
        1e15,
        1e21,
        1e22,
    ),
    *(
        1.7976931348623157e308,
        5e-324,
        1e-7,
        -1e-7,
        0.1,
        0.3,
        999999.9999999,
        999.9999995,
        0.0000005,
        0.0000015,
    ),
    *(
        2.675,
        1.005,
        INF,
        -INF,
        NAN,
        12345678901234567890.0,
        9.9999995,
        99999999.5,
        1e3,
        12345.0,
        -999.0,
        -1000.5,
    ),
)
DOUBLE_FORMATS = listed("%f %e %s %d %x %.0f %.1f %.2f %.3f %.10f %.3e %.0e %.20e", " ")
PRECISIONS = listed(
    "%.100f %.255f %.256f %.257f %.300f %.512f %.1000f %.32767f %.32768f %.33000f %.65535f %.65536f %.65537f "
    "%.1000000f %.10000009f %.10000010f %.99999999f %.9223372036854775807f %.9223372036854775808f %.0000003f "
    "%.0000000000000000000000000003f %.10e %.13e %.14e %.100e %.65536e %.65550e %.10000010e %.007e",
    " ",
)
NESTED = (
    *(
        [],
        [1],
        [1, -2, 3],
        [u(1)],
        [1.0, 1.5, -0.0, 1e22, 1e-7, 0.1234565],
        [INF, -INF, NAN],
        ["a", "b"],
        [b"\xff"],
    ),
    [
        'q"\\',
        "\n\t\x00\x7f\xad\u200b\u2028\U000e0001\ufeff\xa0\u3000\U0001f600\u0378\ue000",
        "é\u0301",
    ],
    *(
        [b"abc", b"\xc3\xa9", b'\n"'],
        [True, False, None],
        [[1, [2, []]], {}],
        [{"a": [1]}],
        {},
        {"a": b"\xff"},
    ),
    *(
        {"b": 1, "a": 2, "é": 3},
        {1: "x", 2: "y", 10: "z"},
        {u(3): 1, u(20): 2},
        {"a": {"b": {"c": [1.5]}}},
    ),
    {"x": 'a"b', "\n": None},
)
TIMES = (
    *(span("0"), span("90m"), span("-1.5s"), span("1ns"), span("2562047h")),
    *(
        moment("2020-01-01T00:00:00Z"),
        moment("2020-06-15T12:30:45.678Z"),
        moment("0001-01-01T00:00:00Z"),
    ),
)
REFUSED = (
    *(
        quantity("1"),
        some(1),
        NONE,
        ip("1.2.3.4"),
        semver("1.2.3"),
        cidr("10.0.0.0/8"),
        url("http://a/b"),
    ),
    *(types.INT, types.NULL, types.DURATION, types.TYPE, types.parse("list(dyn)")),
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text, arguments in _texts():
        yield "format", text, arguments


def _texts() -> Iterator[tuple[str, list[Any]]]:
    for text in BROKEN:
        yield text, [1] if "%" in text.replace("%%", "") else []
    for verb in "sdfebxXo":
        for value in (
            0,
            1,
            -1,
            10,
            -10,
            255,
            2**63 - 1,
            -(2**63),
            u(0),
            u(255),
            u(2**64 - 1),
            True,
            False,
            None,
        ):
            yield f"%{verb}", [value]
        for value in (
            "NaN",
            "Infinity",
            "-Infinity",
            "+Infinity",
            "Inf",
            "1.5",
            "",
            "héllo",
            "\x00\x7f\U0001f600",
        ):
            yield f"%{verb}", [value]
        for value in (b"", b"ab\xff", b"\xc3\xa9", *NESTED, *TIMES, *REFUSED):
            yield f"%{verb}", [value]
    for value in (*TIMES, *REFUSED):
        yield "%s", [[value]]
        yield "%s", [{"k": value}]
    for text in DOUBLE_FORMATS:
        for number in DOUBLES:
            yield text, [number]
    for text in PRECISIONS:
        for number in (2.5, -0.1, 0.0, 1e300, 1234.5, INF):
            yield text, [number]
    yield "%s %d %f %e %b %o %x %X %%", ["s", 1, 1.5, 2.5, True, 8, 255, 255]
    yield "%.2s|%.3d|%.1x|%.9b|%.9o", ["abcdef", 7, 255, 5, 8]
