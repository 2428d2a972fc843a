"""Patterns: which are valid, what they match and find. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cel.evaluate.values import CelError
from dovetail.cel.library import regex
from tests.cel import ERROR, Case, assert_same, call

CASES: list[Case] = [
    ("matches", ("", "a"), False),
    ("matches", ("a.b\\C{(?P<x>)}", "a**"), ERROR),
    ("matches", ("a.b\\C{(?P<x>)}", "a{0,1000}"), True),
    ("matches", ("a.b\\C{(?P<x>)}", "((a{2,}){500})"), False),
    ("matches", ("a.b\\C{(?P<x>)}", "\\pN"), False),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\p{letter}"), True),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\p{Old_Persian}"), ERROR),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\p{Han}"), True),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\p{ASCII}"), True),
    ("matches", ("A\nb", "[^\\p{ASCII}]"), False),
    ("matches", ("A\nb", "[\\p{Cn}x]"), False),
    ("matches", ("A\nb", "[^\\P{LC}]"), True),
    ("matches", ("A\nb", "\\p{Co}"), False),
    ("matches", ("ab", "\\p{"), ERROR),
    ("matches", ("ab", "\\p{é}"), ERROR),
    ("matches", ("ab", "(?P<n>a)"), True),
    ("matches", ("ab", "(?P<a-b>a)"), ERROR),
    ("matches", ("ab", "(?P<n>"), ERROR),
    ("matches", ("a", "(?=a)"), ERROR),
    ("matches", ("a", "(?#c)"), ERROR),
    ("matches", ("a", "(?i:A)b"), False),
    ("matches", ("a", "(?-)a"), ERROR),
    ("matches", ("", "(?i)(?-i)A"), False),
    ("matches", ("", "(?m)^b$"), False),
    ("matches", ("", "a\\Z"), ERROR),
    ("matches", ("", "[\\Qa\\E]"), ERROR),
    ("matches", ("a.b\\C{(?P<x>)}", "\\1"), ERROR),
    ("matches", ("a.b\\C{(?P<x>)}", "\\07"), False),
    ("matches", ("a.b\\C{(?P<x>)}", "\\x61"), True),
    ("matches", ("a.b\\C{(?P<x>)}", "\\x{}"), ERROR),
    ("matches", ("a.b\\C{(?P<x>)}", "\\_"), False),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\e"), ERROR),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\R"), ERROR),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\u0061"), ERROR),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\S"), True),
    ("matches", ("A\nb", "[^\\D]"), False),
    ("matches", ("A\nb", "[[:alpha:]]"), True),
    ("matches", ("A\nb", "[:alpha:]"), False),
    ("matches", ("A\nb", "[a-]"), False),
    ("matches", ("ab", "[a-b-c]"), True),
    ("matches", ("ab", "[^]"), ERROR),
    ("matches", ("ab", "[(?P<é>]"), False),
    ("matches", ("ab", "[a[:digit:]b]"), True),
    ("matches", ("a", "()"), True),
    ("matches", ("a", ")"), ERROR),
    ("matches", ("a", "?a"), ERROR),
    ("matches", ("a", "^*"), True),
    ("matches", ("a", "a+?"), True),
    ("matches", ("", "a{2}{3}"), ERROR),
    ("matches", ("", "a{1"), False),
    ("matches", ("", "]"), False),
    ("matches", ("", "a{0}"), True),
    ("matches", ("a.b\\C{(?P<x>)}", "(x*)*"), True),
    ("matches", ("a.b\\C{(?P<x>)}", ".*"), True),
    ("matches", ("a.b\\C{(?P<x>)}", "^$"), False),
    ("matches", ("a.b\\C{(?P<x>)}", "[^a]"), True),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "(?i)ſ"), False),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "((((((((((a))))))))))"), True),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "\\\\"), False),
    ("matches", ("a\u0301\xe9\u4e2d9_ \u0378\u212a\ue000x", "(?im)^A$"), False),
    ("find", ("xx a1b22 ccc éé", "a"), "a"),
    ("find", ("xx a1b22 ccc éé", "a{1001}"), ERROR),
    ("find", ("xx a1b22 ccc éé", "((a{2,}){501})"), ERROR),
    ("find", ("xx a1b22 ccc éé", "\\p{Letter}"), "x"),
    ("find", ("xx a1b22 ccc éé", "\\p{Sign_Writing}"), ERROR),
    ("find", ("xx a1b22 ccc éé", "\\p{ASCII}"), "x"),
    ("find", ("xx a1b22 ccc éé", "\\p{Assigned}"), "x"),
    ("find", ("xx a1b22 ccc éé", "\\p{C}"), ""),
    ("find", ("xx a1b22 ccc éé", "\\p"), ERROR),
    ("find", ("xx a1b22 ccc éé", "(?i)\\p{Lu}"), "x"),
    ("find", ("xx a1b22 ccc éé", "(?P<a-b>a)"), ERROR),
    ("find", ("xx a1b22 ccc éé", "(?Pn)"), ERROR),
    ("find", ("xx a1b22 ccc éé", "(?#c)"), ERROR),
    ("find", ("xx a1b22 ccc éé", "(?i-)a"), ERROR),
    ("find", ("xx a1b22 ccc éé", "(?U)a+"), "a"),
    ("find", ("xx a1b22 ccc éé", "a\\z"), ""),
    ("find", ("xx a1b22 ccc éé", "\\Q(?P<é>)\\E"), ""),
    ("find", ("xx a1b22 ccc éé", "\\08"), ""),
    ("find", ("xx a1b22 ccc éé", "\\x{110000}"), ERROR),
    ("find", ("xx a1b22 ccc éé", "\\é"), ERROR),
    ("find", ("xx a1b22 ccc éé", "\\R"), ERROR),
    ("find", ("xx a1b22 ccc éé", "\\D"), "x"),
    ("find", ("xx a1b22 ccc éé", "[^\\D]"), "1"),
    ("find", ("xx a1b22 ccc éé", "[[:foo:]]"), ERROR),
    ("find", ("xx a1b22 ccc éé", "[-a]"), "a"),
    ("find", ("xx a1b22 ccc éé", "[]"), ERROR),
    ("find", ("xx a1b22 ccc éé", "[[]"), ""),
    ("find", ("xx a1b22 ccc éé", "()"), ""),
    ("find", ("xx a1b22 ccc éé", "*"), ERROR),
    ("find", ("xx a1b22 ccc éé", "$*"), ""),
    ("find", ("xx a1b22 ccc éé", "a{2}?"), ""),
    ("find", ("xx a1b22 ccc éé", "a{1,"), ""),
    ("find", ("xx a1b22 ccc éé", "a{0}"), ""),
    ("find", ("xx a1b22 ccc éé", "."), "x"),
    ("find", ("xx a1b22 ccc éé", "\\n"), ""),
    ("find", ("xx a1b22 ccc éé", "(?i)ſ"), ""),
    ("find", ("xx a1b22 ccc éé", "\\pL\\pM*"), "x"),
    ("find", ("xx a1b22 ccc éé", "(?im)^A$"), ""),
    ("find", ("ééa😀", "a*"), ""),
    ("find", ("baac", "a"), "a"),
    ("find", ("a", ""), ""),
    ("find", ("\n", ""), ""),
    ("find", ("aXbX", "x*"), ""),
    ("find", ("ab\nab", "a|b"), "a"),
    ("find", ("aa", "\\b"), ""),
    ("find", ("a", "^"), ""),
    ("find", ("\n", "^"), ""),
    ("find", ("ééa😀", "$"), ""),
    ("find", ("ab\nab", "(?m)^"), ""),
    ("find", ("aa", "(?m)$"), ""),
    ("find", ("", "."), ""),
    ("find", ("\n", "."), ""),
    ("find", ("ééa😀", "(?:)"), ""),
    ("find", ("baac", "é*"), ""),
    ("find", ("aa", "a??"), ""),
    ("find", ("", "b*"), ""),
    ("find", ("aXbX", "b*"), ""),
    ("find", ("ééa😀", "\\B"), ""),
    ("find", ("aééa", "\\B"), ""),
    ("find", ("é", "^\\B"), ""),
    ("findAll", ("aab \xe9\u4e2d\nba", "a"), ["a", "a", "a"]),
    ("findAll", ("aab \xe9\u4e2d\nba", "\\p{letter}"), ["a", "a", "b", "é", "中", "b", "a"]),
    ("findAll", ("aab \xe9\u4e2d\nba", "\\P{Assigned}"), []),
    ("findAll", ("aab \xe9\u4e2d\nba", "(?i)\\p{ASCII}"), ["a", "a", "b", " ", "\n", "b", "a"]),
    ("findAll", ("aab \xe9\u4e2d\nba", "(?>a)"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "a\\Z"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "\\x{}"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "\\s"), [" ", "\n"]),
    ("findAll", ("aab \xe9\u4e2d\nba", "[a-\\d]"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "(a"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "a{2}*"), ERROR),
    ("findAll", ("aab \xe9\u4e2d\nba", "(?s).*"), ["aab \xe9\u4e2d\nba"]),
    ("findAll", ("aab \xe9\u4e2d\nba", "\\\\"), []),
    ("findAll", ("a", "a*", 3), ["a"]),
    ("findAll", ("ab\nab", "a*", 1), ["a"]),
    ("findAll", ("\n", "a*", -1), ["", ""]),
    ("findAll", ("aa", "a"), ["a", "a"]),
    ("findAll", ("ab\nab", "a", 2), ["a", "a"]),
    ("findAll", ("\n", "a", 1), []),
    ("findAll", ("aa", "", -1), ["", "", ""]),
    ("findAll", ("ééa😀", ""), ["", "", "", "", ""]),
    ("findAll", ("\n", "", 2), ["", ""]),
    ("findAll", ("aa", "x*", 0), []),
    ("findAll", ("ééa😀", "x*", -2), ["", "", "", "", ""]),
    ("findAll", ("\n", "x*", 3), ["", ""]),
    ("findAll", ("aa", "a|b", 1), ["a"]),
    ("findAll", ("ééa😀", "a|b", 0), []),
    ("findAll", ("", "\\b", -2), []),
    ("findAll", ("aa", "\\b", 3), ["", ""]),
    ("findAll", ("ééa😀", "\\b", 1), [""]),
    ("findAll", ("", "^", -1), [""]),
    ("findAll", ("baac", "^"), [""]),
    ("findAll", ("ééa😀", "^", 2), [""]),
    ("findAll", ("", "$", 0), []),
    ("findAll", ("baac", "$", -2), [""]),
    ("findAll", ("aXbX", "$"), [""]),
    ("findAll", ("", "(?m)^", 2), [""]),
    ("findAll", ("baac", "(?m)^", 0), []),
    ("findAll", ("aXbX", "(?m)^", -2), [""]),
    ("findAll", ("", "(?m)$", 3), [""]),
    ("findAll", ("baac", "(?m)$", 1), [""]),
    ("findAll", ("aXbX", "(?m)$", -1), [""]),
    ("findAll", ("a", "."), ["a"]),
    ("findAll", ("baac", ".", 3), ["b", "a", "a"]),
    ("findAll", ("aXbX", ".", 1), ["a"]),
    ("findAll", ("a", "(?:)", -1), ["", ""]),
    ("findAll", ("ab\nab", "(?:)"), ["", "", "", "", "", ""]),
    ("findAll", ("aXbX", "(?:)", 2), ["", ""]),
    ("findAll", ("a", "é*", 0), []),
    ("findAll", ("ab\nab", "é*", -2), ["", "", "", "", "", ""]),
    ("findAll", ("aXbX", "é*", 3), ["", "", ""]),
    ("findAll", ("a", "a??", 1), [""]),
    ("findAll", ("ab\nab", "a??", 0), []),
    ("findAll", ("\n", "a??", -2), ["", ""]),
    ("findAll", ("a", "b*", 3), ["", ""]),
    ("findAll", ("ab\nab", "b*", 1), [""]),
    ("findAll", ("\n", "b*", -1), ["", ""]),
    ("findAll", ("aa", "\\B"), [""]),
    ("findAll", ("ab\nab", "\\B", 2), ["", ""]),
    ("findAll", ("\n", "\\B", 0), []),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_pattern_finds_what_upstream_finds(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


def test_a_pattern_that_would_backtrack_for_years_ends() -> None:
    assert regex.matches("a" * 10_000, "(a*)*b") is False
    assert regex.matches("a" * 10_000 + "!", "^(a+)+$") is False


def test_checking_a_pattern_needs_no_text() -> None:
    regex.check("^a+$")
    with pytest.raises(CelError, match="error parsing regexp"):
        regex.check("a(")


def test_a_long_text_is_searched_without_being_remembered() -> None:
    before = regex._remembered.cache_info().currsize
    assert regex.matches("x" * 10_000 + "y", "y$")
    assert regex._remembered.cache_info().currsize == before


PATTERNS = r"""
a
^a$
^.$
a**
a{,2}
a{2,1}
a{1001}
a{0,1000}
(a{100}){10}
(a{100}){11}
((a{10}){10}){11}
((a{2,}){500})
((a{2,}){501})
\C
[\C]
\pN
\p{N}
\p{Nd}
\p{Letter}
\p{letter}
\p{LOWERCASE-LETTER}
\p{greek}
\p{Greek}
\p{Old_Persian}
\p{OldPersian}
\p{Sign_Writing}
\p{SignWriting}
\p{Han}
\p{Any}
\p{any}
\P{Any}
\p{ASCII}
\P{ASCII}
\p{^ASCII}
\P{^ASCII}
[^\p{ASCII}]
[\P{ASCII}a]
\p{Assigned}
\P{Assigned}
[\p{Cn}x]
\p{LC}
\P{LC}
[\P{LC}]
[^\P{LC}]
\p{C}
\P{C}
\p{Cs}
\p{Co}
\p{}
\p{^}
\p
\p{
\p{L
\pl
\pé
\p{é}
(?i)\p{Lu}
(?i)\p{ASCII}
(?P<n>a)(?P<n>b)
(?P<n>a)
(?<n>a)
(?P<é>a)
(?P<>a)
(?P<a-b>a)
(?P<1>a)
(?P<_>a)
(?P<n
(?P<n>
(?P=n)
(?Pn)
(?'n'a)
(?=a)
(?!a)
(?<=a)
(?<!a)
(?#c)
(?>a)
(?|a)
(?i)A
(?i:A)b
(?-i)a
(?i-s)a
(?i-)a
(?-)a
(?)a
(?z)a
(?ii)a
(?i)(?-i)A
(?U)a+
(?s)a.b
a.b
(?m)^b$
^b$
\Aa
a\z
a\Z
\Qa.b\E
\Qa.b
\Q\E
[\Qa\E]
\Q\C\E
\Q(?P<é>)\E
\1
\8
\0
\00
\07
\08
\141
\777
\x61
\x{61}
\x{10FFFF}
\x{110000}
\x{}
\x6
\x
\
\_
\-
\é
\a\f\n\r\t\v
\e
\cA
\G
\K
\R
\h
\X
\N
\u0061
\d
\D
\s
\S
\w
\W
[\d\s]
[^\D]
\b
\B
\ba\b
[[:alpha:]]
[[:^alpha:]]
[[:word:]]
[[:foo:]]
[:alpha:]
[[:alpha:]
[a-z]
[z-a]
[a-]
[-a]
[a-\d]
[\d-z]
[a-b-c]
[]a]
[^]a]
[]
[^]
[
[a
[(?P<x>]
[(?P<é>]
[\]]
[[]
[[a]
[a[:digit:]b]
a|b
|
||
()
(|)
(a
a)
)
(
*
+a
?a
a|*
(*)
(?:*)
^*
$*
\b+
a*?
a+?
a??
a???
a{2}?
a{2}{3}
a{2}*
(a{2})*
a{
a{1
a{1,
a{a}
a}
]
}
{
{1}
a{0}
a{0,0}
x*
(x*)*
(x+)+y
(a|aa)+$
.
.*
(?s).*
^
$
^$
\n
é
[é-ü]
[^a]
É
(?i)É
(?i)ß
(?i)ſ
(?i)k
a||b
(?:a|b)|c
((((((((((a))))))))))
(?i)[k]
\pL\pM*
a\
\\
\.
\/
\%
(?im)^A$
(?i)(a)(?P<q>b)
"""
TEXTS = ("", "a", "ab", "A\nb", "a\u0301é中9_ \u0378\u212a\ue000x", "a.b\\C{(?P<x>)}")
EMPTY_MATCHES = (
    "a*",
    "a",
    "",
    "x*",
    "a|b",
    r"\b",
    "^",
    "$",
    "(?m)^",
    "(?m)$",
    ".",
    "(?:)",
    "é*",
    "a??",
    "b*",
    r"\B",
)
NOT_BOUNDARIES = (r"\B", r"\B|a", r"^\B", r"\Ba")


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for pattern in PATTERNS.strip("\n").split("\n"):
        for text in TEXTS:
            yield "matches", text, pattern
        yield "find", "xx a1b22 ccc éé", pattern
        yield "findAll", "aab é中\nba", pattern
    for pattern in EMPTY_MATCHES:
        for text in ("", "a", "aa", "baac", "ab\nab", "ééa\U0001f600", "aXbX", "\n"):
            yield "find", text, pattern
            yield "findAll", text, pattern
            for limit in (-2, -1, 0, 1, 2, 3):
                yield "findAll", text, pattern, limit
    for pattern in NOT_BOUNDARIES:
        for text in ("aéa", "é", "a\U0001f600a", "aééa"):
            for name in ("matches", "find", "findAll"):
                yield name, text, pattern
