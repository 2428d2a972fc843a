"""Open checkpoints (trials) and their undo log.

Every change inside a trial records how to undo it. On exit the trial undoes its changes, newest first, unless it was
committed. Trials nest: a committed inner trial hands its undo entries to the outer one, which may still roll back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Trial:
    """An open checkpoint. Changes made while it is open are undone at its end unless `commit` was called."""

    __slots__ = ("is_committed",)

    def __init__(self) -> None:
        self.is_committed = False

    def commit(self) -> None:
        """Keeps the changes; an outer trial may still undo them."""
        self.is_committed = True


class UndoLog:
    """Undo entries of the open trials, innermost last."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[list[Callable[[], object]]] = []

    @property
    def is_open(self) -> bool:
        """Whether any trial is open."""
        return bool(self._open)

    def note(self, undo: Callable[[], object]) -> None:
        """Records how to undo a change. Outside of trials changes are final and nothing is recorded."""
        if self._open:
            self._open[-1].append(undo)

    @contextmanager
    def trial(self, trial: Trial | None = None) -> Iterator[Trial]:
        """Opens a new trial; with an existing `trial`, this log commits or rolls back together with it."""
        trial = trial or Trial()
        self._open.append([])
        try:
            yield trial
        finally:
            entries = self._open.pop()
            if not trial.is_committed:
                # Newest first: each entry expects the state right after its own change.
                for undo in reversed(entries):
                    undo()
            elif self._open:
                self._open[-1].extend(entries)
