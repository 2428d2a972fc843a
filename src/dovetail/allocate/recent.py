"""A table that keeps what was used last, up to a total weight: memory has one bound, whatever it is filled with."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key. The least recently used are dropped once all of them weigh too much."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value, which is now the most recently used; None where there is none."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, *, weight: int = 1) -> None:
        """Keeps a value; one that is heavier than all may be stays until the next comes."""
        before = self._entries.pop(key, None)
        if before is not None:
            self.weight -= before[1]
        self._entries[key] = (value, weight)
        self.weight += weight
        while self.weight > self._most and len(self._entries) > 1:
            _, (_, dropped) = self._entries.popitem(last=False)
            self.weight -= dropped

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self.weight = 0
