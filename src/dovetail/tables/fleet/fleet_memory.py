"""Keeps the picture of all GPUs from version to version, so that a change costs what it touches.

Given the objects of a cluster, version after version. The objects of a node that are the same as before leave its
picture as it is; only the others are drawn again. Remembers at which version each node and holder changed last, so that
a reader who has an earlier version gets what differs. Never reads a cluster, never hides anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import workload_annotations
from dovetail.quantity import durations
from dovetail.tables import membership, text
from dovetail.tables.fleet import fleet_map, fleet_nodes
from dovetail.tables.gpus import gpu_holders

MOST_REMOVED: Final = 10_000  # nodes that are remembered as gone
_SHARED_KINDS: Final = (registry.TAINT_RULE,)  # that may concern any node

HolderKey = tuple[str, str, str]  # kind, namespace, name
Pool = tuple[str, str]  # driver, name


class FleetMap(NamedTuple):
    """The picture at one version. `nodes` are in counting order."""

    version: int
    nodes: tuple[fleet_map.FleetNode, ...]
    holders: Mapping[int, fleet_map.FleetHolder]
    node_versions: Mapping[str, int]  # when each changed last
    holder_versions: Mapping[int, int]
    removed: Mapping[str, int]  # nodes that are gone, and since when
    first_version: int  # from which on changes are known
    products: Mapping[str, tuple[str, ...]]  # of the GPUs of each node
    made_of: Mapping[str, tuple[codec.Stored, ...]]  # the objects behind each node

    def knows(self, version: int) -> bool:
        """Whether it is known what changed after that version."""
        return self.first_version <= version <= self.version


class _Drawn(NamedTuple):
    """A node's picture, the objects that it was made of, and its holders."""

    made_of: tuple[codec.Stored, ...]
    picture: fleet_map.FleetNode | None  # None: the node has no GPUs
    products: tuple[str, ...]
    held: tuple[gpu_holders.Held, ...]
    version: int


