"""Everything one group can give: each reachable number of devices per type, with a cheapest way to reach it.

Given a shape and how much is wanted at most. Walks the combinations of choices in one order, so a set of choices is
reached along a single path, never once per permutation. Layouts name choices by position, so groups of one shape
share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.allocate.index.consumed_capacity import share_value
from dovetail.allocate.outcome import Budget
from dovetail.allocate.solve.device_groups import LeftoverValue, Shape
from dovetail.model.policy import AllocationPolicy

Vector = tuple[int, ...]


class Layout(NamedTuple):
    """One way to serve a vector of types: its cost and the choices taken."""

    cost: int
    picks: tuple[int, ...]


def layouts(
    shape: Shape, counts: Vector, *, shared: int, policy: AllocationPolicy, budget: Budget
) -> dict[Vector, Layout]:
    """The best layout for each vector up to the wanted counts, without the empty one.

    A vector has a number per type, then how often each of the `shared` values is used.
    """
    walk = _Walk(shape, counts, shared, policy, budget)
    walk.visit(0, [0] * len(counts), list(shape.limits), [], 0)
    return walk.layouts


class _Walk:
    def __init__(
        self, shape: Shape, counts: Vector, shared: int, policy: AllocationPolicy, budget: Budget
    ) -> None:
        self.shape = shape
        self.counts = counts
        self.shared = shared
        self.policy = policy
        self.budget = budget
        self.layouts: dict[Vector, Layout] = {}
        self.visited: set[tuple[int, Vector, Vector]] = set()
        self.values_before = [leftover_value(worth, shape.limits, policy) for worth in shape.worths]

    def visit(
        self, start: int, vector: list[int], remaining: list[int], picks: list[int], cost: int
    ) -> None:
        """Adds every choice from `start` on that still fits, and continues from there.

        The lists are changed in place and restored: copying them would dominate the run time.
        """
        choices = self.shape.choices
        for number in range(start, len(choices)):
            kind, draws, first, opening = choices[number]
            if vector[kind] >= self.counts[kind]:
                continue
            if opening >= 0 and remaining[opening]:
                # The first share of a device opens it and draws on its counters.
                draws = (*draws, *first, (opening, 1))
            if any(remaining[place] < amount for place, amount in draws):
                continue
            self.budget.spend()
            for place, amount in draws:
                remaining[place] -= amount
            vector[kind] += 1
            picks.append(number)
            cost_with = cost + self.shape.costs[number]
            if self._record(number, vector, remaining, picks, cost_with):
                self.visit(number, vector, remaining, picks, cost_with)
            picks.pop()
            vector[kind] -= 1
            for place, amount in draws:
                remaining[place] += amount

    def _record(
        self, number: int, vector: list[int], remaining: list[int], picks: list[int], cost: int
    ) -> bool:
        """Keeps the layout if it is the cheapest so far; False if this state was visited before.

        What can follow depends only on the last choice, the vector and the remaining limits. Every choice draws on a
        resource of its own device, so paths to one state use the same devices and differ at most in which type has
        which of them: the first path is kept.
        """
        state = (number, tuple(vector), tuple(remaining))
        if state in self.visited:
            return False
        self.visited.add(state)
        for before, worth in zip(self.values_before, self.shape.worths, strict=True):
            cost += before - leftover_value(worth, remaining, self.policy)
        reached = state[1] + self._shared_use(remaining) if self.shared else state[1]
        best = self.layouts.get(reached)
        if best is None or cost < best.cost:
            self.layouts[reached] = Layout(cost, tuple(picks))
        return True

    def _shared_use(self, remaining: list[int]) -> Vector:
        used = [0] * self.shared
        for place, number in self.shape.shared:
            used[number] = self.shape.limits[place] - remaining[place]
        return tuple(used)


def leftover_value(worth: LeftoverValue, remaining: Sequence[int], policy: AllocationPolicy) -> int:
    """The value of what remains of a counter set or a shareable device."""
    if worth.partitions is None:
        return share_value([remaining[place] for _, place in worth.places], worth.base, policy)
    amounts = list(worth.base)
    for position, place in worth.places:
        amounts[position] = remaining[place]
    return worth.partitions.value(tuple(amounts))
