"""The search of last resort: type after type, device after device, over all groups at once.

Given a problem whose groups are too entangled to list all they can give; looks for one complete solution only and
remembers states that led nowhere. Complete, not cheapest: within a type cheaper choices come first.
"""

from __future__ import annotations

from dovetail.allocate.budget import Budget
from dovetail.allocate.groups import Group, Split
from dovetail.allocate.layouts import worth_of
from dovetail.model.policy import AllocationPolicy

Draws = tuple[tuple[int, int], ...]


class Flat:
    """One search over all choices, resources under one numbering."""

    def __init__(self, split: Split, wanted: tuple[int, ...], *, policy: AllocationPolicy, budget: Budget) -> None:
        self.split = split
        self.policy = policy
        self.budget = budget
        self.limits: list[int] = [1] * split.shared
        self.ways: list[list[tuple[int, Draws, Draws, int, tuple[int, ...]]]] = [[] for _ in wanted]
        for group in split.groups:
            self._add_group(group)
        for stock in split.stocks:
            place = len(self.limits)
            self.limits.append(len(stock.devices))
            for kind, cost in stock.cost.items():
                self.ways[kind].append((cost, ((place, 1),), (), -1, stock.devices))
        for ways in self.ways:
            ways.sort(key=lambda way: (way[0], way[4][0]))
        self.order = sorted(range(len(wanted)), key=lambda kind: (len(self.ways[kind]) - wanted[kind], kind))
        self.wanted = wanted
        self.failed: set[tuple[int, int, int, tuple[int, ...]]] = set()
        self.cost = 0
        self.taken: list[tuple[int, tuple[int, ...]]] = []

    def _add_group(self, group: Group) -> None:
        shape = group.shape
        start = len(self.limits)
        shared = dict(shape.shared)
        self.limits += shape.limits

        def placed(draws: Draws) -> Draws:
            return tuple((shared.get(place, start + place), amount) for place, amount in draws)

        for choice, cost, found in zip(shape.choices, shape.costs, group.devices, strict=True):
            opening = -1 if choice.opening < 0 else start + choice.opening
            self.ways[choice.kind].append((cost, placed(choice.draws), placed(choice.first), opening, found))

    def solve(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The devices by type and what they cost; None if there are none."""
        left = list(self.limits)
        if not self._next_type(0, left):
            return None
        self.cost += self._lost(left)
        used: dict[tuple[int, ...], int] = {}
        picks = []
        for kind, devices in self.taken:
            picks.append((kind, devices[used.get(devices, 0) if len(devices) > 1 else 0]))
            used[devices] = used.get(devices, 0) + 1
        return self.cost, picks

    def _lost(self, left: list[int]) -> int:
        """What counter sets and shareable devices are worth less."""
        lost, start = 0, self.split.shared
        for group in self.split.groups:
            shape = group.shape
            after = left[start : start + len(shape.limits)]
            start += len(shape.limits)
            for worth in shape.worths:
                lost += worth_of(worth, shape.limits, self.policy) - worth_of(worth, after, self.policy)
        return lost

    def _next_type(self, position: int, left: list[int]) -> bool:
        if position == len(self.order):
            return True
        for kind in self.order[position:]:
            if sum(self._most(way, left) for way in self.ways[kind]) < self.wanted[kind]:
                return False
        return self._devices(position, self.wanted[self.order[position]], 0, left)

    def _most(self, way: tuple[int, Draws, Draws, int, tuple[int, ...]], left: list[int]) -> int:
        """A bound on how often a way can be gone."""
        return min((left[place] // amount if amount else 0 if left[place] < 0 else 99) for place, amount in way[1])

    def _devices(self, position: int, missing: int, start: int, left: list[int]) -> bool:
        """So many more devices for a type, from the ways not passed over yet."""
        if not missing:
            return self._next_type(position + 1, left)
        key = (position, missing, start, tuple(left))
        if key in self.failed:
            return False
        kind = self.order[position]
        for number in range(start, len(self.ways[kind])):
            cost, draws, first, opening, devices = self.ways[kind][number]
            if opening >= 0 and left[opening]:
                draws = (*draws, *first, (opening, 1))
            self.budget.spend()
            if any(left[place] < amount for place, amount in draws):
                continue
            for place, amount in draws:
                left[place] -= amount
            self.taken.append((kind, devices))
            self.cost += cost
            if self._devices(position, missing - 1, number, left):
                return True
            self.cost -= cost
            self.taken.pop()
            for place, amount in draws:
                left[place] += amount
        self.failed.add(key)
        return False
