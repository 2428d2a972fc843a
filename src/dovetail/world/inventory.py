"""The devices of the cluster: pools as slices publish them, what is taken of them and by whom, what each node sees.

Given slices, taint rules and allocations as claims get and lose them; notes in the journal which nodes changed. Never
reads a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dovetail.model import claims, nodes, slices, taintrules
from dovetail.world import overlaps as overlapping
from dovetail.world import views
from dovetail.world.devices import Devices, Interner
from dovetail.world.events import ObjectKey
from dovetail.world.holders import Holders
from dovetail.world.journal import Journal
from dovetail.world.pools import Pool, PoolKey, part_of
from dovetail.world.rules import Rules
from dovetail.world.usage import Usage
from dovetail.world.view import NodeView


class Inventory:
    """Devices by pool, their use and their views."""

    def __init__(self, journal: Journal[str], known: Mapping[str, nodes.Node]) -> None:
        self._journal = journal
        self._nodes = known
        self._interner = Interner()
        self._pools: dict[PoolKey, Pool] = {}
        self._slices: dict[str, PoolKey] = {}
        self._local: dict[str, set[PoolKey]] = {}
        self._wide: set[PoolKey] = set()
        self._home: dict[PoolKey, str] = {}  # the node a pool is filed under in _local
        self._rules = Rules()
        self._usage = Usage()
        self._holders = Holders()
        self._unaudited: set[PoolKey] = set()  # pools whose overlaps are to be looked for
        self._overlaps: dict[PoolKey, tuple[overlapping.Overlap, ...]] = {}
        self._newest: dict[PoolKey, Devices] = {}  # what was asked for, until the pool changes
        self._views: dict[str, NodeView] = {}

    def view(self, node: str) -> NodeView:
        """The node's devices as allocation sees them."""
        known = self._views.get(node)
        if known is None:
            keys = sorted(self._local.get(node, ())) + sorted(self._wide)
            pools = [self._pools[key] for key in keys]
            known = self._views[node] = views.node_view(self._nodes[node], pools, self._usage, self._rules)
        return known

    def empty_view(self, node: str) -> NodeView:
        """The node's devices if nothing of them were in use."""
        keys = sorted(self._local.get(node, ())) + sorted(self._wide)
        return views.node_view(self._nodes[node], [self._pools[key] for key in keys], Usage())

    def users(self, pool: PoolKey, device: str) -> tuple[ObjectKey, ...]:
        """The claims that hold a device. Administrative access holds nothing."""
        return tuple(sorted(self._holders.of_device(pool, device)))

    def devices_in(self, key: PoolKey) -> Devices | None:
        """The devices of a pool, in its newest generation; None if it is gone."""
        known = self._newest.get(key)
        if known is None and (pool := self._pools.get(key)) is not None and (newest := pool.newest()) is not None:
            known = self._newest[key] = newest.devices
        return known

    def published(self) -> Iterator[Devices]:
        """The devices of every pool."""
        for key in self._pools:
            if (devices := self.devices_in(key)) is not None:
                yield devices

    def overlaps(self) -> tuple[overlapping.Overlap, ...]:
        """Claims that hold more than there is. Looks again only at pools that changed since it was asked last."""
        for key in self._unaudited:
            self._audit(key)
        self._unaudited.clear()
        return tuple(one for key in sorted(self._overlaps) for one in self._overlaps[key])

    def overlaps_in(self, key: PoolKey) -> tuple[overlapping.Overlap, ...]:
        """Claims that hold more of a pool than there is."""
        if key in self._unaudited:
            self._audit(key)
            self._unaudited.discard(key)
        return self._overlaps.get(key, ())

    def put_slice(self, slice_: slices.ResourceSlice, *, is_there: bool) -> None:
        """A slice is there, or gone."""
        name = slice_.metadata.name
        before = self._slices.pop(name, None)
        if before is not None:
            self._pools[before].drop(name)
            self._settle(before)
        if is_there:
            key = (slice_.spec.driver, slice_.spec.pool.name)
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = Pool(key, self._interner)
            pool.put(part_of(self._interner, slice_))
            self._slices[name] = key
            self._settle(key)

    def put_rules(self, rules: Iterable[taintrules.DeviceTaintRule]) -> None:
        """These are the taint rules now."""
        self._rules = Rules(rules)
        self._touch_all()

    def use(self, allocation: claims.AllocationResult, claim: ObjectKey | None, *, sign: int) -> None:
        """Takes (1) or gives back (-1) devices, for a claim or just out of use."""
        if claim is not None:
            (self._holders.add if sign > 0 else self._holders.remove)(claim, allocation)
        for key in self._usage.change(allocation, sign):
            self._touch_pool(key)
            self._unaudited.add(key)
            if self._usage.pools[key].is_empty:
                del self._usage.pools[key]

    def refresh(self, node: nodes.Node) -> None:
        """A node object was replaced by one that decides alike."""
        name = node.metadata.name
        if name in self._views:
            self._views[name] = self._views[name]._replace(node=node)

    def touch(self, node: str) -> None:
        """A node changed, or what it sees."""
        self._views.pop(node, None)
        self._journal.note(node)

    def _audit(self, key: PoolKey) -> None:
        pool = self._pools.get(key)
        found = overlapping.found_in(key, self._holders.of_pool(key), pool.newest() if pool is not None else None)
        if found:
            self._overlaps[key] = found
        else:
            self._overlaps.pop(key, None)

    def _settle(self, key: PoolKey) -> None:
        """Files a pool under the node it belongs to, or under none."""
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
        self._journal.note_all()
