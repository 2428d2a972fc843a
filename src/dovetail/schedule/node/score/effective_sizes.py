"""What a share of a GPU really occupies, if the shares of a mix are packed as well as they can be.

Given the sharing sizes of a mix and how often each occurs. A linear program over patterns (sizes that fit one GPU
together) minimises the number of GPUs; the dual price of a size is its effective size in GPUs. An 810 milli pod with
which nothing else fits occupies a whole GPU. Solved by column generation: the next pattern is the best knapsack at the
current prices. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.model import pod_mix

STEP_MILLI: Final = 10  # the grid of the knapsack; sizes are rounded up to it
_STEPS: Final = pod_mix.MILLI // STEP_MILLI
_TOLERANCE: Final = 1e-9
_MAX_PIVOTS: Final = 2_000  # far above what 10 to 20 sizes need


class EffectiveSizes:
    """The price of each size, and the best total price of sizes that fit into a free part of a GPU."""

    def __init__(self, pods_by_size: Mapping[int, int]) -> None:
        """Solves the program for these sizes in milli-GPU."""
        self.prices = _prices(pods_by_size)
        self.best = _best_totals(self.prices)
        self._losses: dict[int, list[float]] = {}

    def loss(self, size: int) -> list[float]:
        """For every free part in steps of the grid: what placing this size there loses beyond the size itself.

        In GPUs. 0 where the best pattern of the free part contains the size; where the size does not fit it has no
        meaning.
        """
        losses = self._losses.get(size)
        if losses is None:
            losses = self._losses[size] = self._loss(size)
        return losses

    def _loss(self, size: int) -> list[float]:
        steps = _steps(size)
        price = self.prices.get(size)
        if price is None:  # not in the mix: what it takes away from an empty GPU
            price = self.best[_STEPS] - self.best[_STEPS - steps]
        after = [0.0] * steps + self.best[: _STEPS + 1 - steps]
        pairs = zip(self.best, after, strict=True)
        return [max(0.0, before - left - price) for before, left in pairs]


def _prices(pods_by_size: Mapping[int, int]) -> dict[int, float]:
    """Dual prices of the smallest number of GPUs that holds all pods.

    A primal simplex whose columns are patterns. It starts with GPUs that hold one size each.
    """
    sizes = sorted(pods_by_size)
    if not sizes:
        return {}
    total = sum(pods_by_size.values())
    # Slightly unequal demands keep pivots from going in a circle.
    demand = [
        pods_by_size[size] / total * (1 + 1e-7 * place) for place, size in enumerate(sizes, start=1)
    ]
    patterns = [
        [float(_STEPS // _steps(size)) if place == row else 0.0 for row in range(len(sizes))]
        for place, size in enumerate(sizes)
    ]
    prices = [0.0] * len(sizes)
    for _ in range(_MAX_PIVOTS):
        prices = _solved(patterns, [1.0] * len(sizes))
        pattern = _best_pattern(sizes, prices)
        worth = sum(count * price for count, price in zip(pattern, prices, strict=True))
        if worth <= 1 + _TOLERANCE:
            break
        columns = [list(row) for row in zip(*patterns, strict=True)]
        amounts = _solved(columns, demand)
        direction = _solved(columns, pattern)
        patterns[_leaving(amounts, direction)] = pattern
    return {size: max(price, 0.0) for size, price in zip(sizes, prices, strict=True)}


def _leaving(amounts: Sequence[float], direction: Sequence[float]) -> int:
    """The pattern that is used up first as the new one is used more."""
    ratios = [
        amount / step if step > _TOLERANCE else float("inf")
        for amount, step in zip(amounts, direction, strict=True)
    ]
    return ratios.index(min(ratios))


def _solved(rows: Sequence[Sequence[float]], right_side: Sequence[float]) -> list[float]:
    """The solution of a system of linear equations, by elimination with the largest pivot of each column."""
    size = len(rows)
    table = [[*row, value] for row, value in zip(rows, right_side, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(table[row][column]))
        table[column], table[pivot] = table[pivot], table[column]
        pivot_row = table[column]
        for row in table[column + 1 :]:
            factor = row[column] / pivot_row[column]
            if factor:
                row[column:] = [
                    value - factor * above
                    for value, above in zip(row[column:], pivot_row[column:], strict=True)
                ]

    solution = [0.0] * size
    for place in range(size - 1, -1, -1):
        row = table[place]
        known = sum(row[other] * solution[other] for other in range(place + 1, size))
        solution[place] = (row[size] - known) / row[place]
    return solution


def _best_pattern(sizes: Sequence[int], prices: Sequence[float]) -> list[float]:
    """How often each size stands in the pattern of one GPU with the highest total price."""
    best = [0.0] * (_STEPS + 1)
    taken = [-1] * (_STEPS + 1)  # the size added last, by number
    worth = [
        (number, _steps(size), price)
        for number, (size, price) in enumerate(zip(sizes, prices, strict=True))
    ]
    for free in range(1, _STEPS + 1):
        best[free] = best[free - 1]
        for number, steps, price in worth:
            if steps <= free and best[free - steps] + price > best[free] + _TOLERANCE:
                best[free] = best[free - steps] + price
                taken[free] = number

    pattern = [0.0] * len(sizes)
    free = _STEPS
    while free > 0:
        if taken[free] < 0:
            free -= 1
            continue
        pattern[taken[free]] += 1
        free -= _steps(sizes[taken[free]])
    return pattern


def _best_totals(prices: Mapping[int, float]) -> list[float]:
    """The highest total price of sizes that fit together, for every free part in steps of the grid."""
    best = [0.0] * (_STEPS + 1)
    for free in range(1, _STEPS + 1):
        totals = [
            best[free - _steps(size)] + price
            for size, price in prices.items()
            if _steps(size) <= free
        ]
        best[free] = max(best[free - 1], *totals) if totals else best[free - 1]
    return best


def _steps(size: int) -> int:
    return max(1, -(-size // STEP_MILLI))
