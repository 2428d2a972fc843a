"""Checkpoints that are open, and how what was done since is taken back: newest first, unless somebody kept it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Trial:
    """An open checkpoint. What is assumed meanwhile is taken back at the end unless `commit` was called."""

    __slots__ = ("is_committed",)

    def __init__(self) -> None:
        self.is_committed = False

    def commit(self) -> None:
        """Keeps what was assumed; an outer trial may still take it back."""
        self.is_committed = True


class UndoLog:
    """How to take back what was done inside trials, which may stand in each other."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[list[Callable[[], object]]] = []

    @property
    def is_open(self) -> bool:
        """Whether any trial is."""
        return bool(self._open)

    def note(self, undo: Callable[[], object]) -> None:
        """Something was done; outside of trials it stays."""
        if self._open:
            self._open[-1].append(undo)

    @contextmanager
    def trial(self, trial: Trial | None = None) -> Iterator[Trial]:
        """A trial of its own, or one that ends together with another's."""
        trial = trial or Trial()
        self._open.append([])
        try:
            yield trial
        finally:
            done = self._open.pop()
            if not trial.is_committed:
                for undo in reversed(done):
                    undo()
            elif self._open:
                self._open[-1].extend(done)
