"""The devices of one node under one numbering: pool after pool, a bit per device.

Given a node view; tells of each device its template, what it draws on and what is left there. Pools that are
incomplete or invalid are left out. Read only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from dovetail.allocate import constraints
from dovetail.allocate.facts import Charge, Facts, Sizes, facts_of, joined
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.world.devices import Template
from dovetail.world.view import Amounts, NodeView, PoolView

CounterKey = tuple[int, str, str]  # pool, counter set, counter
_NOTHING: Amounts = {}


class Ground:
    """What a search stands on."""

    __slots__ = ("_values", "charged", "effort", "facts", "lists", "pools", "shareable", "starts", "used", "view")

    def __init__(self, view: NodeView, *, lists: bool = True, effort: Effort = UNBOUNDED) -> None:
        self.view = view
        self.effort = effort  # what may be spent on selectors
        self.lists = lists  # whether constraints understand list attributes
        self.pools: list[PoolView] = [pool for pool in view.pools if pool.is_complete and pool.problem is None]
        self.facts: list[Facts] = [facts_of(pool.devices) for pool in self.pools]
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
        """All of a device but its name and attributes."""
        pool, index = self.place(device)
        return self.pools[pool].devices.templates[index]

    def charges(self, device: int) -> tuple[tuple[CounterKey, int], ...]:
        """What the device draws from counters while it is in use."""
        pool, index = self.place(device)
        found: tuple[Charge, ...] = self.facts[pool].charges_at(index)
        return tuple(((pool, set_name, name), amount) for set_name, name, amount in found)

    def left(self, key: CounterKey) -> int:
        """What is left of a counter."""
        pool, set_name, name = key
        return self.pools[pool].counters_left.get(set_name, _NOTHING).get(name, 0)

    def is_shared_already(self, device: int) -> bool:
        """Whether somebody holds a share: its counters are drawn on then."""
        pool, index = self.place(device)
        return index in self.pools[pool].shared

    def held(self, device: int) -> Mapping[str, int]:
        """What shares already take of the device's capacities, in nanos."""
        pool, index = self.place(device)
        return self.pools[pool].shared.get(index, _NOTHING)

    def values(self, attribute: str) -> list[constraints.Elements | None]:
        """The elements every device has for an attribute, None where it has none."""
        known = self._values.get(attribute)
        if known is None:
            known = self._values[attribute] = [
                value
                for pool in self.pools
                for value in constraints.values_in(pool.devices, attribute, lists=self.lists)
            ]
        return known

    def sizes(self, mask: int) -> Sizes:
        """The least and most of each capacity among devices, where these differ."""
        found: Sizes | None = None
        for start, pool, facts in zip(self.starts, self.pools, self.facts, strict=True):
            mine = mask >> start & ((1 << len(pool.devices)) - 1)
            if mine:
                sizes = facts.sizes_of(mine)
                found = sizes if found is None else joined(found, sizes)
        return {name: size for name, size in (found or {}).items() if size[0] != size[1]}
