"""Regular expressions: `matches`, `find`, `findAll`. Search is unanchored and takes linear time.

Given a text and a pattern; returns what was found or raises CelError for a pattern upstream would refuse. RE2
runs them; `patterns` rewrites those that RE2 and upstream's engine read differently. Caches recent results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail import cache
from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate.values import CelError
from dovetail.cel.library import patterns, size_limits, strings

_MAX_MEMORY_BYTES = 64 * 2**20  # of one compiled pattern; repeats are limited to 1000 already
_MEMO_CHARACTERS = 512  # longer texts are not worth remembering
_MEMO_ANSWERS = 16_384


def check(pattern: str) -> None:
    """Raises CelError when a pattern is invalid."""
    _compiled(pattern)


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    if len(text) + len(pattern) > _MEMO_CHARACTERS:
        return _search(text, pattern)
    return _remembered(text, pattern)


def _search(text: str, pattern: str) -> bool:
    return _span(_compiled(pattern), strings.to_bytes(text), 0) is not None


_remembered = cache.remembered(_MEMO_ANSWERS)(_search)


def find(text: str, pattern: str) -> str:
    """The first match; the empty string if there is none."""
    data = strings.to_bytes(text)
    span = _span(_compiled(pattern), data, 0)
    return _text(data[slice(*span)]) if span else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The matches from left to right, at most `limit` unless negative. None is empty right after another."""
    texts: list[str] = []
    for match in _matches(_compiled(pattern), strings.to_bytes(text)):
        if len(texts) == limit:
            break
        size_limits.check_elements(len(texts) + 1)
        texts.append(match)
    return texts


def _matches(compiled: Any, data: bytes) -> Iterator[str]:
    position, previous_end = 0, -1
    while position <= len(data):
        span = _span(compiled, data, position)
        if span is None:
            return
        start, end = span
        if end != position:
            position = end
        else:
            position = _next_character(data, position)
            if start == previous_end:
                continue
        previous_end = end
        yield _text(data[start:end])


def _span(compiled: Any, data: bytes, position: int) -> tuple[int, int] | None:
    """Where the next match starts and ends. RE2 sees a \\B inside the bytes of one character; that is no match."""
    while match := compiled.search(data, position):
        start, end = match.span()
        if start == len(data) or data[start] & 0xC0 != 0x80:
            return start, end
        position = _next_character(data, start)
    return None


def _next_character(data: bytes, position: int) -> int:
    position += 1
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position


@cache.remembered(1024)
def _compiled(pattern: str) -> Any:
    import re2  # costs a tenth of a second, and most expressions have no pattern

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        return re2.compile(strings.to_bytes(patterns.for_re2(pattern)), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid pattern"
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CelError(f"error parsing regexp: {shown}") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


OVERLOADS: tuple[Overload, ...] = (
    function("matches", "matches", "string, string -> bool", matches),
    member("matches", "matches_string", "string, string -> bool", matches),
    member("find", "string_find_string", "string, string -> string", find),
    member("findAll", "string_find_all_string", "string, string -> list(string)", find_all),
    member(
        "findAll", "string_find_all_string_int", "string, string, int -> list(string)", find_all
    ),
)
