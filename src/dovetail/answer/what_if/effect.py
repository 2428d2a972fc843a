"""What one change amounts to: edits of objects, and the assumption that is made about it. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.answer.replica.replica import Edit
from dovetail.kubetypes import codec, object_set


class Effect(NamedTuple):
    """Edits, and a sentence that says what was assumed."""

    edits: list[Edit]
    assumption: str
    lost: tuple[str, ...] = ()  # pods that no controller creates again


def changed(before: codec.Stored, struct: codec.Object) -> Edit:
    """The object with another struct; what the struct does not model stays."""
    return Edit(object_set.key_of(struct), codec.replace(before, struct))


def created(struct: codec.Object) -> Edit:
    """A new object."""
    return Edit(object_set.key_of(struct), codec.store(struct))


def deleted(struct: codec.Object) -> Edit:
    """The object is gone."""
    return Edit(object_set.key_of(struct), None)


def listed(names: Sequence[str], *, most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    hidden = len(names) - most
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
