"""What changed, in the order it did, for whoever keeps answers about nodes or gangs from one question to the next.

Positions only grow. Old entries are cut off; a reader that has fallen behind is told to look at everything again.
Never says what changed, nor whether it changed back.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

LIMIT: Final = 100_000  # entries kept
T = TypeVar("T")


class Journal(Generic[T]):
    """What changed, such as names of nodes. A reader remembers `end` and asks `since` there the next time."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._start = 0  # the position of the first entry that is kept

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def end(self) -> int:
        """The position behind the last entry."""
        return self._start + len(self._entries)

    def note(self, what: T) -> None:
        """Something changed."""
        self._entries.append(what)
        if len(self._entries) > LIMIT:
            cut = LIMIT // 2
            del self._entries[:cut]
            self._start += cut

    def note_all(self) -> None:
        """Everything may have changed: nobody needs what was noted before."""
        self._start = self.end + 1
        self._entries.clear()

    def since(self, position: int) -> list[T] | None:
        """What changed from a position on, one entry for every time; None if it may be any of them."""
        return None if position < self._start else self._entries[position - self._start :]
