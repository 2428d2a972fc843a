"""Builds the World, or the list of facts it is made of, from objects that were read once.

Gangs are read off the objects that own pods. Given a set of objects; what cannot be read as its kind is passed over.
For questions and tables; the live scheduler follows events instead. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dovetail import errors
from dovetail.kubetypes import codec, object_set, registry
from dovetail.live.gangs import owner_watch
from dovetail.model import gangs
from dovetail.world.events import Changed, Object
from dovetail.world.world import World

# What the questions about a whole cluster need to read.
KINDS: Final = (*registry.WORLD, *registry.OWNERS, *registry.PARENTS)

_WORLD_STRUCTS: Final = tuple(kind.struct for kind in registry.WORLD)
_OWNER_KINDS: Final = {
    (version.partition("/")[0], kind.name): kind
    for kind in (*registry.OWNERS, *registry.PARENTS)
    for version in (kind.api_version, *kind.older_versions)
}


def facts_of(objects: object_set.ObjectSet) -> list[Object]:
    """What the objects say: everything the World is made of, then the gangs."""
    known = [stored.struct for stored in objects.all()]
    facts: list[Object] = [struct for struct in known if isinstance(struct, _WORLD_STRUCTS)]
    return [*facts, *gangs_of(objects)]


def world_of(objects: object_set.ObjectSet) -> World:
    """The World the objects describe."""
    world = World()
    for fact in facts_of(objects):
        world.apply(Changed(fact))
    return world


def gangs_of(objects: object_set.ObjectSet) -> list[gangs.Gang]:
    """The gangs of all owners of pods."""
    builder = owner_watch.GangBuilder(_NoReceiver())
    builder.finish_list(registry.COMPOSITE.name, ())  # a set holds all there are
    for kind, owner in _owners(objects):
        builder.changed(kind, owner)
    return builder.all_gangs()


def _owners(objects: object_set.ObjectSet) -> Iterator[tuple[registry.Kind, Any]]:
    for stored in objects.all():
        group = stored.struct.api_version.partition("/")[0]
        kind = _OWNER_KINDS.get((group, stored.struct.kind))
        if kind is None:
            continue
        if isinstance(stored.struct, kind.struct):
            yield kind, stored.struct
            continue
        try:
            yield kind, codec.decode_struct(kind.struct, stored.document)
        except errors.InputError:
            continue


class _NoReceiver:
    """The builder keeps the gangs itself; nothing follows their changes."""

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """Ignored."""

    def changed(self, kind: registry.Kind, item: Any) -> None:
        """Ignored."""

    def deleted(self, kind: registry.Kind, item: Any) -> None:
        """Ignored."""
