"""Spreads devices that differ in nothing but who may have them over the types that want them.

Given stocks of interchangeable devices and how many each type needs; finds a complete assignment if there is one
(augmenting paths, polynomial), cheap stocks first. Never looks inside a device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Stock(NamedTuple):
    """Interchangeable devices: who may take them, at what cost each."""

    devices: tuple[int, ...]
    cost: dict[int, int]  # type -> cost of one; only these types may take them


Spread = dict[tuple[int, int], int]  # (type, stock) -> how many


def spread(stocks: Sequence[Stock], need: Sequence[int]) -> tuple[int, Spread] | None:
    """A cheap assignment that serves every type, with its cost; None if there is none."""
    free = [len(stock.devices) for stock in stocks]
    given: Spread = {}
    order = {
        kind: sorted(
            (s for s, stock in enumerate(stocks) if kind in stock.cost), key=lambda s: (stocks[s].cost[kind], s)
        )
        for kind, wanted in enumerate(need)
        if wanted
    }
    for kind, stocks_in_order in order.items():
        missing = need[kind]
        for s in stocks_in_order:
            taken = min(missing, free[s])
            if taken:
                given[kind, s] = taken
                free[s] -= taken
                missing -= taken
            if not missing:
                break
        for _ in range(missing):
            if not _augment(kind, order, free, given):
                return None
    return sum(stocks[s].cost[kind] * number for (kind, s), number in given.items()), given


def _augment(start: int, order: dict[int, list[int]], free: list[int], given: Spread) -> bool:
    """One more device for a type, moving others out of the way if that helps."""
    came_from: dict[int, tuple[int, int]] = {}  # type -> (type that wants its stock, stock)
    seen = {start}
    waiting = deque((start,))
    while waiting:
        kind = waiting.popleft()
        for s in order[kind]:
            if free[s]:
                free[s] -= 1
                _shift(kind, s, start, came_from, given)
                return True
        for s in order[kind]:
            for other in order:
                if other not in seen and given.get((other, s)):
                    seen.add(other)
                    came_from[other] = (kind, s)
                    waiting.append(other)
    return False


def _shift(kind: int, stock: int, start: int, came_from: dict[int, tuple[int, int]], given: Spread) -> None:
    given[kind, stock] = given.get((kind, stock), 0) + 1
    while kind != start:
        wanting, contested = came_from[kind]
        given[kind, contested] -= 1
        given[wanting, contested] = given.get((wanting, contested), 0) + 1
        kind = wanting
