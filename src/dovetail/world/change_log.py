"""A log of what changed, in order, for readers that cache answers about nodes or gangs.

Positions only grow. Old entries are dropped; a reader that has fallen behind gets None and must look at everything
again. The log names what changed, never how, nor whether it changed back.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

LIMIT: Final = 100_000  # entries kept
T = TypeVar("T")


class ChangeLog(Generic[T]):
    """Names of changed things, such as nodes. A reader remembers `end` and passes it to `since` the next time."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._start = 0  # the position of the first entry still kept

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def end(self) -> int:
        """The position after the last entry."""
        return self._start + len(self._entries)

    def note(self, what: T) -> None:
        """Records one change."""
        self._entries.append(what)
        if len(self._entries) > LIMIT:
            # Half at a time, so that the cost of cutting is spread over many entries.
            cut = LIMIT // 2
            del self._entries[:cut]
            self._start += cut

    def note_all(self) -> None:
        """Records that everything may have changed: every reader so far is behind now."""
        self._start = self.end + 1
        self._entries.clear()

    def since(self, position: int) -> list[T] | None:
        """The changes from a position on, one entry per change; None if anything may have changed."""
        return None if position < self._start else self._entries[position - self._start :]
