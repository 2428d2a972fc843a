"""The search of last resort: type after type, device after device, over all groups at once.

Given a problem whose groups are too entangled to enumerate everything they can give. Looks for one complete solution
and remembers states that led nowhere. Complete, but not cheapest: within a type cheaper choices come first.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.allocate.outcome import Budget
from dovetail.allocate.solve.device_groups import Group, Split
from dovetail.allocate.solve.group_layouts import leftover_value
from dovetail.model.policy import AllocationPolicy

Draws = tuple[tuple[int, int], ...]  # resource, amount
_UNLIMITED = 99  # uses of a resource from which nothing is drawn


class _Way(NamedTuple):
    """One way to serve a type: a choice of a group, or a stock; resources are numbered across all groups."""

    cost: int
    draws: Draws
    first: Draws  # drawn in addition by the first use of a shareable device
    opening: int  # the resource that says whether it is the first; -1: never
    devices: tuple[int, ...]  # interchangeable


class FallbackSearch:
    """One search over all choices, resources under one numbering: shared values, then group after group, stocks."""

    def __init__(
        self, split: Split, counts: tuple[int, ...], *, policy: AllocationPolicy, budget: Budget
    ) -> None:
        self.split = split
        self.policy = policy
        self.budget = budget
        self.limits: list[int] = [1] * split.shared
        self.ways: list[list[_Way]] = [[] for _ in counts]
        for group in split.groups:
            self._add_group(group)
        for stock in split.stocks:
            place = len(self.limits)
            self.limits.append(len(stock.devices))
            for kind, cost in stock.cost.items():
                self.ways[kind].append(_Way(cost, ((place, 1),), (), -1, stock.devices))
        for ways in self.ways:
            ways.sort(key=lambda way: (way.cost, way.devices[0]))
        # The type with the least slack first: it fails soonest, before much has been tried for the others.
        self.order = sorted(
            range(len(counts)), key=lambda kind: (len(self.ways[kind]) - counts[kind], kind)
        )
        self.counts = counts
        self.failed: set[tuple[int, int, int, tuple[int, ...]]] = set()
        self.cost = 0
        self.picked: list[tuple[int, tuple[int, ...]]] = []

    def _add_group(self, group: Group) -> None:
        shape = group.shape
        start = len(self.limits)
        shared = dict(shape.shared)
        self.limits += shape.limits

        def numbered(draws: Draws) -> Draws:
            return tuple((shared.get(place, start + place), amount) for place, amount in draws)

        for choice, cost, devices in zip(shape.choices, shape.costs, group.devices, strict=True):
            opening = -1 if choice.opening < 0 else start + choice.opening
            way = _Way(cost, numbered(choice.draws), numbered(choice.first), opening, devices)
            self.ways[choice.kind].append(way)

    def solve(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The devices by type and their cost; None if there is no solution."""
        remaining = list(self.limits)
        if not self._next_type(0, remaining):
            return None
        self.cost += self._lost_value(remaining)
        used: dict[tuple[int, ...], int] = {}
        picks = []
        for kind, devices in self.picked:
            picks.append((kind, devices[used.get(devices, 0) if len(devices) > 1 else 0]))
            used[devices] = used.get(devices, 0) + 1
        return self.cost, picks

    def _lost_value(self, remaining: list[int]) -> int:
        """What counter sets and shareable devices have lost in value."""
        lost, start = 0, self.split.shared
        for group in self.split.groups:
            shape = group.shape
            after = remaining[start : start + len(shape.limits)]
            start += len(shape.limits)
            for worth in shape.worths:
                lost += leftover_value(worth, shape.limits, self.policy)
                lost -= leftover_value(worth, after, self.policy)
        return lost

    def _next_type(self, position: int, remaining: list[int]) -> bool:
        if position == len(self.order):
            return True
        # A bound before descending: every type still to come must have enough ways on paper.
        for kind in self.order[position:]:
            if sum(_uses_at_most(way, remaining) for way in self.ways[kind]) < self.counts[kind]:
                return False
        return self._devices(position, self.counts[self.order[position]], 0, remaining)

    def _devices(self, position: int, missing: int, start: int, remaining: list[int]) -> bool:
        """So many more devices for a type, from the ways not passed over yet.

        Ways are used in order, each as often as it fits, so combinations are tried once and not in every order. What
        can follow depends only on the key below: a state that failed once fails whatever led to it.
        """
        if not missing:
            return self._next_type(position + 1, remaining)
        key = (position, missing, start, tuple(remaining))
        if key in self.failed:
            return False
        kind = self.order[position]
        for number in range(start, len(self.ways[kind])):
            cost, draws, first, opening, devices = self.ways[kind][number]
            if opening >= 0 and remaining[opening]:
                draws = (*draws, *first, (opening, 1))
            self.budget.spend()
            if any(remaining[place] < amount for place, amount in draws):
                continue
            for place, amount in draws:
                remaining[place] -= amount
            self.picked.append((kind, devices))
            self.cost += cost
            if self._devices(position, missing - 1, number, remaining):
                return True
            self.cost -= cost
            self.picked.pop()
            for place, amount in draws:
                remaining[place] += amount
        self.failed.add(key)
        return False


def _uses_at_most(way: _Way, remaining: list[int]) -> int:
    """An upper bound on how often a way can be used: by each resource it draws on, without the others."""
    uses = []
    for place, amount in way.draws:
        if amount:
            uses.append(remaining[place] // amount)
        else:
            uses.append(0 if remaining[place] < 0 else _UNLIMITED)
    return min(uses)
