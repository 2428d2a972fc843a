"""Reads the cluster for upgrades by watches: the upgrades alone while none needs work, else all that they depend on.

Given a transport and a clock. What a node's next phase rests on can be read again from the server, for that node alone:
a watch may be a moment behind, and work that came to a node in that moment must not be overlooked. Never writes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Self

from dovetail.kube import read_objects
from dovetail.kube.http import transport
from dovetail.kube.watching import watched_objects
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.ports import clock as clocks
from dovetail.upgrade import read_facts, upgrade_loop

_BESIDE: Final = tuple(kind for kind in upgrade_loop.KINDS if kind != registry.STACK_UPGRADE)
# What lives on one node, and the field by which the server selects it.
_OF_NODES: Final = {
    registry.NODE: "metadata.name",
    registry.POD: "spec.nodeName",
    registry.SLICE: "spec.nodeName",
}


class UpgradeWatch:
    """An asynchronous context: watches while it is open."""

    def __init__(self, over: transport.Transport, clock: clocks.Clock) -> None:
        self._over = over
        self._clock = clock
        self._upgrades = watched_objects.WatchedObjects(over, [registry.STACK_UPGRADE], clock)
        self._beside: watched_objects.WatchedObjects | None = None

    async def __aenter__(self) -> Self:
        await self._upgrades.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rest()
        await self._upgrades.__aexit__()

    async def read(self) -> upgrade_loop.Reading:
        """The upgrades, and what they depend on where one needs work."""
        upgrades = await self._upgrades.now()
        if not any(map(upgrade_loop.needs_work, read_facts.upgrades_of(upgrades.objects))):
            await self._rest()
            return upgrade_loop.Reading(upgrades.objects, has_rules=False)
        if self._beside is None:
            self._beside = watched_objects.WatchedObjects(self._over, _BESIDE, self._clock)
            await self._beside.__aenter__()
        beside = await self._beside.now()
        upgrades = await self._upgrades.now()
        by_kind = {**beside.objects.by_kind, **upgrades.objects.by_kind}
        objects = object_set.ObjectSet("", by_kind=by_kind)
        rules = beside.served.get(registry.TAINT_RULE)
        if rules is None:
            return upgrade_loop.Reading(objects, has_rules=False)
        return upgrade_loop.Reading(objects, has_rules=True, rules=rules)

    async def confirm(
        self, reading: upgrade_loop.Reading, names: Collection[str]
    ) -> upgrade_loop.Reading:
        """The reading with these nodes, their pods and their slices as the server has them now."""
        reads = [
            object_set.Read(kind, fields=f"{field}={name}")
            for kind, field in _OF_NODES.items()
            for name in sorted(names)
        ]
        fresh = await read_objects.read_over(self._over, reads, cluster="")
        return reading._replace(objects=with_nodes(reading.objects, fresh.objects, names))

    async def _rest(self) -> None:
        """Ends the watches that only an upgrade under way needs."""
        if self._beside is not None:
            await self._beside.__aexit__()
            self._beside = None


def with_nodes(
    objects: object_set.ObjectSet, fresh: object_set.ObjectSet, names: Collection[str]
) -> object_set.ObjectSet:
    """The objects, with those of these nodes as the fresh set has them."""
    by_kind = dict(objects.by_kind)
    for kind in _OF_NODES:
        name = kind.unique_name
        before, after = objects.by_kind.get(name, {}), fresh.by_kind.get(name, {})
        kept = {key: each for key, each in before.items() if _node_of(each.struct) not in names}
        read = {key: each for key, each in after.items() if _node_of(each.struct) in names}
        by_kind[name] = dict(sorted({**kept, **read}.items()))
    return object_set.ObjectSet(objects.cluster, by_kind=by_kind)


def _node_of(struct: Any) -> str:
    match struct:
        case nodes.Node():
            return struct.metadata.name
        case pods.Pod():
            return struct.spec.node_name
        case slices.ResourceSlice():
            return struct.spec.node_name or ""
        case _:
            return ""
