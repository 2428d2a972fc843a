"""Reads gangs off objects that own pods, as they were applied to a cluster in memory.

Nobody makes their pods here: whoever applies a PodGroup, or the Jobs of a real cluster, brings the pods along. Given
stored documents; what cannot be read as its kind is passed over. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dovetail import errors
from dovetail.loops import grouping
from dovetail.model import gangs, kinds, objects
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World

KINDS: Final = {
    (version.partition("/")[0], kind.name): kind
    for kind in (*kinds.OWNERS, *kinds.PARENTS)
    for version in (kind.api_version, *kinds.OLDER.get(kind, ()))
}


class Owners:
    """Owners in, gangs into the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._book = grouping.Book(self)
        self._book.remain(kinds.COMPOSITE.name, ())  # all kinds are served here

    def seen(self, stored: objects.Stored) -> None:
        """An object is there, or differs."""
        kind = kind_of(stored)
        if kind is None:
            return
        try:
            found = objects.decode_struct(kind.struct, stored.document)
        except errors.InputError:
            self._book.deleted(kind, stored.struct)
        else:
            self._book.changed(kind, found)

    def gone(self, stored: objects.Stored) -> None:
        """An object is there no longer."""
        kind = kind_of(stored)
        if kind is not None:
            self._book.deleted(kind, stored.struct)

    def gangs(self) -> list[gangs.Gang]:
        """Every gang that was read."""
        return self._book.all()

    # What the book tells

    def replaced(self, kind: kinds.Kind, found: Iterable[Any], resource_version: str) -> None:
        """All at once: told one by one instead."""
        for one in found:
            self.changed(kind, one)

    def changed(self, kind: kinds.Kind, found: Any) -> None:
        """A gang is known, or differs."""
        self._world.apply(Changed(found))

    def deleted(self, kind: kinds.Kind, found: Any) -> None:
        """A gang is known no longer."""
        self._world.apply(Deleted(found))


def kind_of(stored: objects.Stored) -> kinds.Kind | None:
    """The kind of owner an object is, if it is one."""
    found = stored.struct
    if not isinstance(found, objects.Generic):
        return None
    return KINDS.get((found.api_version.partition("/")[0], found.kind))
