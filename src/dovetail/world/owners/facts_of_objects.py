"""Builds the World, or the list of facts it is made of, from objects that were read once.

Gangs are read off the objects that own pods. Given a set of objects; what cannot be read as its kind is passed over.
For questions and tables; the live scheduler follows events instead. Never decides.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail import errors
from dovetail.kubetypes import codec, object_set, registry
from dovetail.model import gangs
from dovetail.world.events import Changed, Object
from dovetail.world.owners import gang_builder
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
    builder = gang_builder.GangBuilder(_NoReceiver())
    builder.finish_list(registry.COMPOSITE.name, ())  # a set holds all there are
    for stored in objects.all():
        owner = owner_of(stored)
        if owner is not None:
            builder.changed(*owner)
    return builder.all_gangs()


def owner_of(stored: codec.Stored) -> tuple[registry.Kind, Any] | None:
    """The object as an owner of pods, with its kind; None where it is none, or cannot be read as one."""
    group = stored.struct.api_version.partition("/")[0]
    kind = _OWNER_KINDS.get((group, stored.struct.kind))
    if kind is None:
        return None
    if isinstance(stored.struct, kind.struct):
        return kind, stored.struct
    try:
        return kind, codec.decode_struct(kind.struct, stored.document)
    except errors.InputError:
        return None


class _NoReceiver:
    """The builder keeps the gangs itself; nothing follows their changes."""

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """Ignored."""

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """Ignored."""
