"""A table on top of another one that stays as it is: what a decision changes in tables that outlive it.

Making one copies nothing, however large the table below is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """Entries of its own, above those of a table that it never changes."""

    __slots__ = ("_below", "_own")

    def __init__(self, below: Mapping[K, V]) -> None:
        self._below = below
        self._own: dict[K, V | None] = {}  # None: removed

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._own[key] = value

    def get(self, key: K) -> V | None:
        """The entry of a key, if there is one."""
        return self._own[key] if key in self._own else self._below.get(key)

    def pop(self, key: K) -> V:
        """Removes the entry of a key, and returns it."""
        value = self[key]
        self._own[key] = None
        return value

    def update(self, entries: Iterable[tuple[K, V]]) -> None:
        """Adds entries, or replaces them."""
        self._own.update(entries)