class FleetMemory:
    """The pictures of the newest version. May be asked from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: FleetMap | None = None
        self._drawn: dict[str, _Drawn] = {}
        self._numbers: dict[HolderKey, int] = {}
        self._last_number = fleet_map.HIDDEN_HOLDER
        self._holders: dict[int, fleet_map.FleetHolder] = {}
        self._holder_versions: dict[int, int] = {}
        self._removed: dict[str, int] = {}
        self._order: dict[str, list[tuple[int, int, str]]] = {}  # sort keys of names

    def at(
        self,
        objects: object_set.ObjectSet,
        version: int,
        memberships: membership.Memberships | None = None,
    ) -> FleetMap:
        """The picture of these objects. An earlier version than the last one is drawn without memory."""
        with self._lock:
            latest = self._latest
            if latest is not None and latest.version == version:
                return latest
            if latest is not None and latest.version > version:
                return FleetMemory().at(objects, version, memberships)
            known = memberships or membership.Memberships(objects)
            self._latest = self._next(objects, version, known)
            return self._latest

    def _next(
        self, objects: object_set.ObjectSet, version: int, memberships: membership.Memberships
    ) -> FleetMap:
        groups = _by_node(objects)
        changed = [
            name
            for name, made_of in groups.items()
            if name not in self._drawn or not _is_same(self._drawn[name].made_of, made_of)
        ]
        first_version = version if self._latest is None else self._latest.first_version
        self._forget_nodes(groups, version)
        self._draw(objects, groups, changed, version)
        self._name_holders(objects, version, memberships)
        pictures = [each.picture for each in self._drawn.values() if each.picture is not None]
        return FleetMap(
            version=version,
            nodes=tuple(sorted(pictures, key=lambda node: self._order[node.name])),
            holders=dict(self._holders),
            node_versions={name: each.version for name, each in self._drawn.items()},
            holder_versions=dict(self._holder_versions),
            removed=dict(self._removed),
            first_version=first_version,
            products={name: each.products for name, each in self._drawn.items()},
            made_of={name: each.made_of for name, each in self._drawn.items()},
        )

    def _forget_nodes(self, groups: Mapping[str, object], version: int) -> None:
        for name in [name for name in self._drawn if name not in groups]:
            del self._drawn[name], self._order[name]
            self._removed[name] = version
        while len(self._removed) > MOST_REMOVED:
            del self._removed[next(iter(self._removed))]

    def _draw(
        self,
        objects: object_set.ObjectSet,
        groups: Mapping[str, tuple[codec.Stored, ...]],
        names: Iterable[str],
        version: int,
    ) -> None:
        wanted = list(names)
        if not wanted:
            return
        touched = {id(stored): stored for name in wanted for stored in groups[name]}
        part = object_set.of(objects.cluster, touched.values())
        held_by_number: dict[int, gpu_holders.Held] = {}

        def number_of(held: gpu_holders.Held) -> int:
            number = self._number_of(held)
            held_by_number[number] = held
            return number

        all_drawn = {each.picture.name: each for each in fleet_nodes.drawn(part, number_of)}
        for name in wanted:
            before, after = self._drawn.get(name), all_drawn.get(name)
            picture = None if after is None else after.picture
            is_same = before is not None and before.picture == picture
            self._drawn[name] = _Drawn(
                made_of=groups[name],
                picture=picture,
                products=() if after is None else after.products,
                held=tuple(held_by_number[number] for number in _holders_of(picture)),
                version=before.version if before is not None and is_same else version,
            )
            self._order.setdefault(name, text.natural(name))
            self._removed.pop(name, None)
            if picture is None and before is not None and before.picture is not None:
                self._removed[name] = version

    def _number_of(self, held: gpu_holders.Held) -> int:
        key = (held.kind, held.namespace, held.name)
        if key not in self._numbers:
            self._last_number += 1
            self._numbers[key] = self._last_number
        return self._numbers[key]

    def _name_holders(
        self, objects: object_set.ObjectSet, version: int, memberships: membership.Memberships
    ) -> None:
        """Everything about the holders there are: their queue may change although no node does."""
        holders: dict[int, fleet_map.FleetHolder] = {}
        for each in self._drawn.values():
            for held in each.held:
                number = self._number_of(held)
                if number not in holders:
                    holders[number] = _holder(number, held, objects, memberships)
        for number, holder in holders.items():
            if self._holders.get(number) != holder:
                self._holder_versions[number] = version
        for number in [number for number in self._holder_versions if number not in holders]:
            del self._holder_versions[number]
        self._numbers = {key: value for key, value in self._numbers.items() if value in holders}
        self._holders = holders


def _is_same(before: tuple[codec.Stored, ...], after: tuple[codec.Stored, ...]) -> bool:
    """Whether all objects are the ones they were: by identity, because an unchanged object is kept."""
    return len(before) == len(after) and all(map(_is, before, after))


def _is(first: codec.Stored, second: codec.Stored) -> bool:
    return first is second


def _by_node(objects: object_set.ObjectSet) -> dict[str, tuple[codec.Stored, ...]]:
    """The objects that the picture of each node is made of."""
    groups: dict[str, list[codec.Stored]] = {
        stored.struct.metadata.name: [stored] for stored in objects.listed(registry.NODE.name)
    }
    nodes_of_pool: dict[Pool, set[str]] = {}
    for stored in objects.listed(registry.SLICE.name):
        if isinstance(stored.struct, slices.ResourceSlice):
            spec = stored.struct.spec
            names = (
                {spec.node_name} if spec.node_name else {each.node_name for each in spec.devices}
            )
            of_pool = nodes_of_pool.setdefault((spec.driver, spec.pool.name), set())
            for name in names:
                if name and name in groups:
                    groups[name].append(stored)
                    of_pool.add(name)
    for stored in objects.listed(registry.CLAIM.name):
        if isinstance(stored.struct, claims.ResourceClaim):
            for name in _nodes_of_claim(stored.struct, nodes_of_pool):
                groups[name].append(stored)
    for stored in objects.listed(registry.POD.name):
        if isinstance(stored.struct, pods.Pod) and pods.occupies_node(stored.struct):
            name = stored.struct.spec.node_name or ""
            if name in groups:
                groups[name].append(stored)
    for stored in objects.listed(registry.INTENT.name):
        for name in _nodes_of_intent(stored, nodes_of_pool):
            if name in groups:
                groups[name].append(stored)
    shared = [stored for kind in _SHARED_KINDS for stored in objects.listed(kind.name)]
    return {name: (*group, *shared) for name, group in groups.items()}


def _nodes_of_claim(
    claim: claims.ResourceClaim, nodes_of_pool: Mapping[Pool, set[str]]
) -> set[str]:
    allocation = claim.status.allocation
    if allocation is None:
        return set()
    results = allocation.devices.results
    pools = {(result.driver, result.pool) for result in results}
    return {name for pool in pools for name in nodes_of_pool.get(pool, ())}


def _nodes_of_intent(stored: codec.Stored, nodes_of_pool: Mapping[Pool, set[str]]) -> set[str]:
    intent = codec.typed(stored, intents.Intent)
    if intent is None:
        return set()
    names: set[str] = set()
    for kept in (intent.spec.slot, intent.spec.quarantine):
        if kept is not None:
            names.add(kept.node)
            pools = {(device.driver, device.pool) for device in kept.devices}
            names |= {name for pool in pools for name in nodes_of_pool.get(pool, ())}
    return names


def _holders_of(picture: fleet_map.FleetNode | None) -> tuple[int, ...]:
    if picture is None:
        return ()
    return tuple(dict.fromkeys(number for gpu in picture.gpus for number in gpu.holders))


def _holder(
    number: int,
    held: gpu_holders.Held,
    objects: object_set.ObjectSet,
    memberships: membership.Memberships,
) -> fleet_map.FleetHolder:
    key = object_set.Key(registry.POD.name, held.namespace, held.name)
    stored = objects.get(key) if held.kind == gpu_holders.POD else None
    if stored is None or not isinstance(stored.struct, pods.Pod):
        return fleet_map.FleetHolder(
            id=number,
            name=held.name,
            namespace=held.namespace,
            kind=held.kind,
            since=held.since,
        )
    pod = stored.struct
    since = held.since or pod.status.start_time or pod.metadata.creation_timestamp
    return fleet_map.FleetHolder(
        id=number,
        name=held.name,
        namespace=held.namespace,
        kind=held.kind,
        work=memberships.workload_of(pod),
        queue=memberships.of(pod).queue,
        priority=pod.spec.priority or 0,
        user=pod.metadata.labels.get(workload_annotations.USER_LABEL, ""),
        since=since,
        until=_until(pod, memberships),
    )


def _until(pod: pods.Pod, memberships: membership.Memberships) -> str | None:
    """When it ends by the runtime it states."""
    started = timestamps.parse_or_none(pod.status.start_time)
    seconds = memberships.runtime_seconds(pod)
    if started is None or seconds is None:
        return None
    return timestamps.to_text(durations.later(started, seconds))
