"""Spreads interchangeable devices over the types that want them: a bipartite flow.

Given stocks of devices that differ in nothing but which types may take them, and how many each type needs. Complete
and polynomial: a type takes its cheapest stocks first, and augmenting paths move others out of the way if that is not
enough; no augmenting path means that no assignment exists. Cheap, but not always the cheapest. Never looks inside a
device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Stock(NamedTuple):
    """Interchangeable devices: which types may take them, and the cost of each."""

    devices: tuple[int, ...]
    cost: dict[int, int]  # type -> cost of one device; other types may not take them


Spread = dict[tuple[int, int], int]  # (type, stock) -> how many


def spread(stocks: Sequence[Stock], need: Sequence[int]) -> tuple[int, Spread] | None:
    """A cheap assignment that serves every type, with its cost; None if there is none."""
    free = [len(stock.devices) for stock in stocks]
    assignment: Spread = {}
    cheapest_first = {
        kind: _cheapest_first(kind, stocks) for kind, count in enumerate(need) if count
    }
    for kind, ordered in cheapest_first.items():
        missing = need[kind]
        for stock in ordered:
            number = min(missing, free[stock])
            if number:
                assignment[kind, stock] = number
                free[stock] -= number
                missing -= number
            if not missing:
                break
        for _ in range(missing):
            if not _augment(kind, cheapest_first, free, assignment):
                return None
    cost = sum(stocks[stock].cost[kind] * number for (kind, stock), number in assignment.items())
    return cost, assignment


def _cheapest_first(kind: int, stocks: Sequence[Stock]) -> list[int]:
    """The stocks a type may take from, cheapest first, then in order."""
    allowed = [number for number, stock in enumerate(stocks) if kind in stock.cost]
    allowed.sort(key=lambda number: (stocks[number].cost[kind], number))
    return allowed


def _augment(
    start: int, stocks_of: dict[int, list[int]], free: list[int], assignment: Spread
) -> bool:
    """One more device for a type. Breadth first over types: each may hand a device on if it finds another one.

    By the theory of maximum flows, if no such path exists from here, the type cannot be served at all.
    """
    came_from: dict[int, tuple[int, int]] = {}  # type -> (type that wants its device, stock)
    visited = {start}
    queue = deque((start,))
    while queue:
        kind = queue.popleft()
        for stock in stocks_of[kind]:
            if free[stock]:
                free[stock] -= 1
                _shift(kind, stock, start, came_from, assignment)
                return True
        for stock in stocks_of[kind]:
            for holder in stocks_of:
                if holder not in visited and assignment.get((holder, stock)):
                    visited.add(holder)
                    came_from[holder] = (kind, stock)
                    queue.append(holder)
    return False


def _shift(
    kind: int, stock: int, start: int, came_from: dict[int, tuple[int, int]], assignment: Spread
) -> None:
    """Gives `kind` a free device and passes one device on along the path, back to `start`."""
    assignment[kind, stock] = assignment.get((kind, stock), 0) + 1
    while kind != start:
        receiver, contested = came_from[kind]
        assignment[kind, contested] -= 1
        assignment[receiver, contested] = assignment.get((receiver, contested), 0) + 1
        kind = receiver
