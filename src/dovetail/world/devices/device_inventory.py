"""The devices of the cluster: pools as slices publish them, their usage and holders, and what each node sees.

Given slices, taint rules, and allocations as claims gain and lose them; records in the journal which nodes changed.
Never reads a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, slices, taint_rules
from dovetail.world.change_log import ChangeLog
from dovetail.world.devices import device_overlaps
from dovetail.world.devices.device_columns import Devices, Interner
from dovetail.world.devices.device_pools import Pool, PoolKey, part_of
from dovetail.world.devices.device_usage import Holders, Usage
from dovetail.world.devices.taint_rule_index import Rules
from dovetail.world.events import ObjectKey
from dovetail.world.views import node_view_builder
from dovetail.world.views.node_view import NodeView


class Inventory:
    """Devices by pool, their usage and their views."""

    def __init__(self, change_log: ChangeLog[str], nodes_by_name: Mapping[str, nodes.Node]) -> None:
        self._change_log = change_log
        self._nodes = nodes_by_name
        self._interner = Interner()
        self._rules = Rules()
        self._usage = Usage()
        self._holders = Holders()

        # Pools, and where they can be seen: a pool is either local to one node or wide.
        self._pools: dict[PoolKey, Pool] = {}
        self._slices: dict[str, PoolKey] = {}  # slice name -> its pool
        self._local: dict[str, set[PoolKey]] = {}  # node -> its pools
        self._home: dict[PoolKey, str] = {}  # the node a local pool is filed under
        self._wide: set[PoolKey] = set()

        # Computed on demand, dropped when a pool or a node changes.
        self._unaudited: set[PoolKey] = set()  # pools to check for overlaps
        self._overlaps: dict[PoolKey, tuple[device_overlaps.Overlap, ...]] = {}
        self._newest: dict[PoolKey, Devices] = {}
        self._views: dict[str, NodeView] = {}

    # Questions

    def view(self, node: str) -> NodeView:
        """The node's devices as allocation sees them."""
        view = self._views.get(node)
        if view is None:
            view = self._views[node] = node_view_builder.node_view(
                self._nodes[node], self._pools_of(node), self._usage, self._rules
            )
        return view

    def empty_view(self, node: str) -> NodeView:
        """The node's devices as if none were in use or tainted by a rule."""
        return node_view_builder.node_view(self._nodes[node], self._pools_of(node), Usage())

    def _pools_of(self, node: str) -> list[Pool]:
        keys = sorted(self._local.get(node, ())) + sorted(self._wide)
        return [self._pools[key] for key in keys]

    def users(self, pool: PoolKey, device: str) -> tuple[ObjectKey, ...]:
        """The claims that hold a device. Administrative access holds nothing."""
        return tuple(sorted(self._holders.of_device(pool, device)))

    def devices_in(self, key: PoolKey) -> Devices | None:
        """The devices of a pool, in its newest generation; None if it is gone."""
        devices = self._newest.get(key)
        if devices is not None:
            return devices
        pool = self._pools.get(key)
        newest = pool.newest() if pool is not None else None
        if newest is None:
            return None
        self._newest[key] = newest.devices
        return newest.devices

    def slice_counts(self, key: PoolKey) -> tuple[int, int]:
        """How many slices of a pool are published, and how many there should be."""
        pool = self._pools.get(key)
        return pool.slice_counts() if pool is not None else (0, 0)

    def published(self) -> Iterator[Devices]:
        """The devices of every pool."""
        for key in self._pools:
            if (devices := self.devices_in(key)) is not None:
                yield devices

    def overlaps(self) -> tuple[device_overlaps.Overlap, ...]:
        """Claims that hold more than there is. Checks only the pools that changed since the last call."""
        for key in self._unaudited:
            self._audit(key)
        self._unaudited.clear()
        return tuple(overlap for key in sorted(self._overlaps) for overlap in self._overlaps[key])

    def overlaps_in(self, key: PoolKey) -> tuple[device_overlaps.Overlap, ...]:
        """Claims that hold more of a pool than it has."""
        if key in self._unaudited:
            self._audit(key)
            self._unaudited.discard(key)
        return self._overlaps.get(key, ())

    def _audit(self, key: PoolKey) -> None:
        pool = self._pools.get(key)
        generation = pool.newest() if pool is not None else None
        overlaps = device_overlaps.overlaps_of_pool(key, self._holders.of_pool(key), generation)
        if overlaps:
            self._overlaps[key] = overlaps
        else:
            self._overlaps.pop(key, None)

    # Changes

    def put_slice(self, slice_: slices.ResourceSlice, *, is_there: bool) -> None:
        """Adds or replaces a slice, or removes it. A slice may move to another pool."""
        name = slice_.metadata.name
        before = self._slices.pop(name, None)
        if before is not None:
            self._pools[before].drop(name)
            self._file_pool(before)
        if not is_there:
            return
        key = (slice_.spec.driver, slice_.spec.pool.name)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(key, self._interner)
        pool.put(part_of(self._interner, slice_))
        self._slices[name] = key
        self._file_pool(key)

    def put_rules(self, rules: Iterable[taint_rules.DeviceTaintRule]) -> None:
        """Replaces the taint rules."""
        self._rules = Rules(rules)
        self._touch_all()

    def use(
        self, allocation: claims.AllocationResult, claim: ObjectKey | None, *, sign: int
    ) -> None:
        """Takes (1) or returns (-1) devices, for a claim or, without one, to hold them out of use."""
        if claim is not None:
            (self._holders.add if sign > 0 else self._holders.remove)(claim, allocation)
        for key in self._usage.change(allocation, sign):
            self._touch_pool(key)
            self._unaudited.add(key)
            if self._usage.pools[key].is_empty:
                del self._usage.pools[key]

    def refresh(self, node: nodes.Node) -> None:
        """Replaces a node object by one that differs in nothing scheduling reads."""
        name = node.metadata.name
        if name in self._views:
            self._views[name] = self._views[name]._replace(node=node)

    def touch(self, node: str) -> None:
        """A node changed, or the devices it sees."""
        self._views.pop(node, None)
        self._change_log.note(node)

    def _file_pool(self, key: PoolKey) -> None:
        """Files a changed pool under its only node, or as wide; removes one without slices.

        Touches the nodes that saw it before and those that see it now.
        """
        self._newest.pop(key, None)
        self._touch_pool(key)
        self._unaudited.add(key)
        self._wide.discard(key)
        home = self._home.pop(key, None)
        if home is not None:
            self._local[home].discard(key)
            if not self._local[home]:
                del self._local[home]
        pool = self._pools[key]
        node = pool.only_node
        if not pool.parts:
            del self._pools[key]
            return
        if node:
            self._local.setdefault(node, set()).add(key)
            self._home[key] = node
        else:
            self._wide.add(key)
        self._touch_pool(key)

    def _touch_pool(self, key: PoolKey) -> None:
        if key in self._home:
            self.touch(self._home[key])
        elif key in self._wide:
            self._touch_all()

    def _touch_all(self) -> None:
        self._views.clear()
        self._change_log.note_all()
