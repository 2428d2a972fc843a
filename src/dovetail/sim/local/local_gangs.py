"""Reads gangs off objects that own pods, as they were applied to a cluster in memory.

Nobody makes their pods here: whoever applies a PodGroup, or the Jobs of a real cluster, brings the pods along. Given
stored documents; what cannot be read as its kind is passed over. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.live.gangs import owner_watch
from dovetail.model import gangs
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World

KINDS: Final = {
    (version.partition("/")[0], kind.name): kind
    for kind in (*registry.OWNERS, *registry.PARENTS)
    for version in (kind.api_version, *registry.OLDER.get(kind, ()))
}


class Owners:
    """Owners in, gangs into the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._book = owner_watch.GangBuilder(self)
        self._book.finish_list(registry.COMPOSITE.name, ())  # all kinds are served here

    def seen(self, stored: codec.Stored) -> None:
        """An object is there, or differs."""
        kind = kind_of(stored)
        if kind is None:
            return
        try:
            found = codec.decode_struct(kind.struct, stored.document)
        except errors.InputError:
            self._book.deleted(kind, stored.struct)
        else:
            self._book.changed(kind, found)

    def gone(self, stored: codec.Stored) -> None:
        """An object is there no longer."""
        kind = kind_of(stored)
        if kind is not None:
            self._book.deleted(kind, stored.struct)

    def gangs(self) -> list[gangs.Gang]:
        """Every gang that was read."""
        return self._book.all_gangs()

    # What the book tells

    def replaced(self, kind: registry.Kind, found: Iterable[Any], resource_version: str) -> None:
        """All at once: told one by one instead."""
        for one in found:
            self.changed(kind, one)

    def changed(self, kind: registry.Kind, found: Any) -> None:
        """A gang is known, or differs."""
        self._world.apply(Changed(found))

    def deleted(self, kind: registry.Kind, found: Any) -> None:
        """A gang is known no longer."""
        self._world.apply(Deleted(found))


def kind_of(stored: codec.Stored) -> registry.Kind | None:
    """The kind of owner an object is, if it is one."""
    found = stored.struct
    if not isinstance(found, codec.Generic):
        return None
    return KINDS.get((found.api_version.partition("/")[0], found.kind))
