"""Writes other programs' words as evidence: one line, without control characters, of bounded length.

Given any text and a source. Never interprets what it quotes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.model import plaintext

MAX_LINE: Final = 400  # characters of a message in an evidence line
MAX_WORDS: Final = 120  # characters of a message inside a sentence
_SCANNED: Final = 8_192  # a message is never read further than this
_ENDING: Final = "..."
_NAMED: Final = 3


def words(text: str, limit: int = MAX_WORDS) -> str:
    """The text on one line, cut at a length, without a full stop at its end."""
    one_line = " ".join(text[:_SCANNED].split())
    safe = plaintext.escaped(one_line).rstrip(". ")
    if len(safe) <= limit:
        return safe
    return safe[: limit - len(_ENDING)].rstrip() + _ENDING


def line(source: str, when: datetime.datetime | None, text: str, *, count: int = 1) -> str:
    """One line of evidence: source, time, how often, and the words."""
    time = f" at {timestamps.to_text(when)}" if when is not None else ""
    repeated = f" ({count} times)" if count > 1 else ""
    return f"{plaintext.escaped(source)}{time}{repeated}: {words(text, MAX_LINE)}"


def named(names: Iterable[str], limit: int = _NAMED) -> str:
    """A few names in order and how many more: `a, b, c and 4 more`."""
    ordered = sorted(set(names))
    shown = ", ".join(plaintext.escaped(name) for name in ordered[:limit])
    rest = len(ordered) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def nodes(names: Sequence[str]) -> str:
    """`node a`, `nodes a, b, c and 4 more`."""
    return f"{'node' if len(set(names)) == 1 else 'nodes'} {named(names)}"
