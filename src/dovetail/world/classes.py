"""Node classes: nodes that look alike to a pod, grouped once and regrouped only where something changed.

What a pod can tell apart depends on what it reads: selectors read attribute values, constraints read only which
devices have equal values. Everything else that bears on device allocation and free resources is always compared.
Labels, names and what other pods do on a node are not: a pod that looks at those must not be placed by class alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from dovetail.world.devices import Column, Devices
from dovetail.world.view import PoolView
from dovetail.world.world import World

EVERY: Final = "*"  # in `values`: all attributes are read
_JOURNAL_LIMIT: Final = 200_000


class Reads(NamedTuple):
    """What a pod's claims read: attribute names whose values matter, and names of which only equality matters."""

    values: frozenset[str]  # as published (`id` or `domain/id`), or EVERY
    patterns: frozenset[str]


class NodeClasses:
    """The nodes of a World in groups of equal keys, for one set of reads."""

    def __init__(self, world: World, reads: Reads) -> None:
        self._world = world
        self._reads = reads
        self._position = len(world.journal)
        self._keys: dict[str, Hashable] = {}
        self._members: dict[Hashable, dict[str, None]] = {}
        self._refresh(world.nodes)

    def groups(self) -> dict[Hashable, dict[str, None]]:
        """Current groups: key -> names of nodes. Costs what changed since the last call."""
        world = self._world
        journal = world.journal
        if self._position > len(journal):  # the journal was cut
            self._refresh({*world.nodes, *self._keys})
        elif self._position < len(journal):
            changed = set(journal[self._position :])
            self._refresh({*world.nodes, *self._keys} if "" in changed else changed)
        self._position = len(journal)
        if len(journal) > _JOURNAL_LIMIT:
            journal.clear()
            self._position = 0
        return self._members

    def key(self, node: str) -> Hashable:
        """The key of one node."""
        return self._keys[node]

    def _refresh(self, names: Iterable[str]) -> None:
        for name in names:
            old = self._keys.pop(name, None)
            if old is not None:
                group = self._members[old]
                del group[name]
                if not group:
                    del self._members[old]
            if name in self._world.nodes:
                key = node_key(self._world, name, self._reads)
                self._keys[name] = key
                self._members.setdefault(key, {})[name] = None


def node_key(world: World, node: str, reads: Reads) -> Hashable:
    """What a pod with these reads can tell of a node, labels and other pods aside."""
    found = world.nodes[node]
    view = world.view(node)
    return (
        world.free(node),
        found.spec.unschedulable,
        tuple((taint.key, taint.value, taint.effect) for taint in found.spec.taints),
        tuple(_pool_key(pool, reads) for pool in view.pools),
    )


def _pool_key(pool: PoolView, reads: Reads) -> Hashable:
    devices = pool.devices
    return (
        devices.driver,
        id(devices.templates),
        id(devices.counter_sets),
        _origin_key(devices),
        _value_key(devices, reads.values),
        tuple(pattern(column) for column in _columns(devices, reads.patterns)),
        pool.usable,
        pool.used,
        tuple(sorted((index, tuple(sorted(amounts.items()))) for index, amounts in pool.shared.items())),
        tuple(sorted((index, taints) for index, taints in pool.extra_taints.items())) if pool.extra_taints else (),
        pool.is_complete,
        pool.problem,
    )


def _origin_key(devices: Devices) -> Hashable:
    """How devices bind to nodes, less the node's own name."""
    kinds = tuple((bool(o.node_name), o.node_selector, o.all_nodes, o.is_per_device) for o in devices.origins[:1])
    return kinds if len(set(devices.origins)) <= 1 else devices.origins


def _value_key(devices: Devices, names: frozenset[str]) -> Hashable:
    if EVERY in names:
        return tuple(map(id, devices.columns)), id(devices.attributes)
    return tuple(map(id, _columns(devices, names)))


def _columns(devices: Devices, names: frozenset[str]) -> list[Column | None]:
    return [devices.column(name) for name in sorted(names)]


_PATTERNS: dict[int, tuple[Column, tuple[int, ...]]] = {}


def pattern(column: Column | None) -> tuple[int, ...] | None:
    """Which devices have equal values: for each, the first device with its value; -1 for none."""
    if column is None:
        return None
    known = _PATTERNS.get(id(column))
    if known is None or known[0] is not column:
        first: dict[object, int] = {}
        found = tuple(-1 if value is None else first.setdefault(value, i) for i, value in enumerate(column))
        if len(_PATTERNS) > 100_000:
            _PATTERNS.clear()
        known = _PATTERNS[id(column)] = (column, found)
    return known[1]
