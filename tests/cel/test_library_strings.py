"""Functions on strings: positions, cutting, replacing. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel.library import size_limits, strings
from tests.cel import ERROR, Case, assert_same, call

CASES: list[Case] = [
    ("contains", ("abcabc", "b"), True),
    ("contains", ("abcabc", ""), True),
    ("contains", ("", ""), True),
    ("contains", ("", "a"), False),
    ("contains", ("abc", "abcd"), False),
    ("contains", ("aé中😀z", "z"), True),
    ("contains", ("aaa", "aa"), True),
    ("contains", ("abc", "C"), False),
    ("contains", ("hello", "llo"), True),
    ("startsWith", ("abcabc", "b"), False),
    ("startsWith", ("abcabc", ""), True),
    ("startsWith", ("", ""), True),
    ("startsWith", ("", "a"), False),
    ("startsWith", ("abc", "abcd"), False),
    ("startsWith", ("aé中😀z", "z"), False),
    ("startsWith", ("aaa", "aa"), True),
    ("startsWith", ("abc", "C"), False),
    ("startsWith", ("hello", "llo"), False),
    ("endsWith", ("abcabc", "b"), False),
    ("endsWith", ("abcabc", ""), True),
    ("endsWith", ("", ""), True),
    ("endsWith", ("", "a"), False),
    ("endsWith", ("abc", "abcd"), False),
    ("endsWith", ("aé中😀z", "z"), True),
    ("endsWith", ("aaa", "aa"), True),
    ("endsWith", ("abc", "C"), False),
    ("endsWith", ("hello", "llo"), True),
    ("indexOf", ("abcabc", "b"), 1),
    ("indexOf", ("abcabc", "", -1), ERROR),
    ("indexOf", ("", "", 1), 0),
    ("indexOf", ("", "a", 3), -1),
    ("indexOf", ("abc", "abcd", 7), -1),
    ("indexOf", ("aé中😀z", "z"), 4),
    ("indexOf", ("aaa", "aa", 0), 0),
    ("indexOf", ("abc", "C", 2), -1),
    ("indexOf", ("hello", "llo", 5), -1),
    ("lastIndexOf", ("abcabc", "b"), 4),
    ("lastIndexOf", ("abcabc", "", -1), ERROR),
    ("lastIndexOf", ("", "", 1), 0),
    ("lastIndexOf", ("", "a", 3), -1),
    ("lastIndexOf", ("abc", "abcd", 7), -1),
    ("lastIndexOf", ("aé中😀z", "z"), 4),
    ("lastIndexOf", ("aaa", "aa", 0), 0),
    ("lastIndexOf", ("abc", "C", 2), -1),
    ("lastIndexOf", ("hello", "llo", 5), -1),
    ("replace", ("hello hello", "he", "we"), "wello wello"),
    ("replace", ("hello", "", "-"), "-h-e-l-l-o-"),
    ("replace", ("", "", "x"), "x"),
    ("replace", ("abc", "d", "e"), "abc"),
    ("replace", ("aaa", "a", "aa"), "aaaaaa"),
    ("replace", ("aaa", "aa", "b"), "ba"),
    ("replace", ("éé", "", "|"), "|é|é|"),
    ("replace", ("abc", "b", ""), "ac"),
    ("replace", ("abc", "abc", ""), ""),
    ("split", ("a,b,c", ","), ["a", "b", "c"]),
    ("split", ("", ""), []),
    ("split", ("", ","), [""]),
    ("split", ("abc", ""), ["a", "b", "c"]),
    ("split", ("aé😀", ""), ["a", "é", "😀"]),
    ("split", (",a,", ","), ["", "a", ""]),
    ("split", ("abc", "abc"), ["", ""]),
    ("split", ("abc", "x"), ["abc"]),
    ("split", ("aXXbXXc", "XX"), ["a", "b", "c"]),
    ("substring", ("aé中😀z", -1), ERROR),
    ("substring", ("aé中😀z", 0), "aé中😀z"),
    ("substring", ("aé中😀z", 5), ""),
    ("substring", ("aé中😀z", 6), ERROR),
    ("substring", ("aé中😀z", 0, 5), "aé中😀z"),
    ("substring", ("aé中😀z", 1, 3), "é中"),
    ("substring", ("aé中😀z", -1, 2), ERROR),
    ("substring", ("aé中😀z", 0, 6), ERROR),
    ("substring", ("aé中😀z", 5, 5), ""),
    ("charAt", ("aé中😀z", -1), ERROR),
    ("charAt", ("aé中😀z", 0), "a"),
    ("charAt", ("aé中😀z", 1), "é"),
    ("charAt", ("aé中😀z", 3), "😀"),
    ("charAt", ("aé中😀z", 4), "z"),
    ("charAt", ("aé中😀z", 5), ""),
    ("charAt", ("aé中😀z", 6), ERROR),
    ("charAt", ("aé中😀z", 4611686018427387904), ERROR),
    ("lowerAscii", ("HeLLo Éé İß",), "hello Éé İß"),
    ("lowerAscii", ("",), ""),
    ("lowerAscii", ("K",), "K"),
    ("lowerAscii", ("ABCxyz@[`{",), "abcxyz@[`{"),
    ("upperAscii", ("HeLLo Éé İß",), "HELLO Éé İß"),
    ("upperAscii", ("",), ""),
    ("upperAscii", ("K",), "K"),
    ("upperAscii", ("ABCxyz@[`{",), "ABCXYZ@[`{"),
    ("trim", ("  a b ",), "a b"),
    ("trim", ("\t\n\x0b\x0c\r a",), "a"),
    ("trim", ("\x85\xa0x\u2003\u3000",), "x"),
    ("trim", ("\x1cx\x1f",), "\x1cx\x1f"),
    ("trim", ("\u200bx\u200b",), "\u200bx\u200b"),
    ("trim", ("\ufeffx",), "\ufeffx"),
    ("trim", ("\u1680\u180ex",), "\u180ex"),
    ("trim", ("",), ""),
    ("trim", (" \u2028\u2029\u202f\u205f",), ""),
    ("strings.quote", ("",), '""'),
    ("strings.quote", ("plain",), '"plain"'),
    ("strings.quote", ('q"uo\\te',), '"q\\"uo\\\\te"'),
    (
        "strings.quote",
        ("\x07\x08\x0c\n\r\t\x0b\x00\x1b\xe9",),
        '"\\a\\b\\f\\n\\r\\t\\v\x00\x1b\xe9"',
    ),
    ("strings.quote", ("'single'",), "\"'single'\""),
    ("join", ([],), ""),
    ("join", ([], ", "), ""),
    ("join", (["a"], ", "), "a"),
    ("join", (["a", "b", "c"],), "abc"),
    ("join", (["", "", ""],), ""),
    ("join", (["", "", ""], ", "), ", , "),
    ("join", (["é", "x"], ", "), "é, x"),
    ("join", (["a", 1],), ERROR),
    ("join", (["a", None],), ERROR),
    ("size", ("",), 0),
    ("size", ("aé中😀z",), 5),
    ("size", ("é",), 2),
    ("size", (b"",), 0),
    ("size", (b"\xff\x00\xc3\xa9",), 4),
    ("size", ([],), 0),
    ("size", ([1, 2],), 2),
    ("size", ({},), 0),
    ("size", ({"a": 1, "b": 2},), 2),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_string_function_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_replacing_everything_by_more_stops_before_memory_does() -> None:
    with pytest.raises(size_limits.TooLargeError):
        strings.replace("a" * 100_000, "", "b" * 1000)


def test_joining_copies_of_one_large_text_stops_before_memory_does() -> None:
    with pytest.raises(size_limits.TooLargeError):
        strings.join(["a" * 1_000_000] * 100, ",")


def test_splitting_into_characters_makes_at_most_a_million() -> None:
    with pytest.raises(size_limits.TooLargeError):
        strings.split("a" * 1_000_001, "")
    assert len(strings.split("a" * 1_000_001, "", 10)) == 10


MIXED = "aé中\U0001f600z"


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    yield from _searches()
    yield from _cuts()
    for index in (-1, 0, 1, 3, 4, 5, 6, 2**62):
        yield "charAt", MIXED, index
    for text in ("HeLLo Éé İß", "", "\u212a", "ABCxyz@[`{"):
        yield "lowerAscii", text
        yield "upperAscii", text
    blanks = (
        "  a b ",
        "\t\n\v\f\r a",
        "\x85\xa0x\u2003\u3000",
        "\x1cx\x1f",
        "\u200bx\u200b",
        "\ufeffx",
        "\u1680\u180ex",
    )
    for text in (*blanks, "", " \u2028\u2029\u202f\u205f"):
        yield "trim", text
    for text in ("", "plain", 'q"uo\\te', "\a\b\f\n\r\t\v\x00\x1bé", "'single'"):
        yield "strings.quote", text
    for parts in ([], ["a"], ["a", "b", "c"], ["", "", ""], ["é", "x"], ["a", 1], ["a", None]):
        yield "join", parts
        yield "join", parts, ", "
    for value in ("", MIXED, "e\u0301", b"", b"\xff\x00\xc3\xa9", [], [1, 2], {}, {"a": 1, "b": 2}):
        yield "size", value


def _searches() -> Iterator[tuple[Any, ...]]:
    pairs = (
        ("abcabc", "b"),
        ("abcabc", ""),
        ("", ""),
        ("", "a"),
        ("abc", "abcd"),
        (MIXED, "\U0001f600"),
        (MIXED, "z"),
    )
    for text, expected in (*pairs, ("aaa", "aa"), ("abc", "C"), ("hello", "llo"), ("hello", "hel")):
        for name in ("contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"):
            yield name, text, expected
        for start in (-1, 0, 1, 2, 3, 5, 7):
            yield "indexOf", text, expected, start
            yield "lastIndexOf", text, expected, start


def _cuts() -> Iterator[tuple[Any, ...]]:
    replaced = (
        ("hello hello", "he", "we"),
        ("hello", "", "-"),
        ("", "", "x"),
        ("abc", "d", "e"),
        ("aaa", "a", "aa"),
    )
    for text, old, new in (
        *replaced,
        ("aaa", "aa", "b"),
        ("éé", "", "|"),
        ("abc", "b", ""),
        ("abc", "abc", ""),
    ):
        yield "replace", text, old, new
        for limit in (-5, -1, 0, 1, 2, 100):
            yield "replace", text, old, new, limit
    cut = (
        ("a,b,c", ","),
        ("", ""),
        ("", ","),
        ("abc", ""),
        ("aé\U0001f600", ""),
        (",a,", ","),
        ("abc", "abc"),
    )
    for text, separator in (*cut, ("abc", "x"), ("aXXbXXc", "XX")):
        yield "split", text, separator
        for limit in (-1, 0, 1, 2, 3, 4, 100):
            yield "split", text, separator, limit
    for start in (-1, 0, 2, 5, 6):
        yield "substring", MIXED, start
    for start, end in ((0, 0), (0, 5), (1, 3), (3, 1), (-1, 2), (0, 6), (6, 6), (5, 5), (2, -1)):
        yield "substring", MIXED, start, end
