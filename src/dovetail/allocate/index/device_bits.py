"""The devices of one node under one numbering: pool after pool, a bit per device.

Given a node view; returns for each device its template, the counters it draws on and what remains of them. Incomplete
and invalid pools are left out. Read only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from dovetail.allocate.ask import constraints
from dovetail.allocate.index.pool_index import Charge, PoolIndex, Sizes, joined, pool_index_of
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.world.devices.device_columns import Template
from dovetail.world.views.node_view import Amounts, NodeView, PoolView

CounterKey = tuple[int, str, str]  # pool, counter set, counter
_NOTHING: Amounts = {}


class NodeDevices:
    """The devices a search may use, by number."""

    __slots__ = (
        "_values",
        "charged",
        "effort",
        "facts",
        "lists",
        "pools",
        "shareable",
        "starts",
        "used",
        "view",
    )

    def __init__(self, view: NodeView, *, lists: bool = True, effort: Effort = UNBOUNDED) -> None:
        self.view = view
        self.effort = effort  # may be spent on evaluating selectors
        self.lists = lists  # whether constraints compare list attributes
        self.pools: list[PoolView] = [
            pool for pool in view.pools if pool.is_complete and pool.problem is None
        ]
        self.facts: list[PoolIndex] = [pool_index_of(pool.devices) for pool in self.pools]
        self.starts: list[int] = []
        self.shareable = self.charged = self.used = 0
        start = 0
        for pool, facts in zip(self.pools, self.facts, strict=True):
            self.starts.append(start)
            self.shareable |= facts.shareable << start
            self.charged |= facts.charged << start
            self.used |= pool.used << start
            start += len(pool.devices)
        self._values: dict[str, list[constraints.Elements | None]] = {}

    def place(self, device: int) -> tuple[int, int]:
        """The pool of a device and its position there."""
        pool = bisect_right(self.starts, device) - 1
        while not self.starts[pool] <= device < self.starts[pool] + len(self.pools[pool].devices):
            pool -= 1  # empty pools start where the next one does
        return pool, device - self.starts[pool]

    def template(self, device: int) -> Template:
        """Everything of a device but its name and attributes."""
        pool, index = self.place(device)
        return self.pools[pool].devices.templates[index]

    def charges(self, device: int) -> tuple[tuple[CounterKey, int], ...]:
        """What the device draws from counters while it is in use."""
        pool, index = self.place(device)
        charges: tuple[Charge, ...] = self.facts[pool].charges_at(index)
        return tuple(((pool, set_name, name), amount) for set_name, name, amount in charges)

    def left(self, key: CounterKey) -> int:
        """What remains of a counter."""
        pool, set_name, name = key
        return self.pools[pool].counters_left.get(set_name, _NOTHING).get(name, 0)

    def is_shared_already(self, device: int) -> bool:
        """Whether a share of the device is allocated; if so, its counters are drawn already."""
        pool, index = self.place(device)
        return index in self.pools[pool].shared

    def held(self, device: int) -> Mapping[str, int]:
        """What allocated shares consume of the device's capacities, in nanos."""
        pool, index = self.place(device)
        return self.pools[pool].shared.get(index, _NOTHING)

    def values(self, attribute: str) -> list[constraints.Elements | None]:
        """The elements of an attribute for every device, None for a device without it."""
        values = self._values.get(attribute)
        if values is None:
            values = []
            for pool in self.pools:
                values += constraints.values_in(pool.devices, attribute, lists=self.lists)
            self._values[attribute] = values
        return values

    def sizes(self, mask: int) -> Sizes:
        """The smallest and largest of each capacity among devices, for capacities in which they differ."""
        total: Sizes | None = None
        for start, pool, facts in zip(self.starts, self.pools, self.facts, strict=True):
            in_pool = mask >> start & ((1 << len(pool.devices)) - 1)
            if in_pool:
                sizes = facts.sizes_of(in_pool)
                total = sizes if total is None else joined(total, sizes)
        return {name: size for name, size in (total or {}).items() if size[0] != size[1]}
