"""Everything one group can give: each reachable number of devices per type, at its lowest cost.

Given a shape and how much is wanted at most; walks every combination once, in the order of the choices, and keeps
the cheapest for each outcome. Results are by position of the choices, so groups of one shape share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.allocate.budget import Budget
from dovetail.allocate.groups import Shape, Worth
from dovetail.allocate.score import share_value
from dovetail.model.policy import AllocationPolicy

Vector = tuple[int, ...]


class Layout(NamedTuple):
    """One way to serve a vector of types: its cost and the choices taken."""

    cost: int
    picks: tuple[int, ...]


def layouts(
    shape: Shape, wanted: Vector, *, shared: int, policy: AllocationPolicy, budget: Budget
) -> dict[Vector, Layout]:
    """The best layout for each vector up to what is wanted, the empty one left out.

    A vector has a number per type, then how often each of the `shared` values is used.
    """
    walk = _Walk(shape, wanted, shared, policy, budget)
    walk.visit(0, [0] * len(wanted), list(shape.limits), [], 0)
    return walk.found


class _Walk:
    def __init__(self, shape: Shape, wanted: Vector, shared: int, policy: AllocationPolicy, budget: Budget) -> None:
        self.shape = shape
        self.wanted = wanted
        self.shared = shared
        self.policy = policy
        self.budget = budget
        self.found: dict[Vector, Layout] = {}
        self.seen: set[tuple[int, Vector, Vector]] = set()
        self.before = [worth_of(worth, shape.limits, policy) for worth in shape.worths]

    def visit(self, start: int, vector: list[int], left: list[int], picks: list[int], cost: int) -> None:
        """Adds every choice from `start` on that still fits, and goes on from there."""
        choices = self.shape.choices
        for number in range(start, len(choices)):
            kind, draws, first, opening = choices[number]
            if vector[kind] >= self.wanted[kind]:
                continue
            if opening >= 0 and left[opening]:
                draws = (*draws, *first, (opening, 1))
            if any(left[place] < amount for place, amount in draws):
                continue
            self.budget.spend()
            for place, amount in draws:
                left[place] -= amount
            vector[kind] += 1
            picks.append(number)
            if self._record(number, vector, left, picks, cost + self.shape.costs[number]):
                self.visit(number, vector, left, picks, cost + self.shape.costs[number])
            picks.pop()
            vector[kind] -= 1
            for place, amount in draws:
                left[place] += amount

    def _record(self, number: int, vector: list[int], left: list[int], picks: list[int], cost: int) -> bool:
        """Keeps the layout if it is the best so far; False if its future was seen before."""
        key = (number, tuple(vector), tuple(left))
        if key in self.seen:
            return False
        self.seen.add(key)
        for before, worth in zip(self.before, self.shape.worths, strict=True):
            cost += before - worth_of(worth, left, self.policy)
        outcome = key[1] + self._shared_use(left) if self.shared else key[1]
        known = self.found.get(outcome)
        if known is None or cost < known.cost:
            self.found[outcome] = Layout(cost, tuple(picks))
        return True

    def _shared_use(self, left: list[int]) -> Vector:
        used = [0] * self.shared
        for place, number in self.shape.shared:
            used[number] = self.shape.limits[place] - left[place]
        return tuple(used)


def worth_of(worth: Worth, left: Sequence[int], policy: AllocationPolicy) -> int:
    """The value of what is left of a counter set or a shareable device."""
    if worth.partitions is None:
        return share_value([left[place] for _, place in worth.places], worth.base, policy)
    amounts = list(worth.base)
    for position, place in worth.places:
        amounts[position] = left[place]
    return worth.partitions.value(tuple(amounts))
