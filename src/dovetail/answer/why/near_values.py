"""Which of the values that exist was probably meant by one that does not: case, a missing prefix or suffix, a slip.

Given texts. Returns the nearest or none. Never decides whether a value is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

CLOSE: Final = 0.78  # difflib's ratio from which two values count as one that is misspelt
LEAST_PART: Final = 3  # characters that a part of a value must have to be taken for it
MOST_COMPARED: Final = 2_000  # values, each compared in full
_SIGNS: Final = re.compile(r"[-_./ ]+")


def nearest(value: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant; None if none resembles the value."""
    others = sorted({candidate for candidate in candidates if candidate and candidate != value})
    if not value or not others:
        return None
    return (
        _same_but_for_signs(value, others)
        or _longer_or_shorter(value, others)
        or _close(value, others)
    )


def _same_but_for_signs(value: str, others: list[str]) -> str | None:
    plain = _plain(value)
    return next((other for other in others if _plain(other) == plain), None)


def _longer_or_shorter(value: str, others: list[str]) -> str | None:
    """The other that begins or ends with the value, or the value with it; the one with the least around it."""
    folded = value.casefold()
    related = [
        other
        for other in others
        if min(len(other), len(value)) >= LEAST_PART and _is_part(folded, other.casefold())
    ]
    return min(related, key=lambda other: (abs(len(other) - len(value)), other), default=None)


def _is_part(value: str, other: str) -> bool:
    short, long = sorted((value, other), key=len)
    return long.startswith(short) or long.endswith(short)


def _close(value: str, others: list[str]) -> str | None:
    by_folded = {other.casefold(): other for other in reversed(others[:MOST_COMPARED])}
    close = difflib.get_close_matches(value.casefold(), by_folded, n=1, cutoff=CLOSE)
    if not close or _numbers(value) != _numbers(by_folded[close[0]]):
        return None  # H100 is not A100 misspelt, nor 40GB 80GB
    return by_folded[close[0]]


def _numbers(value: str) -> list[str]:
    """The parts of a name that say a model or a size."""
    return re.findall(r"[a-z]*\d+[a-z]*", value.casefold())


def _plain(value: str) -> str:
    return _SIGNS.sub("", value.casefold())
