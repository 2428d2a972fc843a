"""What a share of a GPU really occupies, if the shares of a mix are packed as well as they can be.

Given the sharing sizes of a mix and how often each occurs. A linear program over patterns (sizes that fit one GPU
together) minimises the number of GPUs; the dual price of a size is its effective size in GPUs. An 810 milli pod with
which nothing else fits occupies a whole GPU. Solved by column generation: the next pattern is the best knapsack at the
current prices. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import Floats

STEP_MILLI = 10  # the grid of the knapsack; sizes are rounded up to it
_STEPS = pod_mix.MILLI // STEP_MILLI
_TOLERANCE = 1e-9
_MAX_PIVOTS = 2_000  # far above what 10 to 20 sizes need


class EffectiveSizes:
    """The price of each size, and the best total price of sizes that fit into a free part of a GPU."""

    def __init__(self, pods_by_size: Mapping[int, int]) -> None:
        """Solves the program for these sizes in milli-GPU."""
        self.prices = _prices(pods_by_size)
        self.best = _best_totals(self.prices)

    def loss(self, size: int) -> Floats:
        """For every free part in steps of the grid: what placing this size there loses beyond the size itself.

        In GPUs. 0 where the best pattern of the free part contains the size; where the size does not fit it has no
        meaning.
        """
        steps = _steps(size)
        price = self.prices.get(size)
        if price is None:  # not in the mix: what it takes away from an empty GPU
            price = float(self.best[_STEPS] - self.best[_STEPS - steps])
        after = np.zeros(_STEPS + 1)
        after[steps:] = self.best[: _STEPS + 1 - steps]
        return np.maximum(0.0, self.best - after - price)


def _prices(pods_by_size: Mapping[int, int]) -> dict[int, float]:
    """Dual prices of the smallest number of GPUs that holds all pods.

    A primal simplex whose columns are patterns. It starts with GPUs that hold one size each.
    """
    sizes = sorted(pods_by_size)
    if not sizes:
        return {}
    total = sum(pods_by_size.values())
    demand = np.array([pods_by_size[size] / total for size in sizes])
    # Slightly unequal demands keep pivots from going in a circle.
    demand = demand * (1 + 1e-7 * np.arange(1, len(sizes) + 1))
    basis = np.diag([float(_STEPS // _steps(size)) for size in sizes])
    prices: Floats = np.zeros(len(sizes))
    for _ in range(_MAX_PIVOTS):
        prices = np.linalg.solve(basis.T, np.ones(len(sizes))).astype(np.float64)
        pattern = _best_pattern(sizes, prices)
        if pattern @ prices <= 1 + _TOLERANCE:
            break
        amounts = np.linalg.solve(basis, demand)
        direction = np.linalg.solve(basis, pattern)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(direction > _TOLERANCE, amounts / direction, np.inf)
        basis[:, int(np.argmin(ratios))] = pattern
    return dict(zip(sizes, np.maximum(prices, 0.0).tolist(), strict=True))


def _best_pattern(sizes: list[int], prices: Floats) -> Floats:
    """How often each size stands in the pattern of one GPU with the highest total price."""
    best = [0.0] * (_STEPS + 1)
    taken = [-1] * (_STEPS + 1)  # the size added last, by number
    worth = [(number, _steps(size), float(prices[number])) for number, size in enumerate(sizes)]
    for free in range(1, _STEPS + 1):
        best[free] = best[free - 1]
        for number, steps, price in worth:
            if steps <= free and best[free - steps] + price > best[free] + _TOLERANCE:
                best[free] = best[free - steps] + price
                taken[free] = number

    pattern = np.zeros(len(sizes))
    free = _STEPS
    while free > 0:
        if taken[free] < 0:
            free -= 1
            continue
        pattern[taken[free]] += 1
        free -= _steps(sizes[taken[free]])
    return pattern


def _best_totals(prices: Mapping[int, float]) -> Floats:
    """The highest total price of sizes that fit together, for every free part in steps of the grid."""
    best = np.zeros(_STEPS + 1)
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
