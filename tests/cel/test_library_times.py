"""Durations, timestamps and time zones. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel.evaluate.values import Duration
from dovetail.cel.library import times
from tests.cel import ERROR, Case, assert_same, call, listed, moment, span

CASES: list[Case] = [
    ("duration", ("0",), span("0ns")),
    ("duration", ("-1.5h",), span("-5400000000000ns")),
    ("duration", ("1d",), ERROR),
    ("duration", ("1 s",), ERROR),
    ("duration", ("-2562047h47m16.854775808s",), span("-9223372036854775808ns")),
    ("duration", ("0.3333333333333333333h",), span("1200000000000ns")),
    ("duration", ("1.23.4s",), ERROR),
    ("duration", ("1h0.000000001s",), span("3600000000001ns")),
    ("duration", (span("5000000000ns"),), span("5000000000ns")),
    ("duration", (span("123456789ns"),), span("123456789ns")),
    ("duration", (span("9223369199999999999ns"),), span("9223369199999999999ns")),
    ("getHours", (span("0ns"),), 0),
    ("getHours", (span("1500000ns"),), 0),
    ("getHours", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getHours", (moment("9999-12-31T23:59:59.999999999Z"), "Australia/Lord_Howe"), 10),
    ("getHours", (moment("0001-01-01T00:00:00Z"), "utc"), ERROR),
    ("getHours", (moment("2020-06-15T12:30:45.678Z"), "/etc/localtime"), ERROR),
    ("getHours", (moment("2050-07-01T00:00:00Z"), "2:0"), 2),
    ("getHours", (moment("2020-03-29T01:00:00Z"), "-02:+30"), 22),
    ("getHours", (moment("1850-01-01T00:00:00Z"), "02:00:00"), ERROR),
    ("getHours", (moment("9999-12-31T23:59:59.999999999Z"), "02:3x"), ERROR),
    ("getHours", (moment("0001-01-01T00:00:00Z"), "GMT"), 0),
    ("getMinutes", (span("0ns"),), 0),
    ("getMinutes", (span("1500000ns"),), 0),
    ("getMinutes", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getMinutes", (moment("9999-12-31T23:59:59.999999999Z"), "Australia/Lord_Howe"), 59),
    ("getMinutes", (moment("0001-01-01T00:00:00Z"), "utc"), ERROR),
    ("getMinutes", (moment("2020-06-15T12:30:45.678Z"), "/etc/localtime"), ERROR),
    ("getMinutes", (moment("2050-07-01T00:00:00Z"), "2:0"), 0),
    ("getMinutes", (moment("2020-03-29T01:00:00Z"), "-02:+30"), 30),
    ("getMinutes", (moment("1850-01-01T00:00:00Z"), "02:00:00"), ERROR),
    ("getMinutes", (moment("9999-12-31T23:59:59.999999999Z"), "02:3x"), ERROR),
    ("getMinutes", (moment("0001-01-01T00:00:00Z"), "GMT"), 0),
    ("getSeconds", (span("0ns"),), 0),
    ("getSeconds", (span("1500000ns"),), 0),
    ("getSeconds", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getSeconds", (moment("9999-12-31T23:59:59.999999999Z"), "Australia/Lord_Howe"), 59),
    ("getSeconds", (moment("0001-01-01T00:00:00Z"), "utc"), ERROR),
    ("getSeconds", (moment("2020-06-15T12:30:45.678Z"), "/etc/localtime"), ERROR),
    ("getSeconds", (moment("2050-07-01T00:00:00Z"), "2:0"), 0),
    ("getSeconds", (moment("2020-03-29T01:00:00Z"), "-02:+30"), 0),
    ("getSeconds", (moment("1850-01-01T00:00:00Z"), "02:00:00"), ERROR),
    ("getSeconds", (moment("9999-12-31T23:59:59.999999999Z"), "02:3x"), ERROR),
    ("getSeconds", (moment("0001-01-01T00:00:00Z"), "GMT"), 0),
    ("getMilliseconds", (span("0ns"),), 0),
    ("getMilliseconds", (span("1500000ns"),), 1),
    ("getMilliseconds", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getMilliseconds", (moment("9999-12-31T23:59:59.999999999Z"), "Australia/Lord_Howe"), 999),
    ("getMilliseconds", (moment("0001-01-01T00:00:00Z"), "utc"), ERROR),
    ("getMilliseconds", (moment("2020-06-15T12:30:45.678Z"), "/etc/localtime"), ERROR),
    ("getMilliseconds", (moment("2050-07-01T00:00:00Z"), "2:0"), 0),
    ("getMilliseconds", (moment("2020-03-29T01:00:00Z"), "-02:+30"), 0),
    ("getMilliseconds", (moment("1850-01-01T00:00:00Z"), "02:00:00"), ERROR),
    ("getMilliseconds", (moment("9999-12-31T23:59:59.999999999Z"), "02:3x"), ERROR),
    ("getMilliseconds", (moment("0001-01-01T00:00:00Z"), "GMT"), 0),
    ("string", (span("0ns"),), "0s"),
    ("string", (span("5400000000000ns"),), "5400s"),
    ("string", (span("1ns"),), "0.000000001s"),
    ("string", (span("-9223372036854775808ns"),), "-9223372036.854776s"),
    ("string", (span("1001001001ns"),), "1.001001001s"),
    ("string", (span("3599999999999ns"),), "3599.999999999s"),
    ("string", (span("-1ns"),), "-0.000000001s"),
    ("string", (span("999999ns"),), "0.000999999s"),
    ("string", (moment("9999-12-31T23:59:59.999999999Z"),), "9999-12-31T23:59:59.999999999Z"),
    ("string", (moment("2000-02-29T00:00:00Z"),), "2000-02-29T00:00:00Z"),
    ("string", (moment("0004-02-29T00:00:00Z"),), "0004-02-29T00:00:00Z"),
    ("int", (span("0ns"),), 0),
    ("int", (span("5400000000000ns"),), 5400000000000),
    ("int", (span("1ns"),), 1),
    ("int", (span("-9223372036854775808ns"),), -9223372036854775808),
    ("int", (span("1001001001ns"),), 1001001001),
    ("int", (span("3599999999999ns"),), 3599999999999),
    ("int", (span("-1ns"),), -1),
    ("int", (span("999999ns"),), 999999),
    ("int", (moment("9999-12-31T23:59:59.999999999Z"),), 253402300799),
    ("int", (moment("2000-02-29T00:00:00Z"),), 951782400),
    ("int", (moment("0004-02-29T00:00:00Z"),), -62035891200),
    ("timestamp", ("2020-01-01T00:00:00Z",), moment("2020-01-01T00:00:00Z")),
    ("timestamp", ("10000-01-01T00:00:00Z",), ERROR),
    ("timestamp", ("2020-01-01T24:00:00Z",), ERROR),
    ("timestamp", ("2020-01-01T00:00:00,5Z",), moment("2020-01-01T00:00:00.5Z")),
    ("timestamp", ("2020-01-01T00:00:00+0200",), ERROR),
    ("timestamp", ("2020-01-01T00:00:00+25:00",), ERROR),
    ("timestamp", ("2020-01-01T00:00:00.000000000Z",), moment("2020-01-01T00:00:00Z")),
    ("timestamp", ("2020-01-01T00:00:00+00:60",), moment("2019-12-31T23:00:00Z")),
    ("timestamp", (253402300799,), moment("9999-12-31T23:59:59Z")),
    (
        "timestamp",
        (moment("9999-12-31T23:59:59.999999999Z"),),
        moment("9999-12-31T23:59:59.999999999Z"),
    ),
    ("timestamp", (moment("2020-06-15T12:30:45.678Z"),), moment("2020-06-15T12:30:45.678Z")),
    ("getFullYear", (moment("2020-01-01T00:00:00Z"),), 2020),
    ("getFullYear", (moment("1850-01-01T00:00:00Z"), "UTC"), 1850),
    ("getFullYear", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 2050),
    ("getFullYear", (moment("0001-01-01T00:00:00Z"), "US/Central"), 0),
    ("getFullYear", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getFullYear", (moment("2050-07-01T00:00:00Z"), "-08:00"), 2050),
    ("getFullYear", (moment("0001-01-01T00:00:00Z"), "+2:30"), 1),
    ("getFullYear", (moment("1850-01-01T00:00:00Z"), "+25:00"), 1850),
    ("getFullYear", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getFullYear", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), -210),
    ("getFullYear", (moment("1850-01-01T00:00:00Z"), "GMT"), 1850),
    ("getMonth", (moment("2020-01-01T00:00:00Z"),), 0),
    ("getMonth", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getMonth", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 6),
    ("getMonth", (moment("0001-01-01T00:00:00Z"), "US/Central"), 11),
    ("getMonth", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getMonth", (moment("2050-07-01T00:00:00Z"), "-08:00"), 5),
    ("getMonth", (moment("0001-01-01T00:00:00Z"), "+2:30"), 0),
    ("getMonth", (moment("1850-01-01T00:00:00Z"), "+25:00"), 0),
    ("getMonth", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getMonth", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), 0),
    ("getMonth", (moment("1850-01-01T00:00:00Z"), "GMT"), 0),
    ("getDayOfYear", (moment("2020-01-01T00:00:00Z"),), 0),
    ("getDayOfYear", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getDayOfYear", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 181),
    ("getDayOfYear", (moment("0001-01-01T00:00:00Z"), "US/Central"), 365),
    ("getDayOfYear", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getDayOfYear", (moment("2050-07-01T00:00:00Z"), "-08:00"), 180),
    ("getDayOfYear", (moment("0001-01-01T00:00:00Z"), "+2:30"), 0),
    ("getDayOfYear", (moment("1850-01-01T00:00:00Z"), "+25:00"), 1),
    ("getDayOfYear", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getDayOfYear", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), 13),
    ("getDayOfYear", (moment("1850-01-01T00:00:00Z"), "GMT"), 0),
    ("getDate", (moment("2020-01-01T00:00:00Z"),), 1),
    ("getDate", (moment("1850-01-01T00:00:00Z"), "UTC"), 1),
    ("getDate", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 1),
    ("getDate", (moment("0001-01-01T00:00:00Z"), "US/Central"), 31),
    ("getDate", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getDate", (moment("2050-07-01T00:00:00Z"), "-08:00"), 30),
    ("getDate", (moment("0001-01-01T00:00:00Z"), "+2:30"), 1),
    ("getDate", (moment("1850-01-01T00:00:00Z"), "+25:00"), 2),
    ("getDate", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getDate", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), 14),
    ("getDate", (moment("1850-01-01T00:00:00Z"), "GMT"), 1),
    ("getDayOfMonth", (moment("2020-01-01T00:00:00Z"),), 0),
    ("getDayOfMonth", (moment("1850-01-01T00:00:00Z"), "UTC"), 0),
    ("getDayOfMonth", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 0),
    ("getDayOfMonth", (moment("0001-01-01T00:00:00Z"), "US/Central"), 30),
    ("getDayOfMonth", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getDayOfMonth", (moment("2050-07-01T00:00:00Z"), "-08:00"), 29),
    ("getDayOfMonth", (moment("0001-01-01T00:00:00Z"), "+2:30"), 0),
    ("getDayOfMonth", (moment("1850-01-01T00:00:00Z"), "+25:00"), 1),
    ("getDayOfMonth", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getDayOfMonth", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), 13),
    ("getDayOfMonth", (moment("1850-01-01T00:00:00Z"), "GMT"), 0),
    ("getDayOfWeek", (moment("2020-01-01T00:00:00Z"),), 3),
    ("getDayOfWeek", (moment("1850-01-01T00:00:00Z"), "UTC"), 2),
    ("getDayOfWeek", (moment("2050-07-01T00:00:00Z"), "Asia/Kolkata"), 5),
    ("getDayOfWeek", (moment("0001-01-01T00:00:00Z"), "US/Central"), 0),
    ("getDayOfWeek", (moment("1850-01-01T00:00:00Z"), "America"), ERROR),
    ("getDayOfWeek", (moment("2050-07-01T00:00:00Z"), "-08:00"), 4),
    ("getDayOfWeek", (moment("0001-01-01T00:00:00Z"), "+2:30"), 1),
    ("getDayOfWeek", (moment("1850-01-01T00:00:00Z"), "+25:00"), 3),
    ("getDayOfWeek", (moment("2050-07-01T00:00:00Z"), ":30"), ERROR),
    ("getDayOfWeek", (moment("0001-01-01T00:00:00Z"), "99999999999:00"), 4),
    ("getDayOfWeek", (moment("1850-01-01T00:00:00Z"), "GMT"), 2),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_time_function_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


@pytest.mark.parametrize(
    "text",
    [
        "2020-01-01T00:00:00+02:00",
        "2020-06-15T12:30:45.678-08:30",
        "0000-12-31T23:00:00-02:00",
        "2020-01-01T00:00:00Z",
    ],
)
def test_a_timestamp_is_written_with_the_offset_it_was_read_with(text: str) -> None:
    assert times.timestamp_text(*times.read_timestamp(text)) == text


def test_an_offset_of_a_day_is_read_and_written_as_upstream_does() -> None:
    assert (
        times.timestamp_text(*times.read_timestamp("2020-01-01T00:00:00+24:60"))
        == "2020-01-01T00:00:00+25:00"
    )


DURATIONS = listed(
    "0|0s|1s|-1s|+1s|1h2m3s|1.5h|-1.5h|.5s|5.s|1ns|1us|1\u00b5s|1\u03bcs|1ms|1d|1||-|+|s|.s|1.|1 s| 1s|1s |1h-1m|1e3s|"
    "100000h|2562047h47m16.854775807s|2562047h47m16.854775808s|-2562047h47m16.854775808s|-2562047h47m16.854775809s|"
    "9223372036854775807ns|9223372036854775808ns|-9223372036854775808ns|0.1ns|0.9ns|1.0000000001s|"
    "0.3333333333333333333h|0.12345678901234567890123s|1h1h|1s1ms1us1ns|9223372036854775808ns9223372036854775808ns|0h|"
    "00000000000000000000000001s|1.23.4s|1S|3000000h|-0|0.0000000001h|--1s|1m0.5s|90m|1h0.000000001s"
)
NANOSECONDS = (
    *(
        2**63 - 1,
        -(2**63),
        3599999999999,
        -3599999999999,
        2562046 * 3600 * 10**9 + 3599999999999,
        10**18 + 1,
    ),
    *(999999999, 123456789, -1, 60 * 10**9 - 1, 1500000, -1500000, 999999),
)
TIMESTAMPS = listed(
    "2020-01-01T00:00:00Z|2020-02-29T23:59:59.999999999Z|2019-02-29T00:00:00Z|0001-01-01T00:00:00Z|"
    "9999-12-31T23:59:59.999999999Z|0000-12-31T23:59:59Z|10000-01-01T00:00:00Z|1969-12-31T23:59:59.5Z|"
    "2020-01-01T00:00:00|2020-01-01 00:00:00Z|2020-01-01t00:00:00Z|2020-01-01T00:00:00z|2020-1-1T00:00:00Z|"
    "2020-01-01T24:00:00Z|2020-01-01T00:60:00Z|2020-01-01T00:00:60Z|2020-13-01T00:00:00Z|2020-00-01T00:00:00Z|"
    "2020-01-00T00:00:00Z|2020-01-32T00:00:00Z|2020-01-01T00:00:00,5Z|2020-01-01T00:00:00.Z|2020-01-01T1:02:03Z|"
    "2020-01-01T01:2:03Z|2020-01-01T00:00:00.1234567891234Z||x|2020-01-01T00:00:00+0200|2020-01-01T00:00:00+02|"
    "2020-01-01|1900-02-29T00:00:00Z|2000-02-29T00:00:00Z|2020-01-01T00:00:00Z |-020-01-01T00:00:00Z|"
    "2020-01-01T00:00:00+25:00|2020-01-01T00:00:00+24:61|2020-01-01T00:00:00+00:00|2020-01-01T00:00:00-00:00|"
    "0001-01-01T00:00:00+01:00|9999-12-31T23:59:59-01:00|\u0662020-01-01T00:00:00Z|2020-01-01T00:00:00.000000000Z|"
    "2020-01-01T00:00:00.120Z|2020-06-15T12:30:45.678Z|1582-10-15T00:00:00Z|0004-02-29T00:00:00Z|"
    "2020-01-01T00:00:00+24:60|2020-01-01T12:00:00-08:00|2020-01-01T00:00:00+00:60|0000-12-31T23:00:00-02:00"
)
PARTS = (
    *("getFullYear", "getMonth", "getDayOfYear", "getDate", "getDayOfMonth", "getDayOfWeek"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
ZONES = listed(
    "|UTC|Local|Europe/Paris|America/New_York|Asia/Kolkata|Australia/Lord_Howe|Asia/Kathmandu|Etc/GMT+5|EST|US/Central|"
    "utc|europe/paris|Nowhere/City|America|../etc|/etc/localtime|+02:00|-08:00|02:00|2:0|+00:30|-00:30|"
    "+2:30|-2:-30|-02:+30|+14:00|+25:00|100:00|-100:99|02:00:00|:30|02:|+:30|a:b|02:3x|99999999999:00|"
    "9223372036854775807:00|9223372036854775808:00| 02:00|GMT|Zulu|Europe/Paris |+02|MST7MDT"
)
MOMENTS = (
    *("2020-06-15T12:30:45.678Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"),
    *("1850-01-01T00:00:00Z", "2020-03-29T01:00:00Z", "2050-07-01T00:00:00Z"),
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text in DURATIONS:
        yield "duration", text
    read = [value for value in (call("duration", text) for text in DURATIONS) if value is not ERROR]
    for duration in (*read, *map(Duration, NANOSECONDS)):
        for name in (
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
            "string",
            "int",
            "duration",
        ):
            yield name, duration
    for text in TIMESTAMPS:
        yield "timestamp", text
    for seconds in (
        0,
        1,
        -1,
        -62135596800,
        -62135596801,
        253402300799,
        253402300800,
        2**63 - 1,
        -(2**63),
    ):
        yield "timestamp", seconds
    for when in (
        value for value in (call("timestamp", text) for text in TIMESTAMPS) if value is not ERROR
    ):
        for name in (*PARTS, "string", "int", "timestamp"):
            yield name, when
    for zone in ZONES:
        for text in MOMENTS:
            for name in PARTS:
                yield name, moment(text), zone
