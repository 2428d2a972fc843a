"""Keeps what decisions remember of a world, apart for each way of deciding; forgotten with the world.

Given how to make it anew. The few ways used last are kept. Never looks into what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from dovetail.world.world import World

MOST_WAYS: Final = 4  # remembered for one world
T = TypeVar("T")


class Memory(Generic[T]):
    """One thing for each world and way."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[World, dict[bytes, T]] = WeakKeyDictionary()

    def of(self, world: World, way: bytes, make: Callable[[], T]) -> T:
        """What is remembered, or made anew. What is made must not hold the world."""
        by_way = self._kept.setdefault(world, {})
        known = by_way.pop(way, None)
        if known is None:
            while len(by_way) >= MOST_WAYS:
                del by_way[next(iter(by_way))]
            known = make()
        by_way[way] = known  # used last
        return known
