"""Versions of programs as their makers write them, such as 580.95.05, v1.34.2+k3s1 and 13.0, and ranges of them.

Given text. Versions are compared number by number, so that 580.95.05 equals 580.95.5, which is how a ResourceSlice has
to spell it; they are printed as they were written. What follows the numbers does not count. Never guesses: a text
without a number at its start is no version.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dovetail import cache, errors

MOST_NUMBERS: Final = 6  # ours
MOST_DIGITS: Final = 9  # ours, of one number
_START: Final = re.compile(r"[vR]?(?P<numbers>\d+(?:\.\d+)*)(?P<more>[-+~_ ].*)?$", re.ASCII)
_COMPARISON: Final = re.compile(r"(?P<sign>>=|<=|!=|>|<|=)\s*(?P<version>\S+)")
_MEMO: Final = 4096

Numbers = tuple[int, ...]


class Range(msgspec.Struct, frozen=True, gc=False):
    """Which versions count: those of any alternative. Printed as it was written."""

    text: str
    alternatives: tuple[tuple[Bound, ...], ...]

    def __contains__(self, version: object) -> bool:
        if not isinstance(version, str):
            return False
        numbers = parse(version)
        return any(
            all(_holds(bound, numbers) for bound in alternative)
            for alternative in self.alternatives
        )

    def __str__(self) -> str:
        return self.text


class Bound(msgspec.Struct, frozen=True, gc=False):
    """One side of a range. The sign `~` stands for all versions that begin with these numbers."""

    sign: str
    numbers: Numbers


@cache.remembered(_MEMO)
def parse(text: str) -> Numbers:
    """The numbers of a version, without zeros at the end. Raises InputError; remembers recent texts."""
    match = _START.match(text.strip())
    numbers = match["numbers"].split(".") if match else []
    is_bounded = len(numbers) <= MOST_NUMBERS and all(len(part) <= MOST_DIGITS for part in numbers)
    if not numbers or not is_bounded:
        raise errors.InputError(f"{text[:60]!r} is not a version; expected one such as 580.95.05")
    return _significant(tuple(map(int, numbers)))


def is_version(text: str) -> bool:
    """Whether `parse` accepts the text."""
    try:
        parse(text)
    except errors.InputError:
        return False
    return True


def compare(first: str, second: str) -> int:
    """-1, 0 or 1 as the first version is lower, equal or higher. Raises InputError."""
    ours, theirs = parse(first), parse(second)
    return (ours > theirs) - (ours < theirs)


def number_at(text: str, place: int) -> int:
    """One number of a version: 0 is the major one; 0 where it has none there."""
    numbers = parse(text)
    return numbers[place] if place < len(numbers) else 0


def shortened(text: str, numbers: int) -> str:
    """The first numbers of a version, such as 1.34 of v1.34.2."""
    padded = (*parse(text), *(0,) * numbers)
    return ".".join(map(str, padded[:numbers]))


@cache.remembered(_MEMO)
def parse_range(text: str) -> Range:
    """A range. Raises InputError.

    `|` separates alternatives, `,` what must hold together; `1.33..1.36` is both ends and all releases of the last,
    `580` all releases of it; `>=`, `>`, `<=`, `<`, `=` and `!=` compare; `*` is every version.
    """
    alternatives = []
    for part in text.split("|"):
        bounds: list[Bound] = []
        for each in part.split(","):
            bounds += _bounds(each.strip(), text)
        alternatives.append(tuple(bounds))
    return Range(text, tuple(alternatives))


def _bounds(text: str, whole: str) -> list[Bound]:
    if text == "*":
        return []
    try:
        if match := _COMPARISON.fullmatch(text):
            return [Bound(match["sign"], parse(match["version"]))]
        first, dots, last = text.partition("..")
        if not dots:
            return [Bound("~", _written(first))]
        bounds = [Bound(">=", parse(first))] if first else []
        return [*bounds, *([Bound("<=~", _written(last))] if last else [])]
    except errors.InputError as error:
        raise errors.InputError(f"range {whole[:80]!r}: {error}") from None


def _holds(bound: Bound, numbers: Numbers) -> bool:
    limit = bound.numbers
    match bound.sign:
        case "~":
            return _padded(numbers, len(limit)) == limit
        case "<=~":
            return _padded(numbers, len(limit)) <= limit
        case ">=":
            return numbers >= limit
        case ">":
            return numbers > limit
        case "<=":
            return numbers <= limit
        case "<":
            return numbers < limit
        case "!=":
            return numbers != limit
        case _:
            return numbers == limit


def _padded(numbers: Numbers, length: int) -> Numbers:
    return (*numbers, *(0,) * length)[:length]


def _written(text: str) -> Numbers:
    """The numbers with zeros at the end: 13.0 stands for 13.0.x alone."""
    parse(text)
    match = _START.match(text.strip())
    assert match is not None
    return tuple(map(int, match["numbers"].split(".")))


def _significant(numbers: Numbers) -> Numbers:
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers
