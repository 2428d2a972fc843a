"""Classes of nodes whose scores change with prices: which is the cheapest now, and its first node by name.

Given for every class the part of its score that stays, and what it loses of scarce things. Linear in classes with nodes
for each pod, never in nodes. Never evaluates a node.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from dovetail.model import policy
from dovetail.schedule.node.score import placement_cost

SLACK = 64  # names in a heap beyond twice those in use before it is built again


class PricedClasses:
    """Scores of the classes of one kind of pods, at the prices set last."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[float, placement_cost.Loss]] = {}
        self._names: dict[int, list[str]] = {}  # by class, a heap that may name nodes that left
        self._prices: placement_cost.Prices | None = None
        self._weights = policy.Weights()
        self._scores: dict[int, float] = {}  # at these prices

    def set_prices(self, prices: placement_cost.Prices, weights: policy.Weights) -> None:
        """Scores are at these prices from now on."""
        if prices is not self._prices:
            self._prices, self._weights = prices, weights
            self._scores.clear()

    def add(self, number: int, fixed: float, loss: placement_cost.Loss) -> None:
        """A class: the part of its score that stays, and what a pod there would lose."""
        self._parts[number] = (fixed, loss)
        self._names[number] = []

    def enter(self, name: str, number: int) -> None:
        """A node is in a class now."""
        heapq.heappush(self._names[number], name)

    def score(self, number: int) -> float:
        """The score of a class now."""
        score = self._scores.get(number)
        if score is None:
            assert self._prices is not None
            fixed, loss = self._parts[number]
            score = placement_cost.priced(fixed, loss, self._prices, self._weights)
            self._scores[number] = score
        return score

    def cheapest(self, class_of: Mapping[str, int]) -> str | None:
        """The node with the lowest score, then name; `class_of` says which nodes are where."""
        best: tuple[float, str] | None = None
        for number, names in self._names.items():
            while names and class_of.get(names[0]) != number:
                heapq.heappop(names)
            if not names:
                continue
            score = self.score(number)
            if best is None or (score, names[0]) < best:
                best = (score, names[0])
        return None if best is None else best[1]

    def keep(self, numbers: Collection[int]) -> None:
        """Forgets every other class."""
        self._parts = {number: self._parts[number] for number in self._parts if number in numbers}
        self._names = {
            number: sorted(set(names)) for number, names in self._names.items() if number in numbers
        }
        self._scores.clear()
