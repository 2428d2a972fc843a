"""Counts the steps of one decision, and records which jobs had a turn in the round that several decisions make.

Work of every kind counts: pods tried on nodes, nodes evaluated, victims offered, jobs looked at. One step is about ten
microseconds. Where a bound is set, an attempt that exceeds it is rolled back, and the next decision continues one that
ended early: a round ends once every waiting job had a turn in it. Never decides whose turn it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from dovetail.model import policy

PLACE: Final = 8  # a pod tried on all nodes of which nothing changed, and put on one
LOOK: Final = 4  # a job whose turn it is
EVALUATED: Final = 1  # a node evaluated for one kind of pods
MOVED: Final = 6  # a victim evicted in the trial, or restored
OFFERED: Final = 4  # pods offered as victims


EVICTION_STEPS: Final[tuple[policy.Step, ...]] = (
    policy.Step.CONSOLIDATE,
    policy.Step.RECLAIM,
    policy.Step.PREEMPT,
)
TURN_STEPS: Final = (policy.Step.ALLOCATE, *EVICTION_STEPS)  # steps in which every job has a turn
STEP_BITS: Final = {step: place for place, step in enumerate(policy.Step)}


class SpentError(Exception):
    """The steps of an attempt are spent: it is rolled back, and decides nothing."""


class _Bound:
    """Bounds the steps taken inside. A class, because every job of a decision enters one."""

    __slots__ = ("_before", "_count", "_steps")

    def __init__(self, steps: Steps, count: int | None) -> None:
        self._steps = steps
        self._count = count

    def __enter__(self) -> None:
        steps = self._steps
        self._before = steps.bound
        steps.bound = None if self._count is None else steps.spent + self._count

    def __exit__(self, *_: object) -> None:
        self._steps.bound = self._before


class Steps:
    """The steps of one decision."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.spent = 0
        self.bound: int | None = None  # of the attempt under way
        self._is_firm = True

    def spend(self, count: int) -> None:
        """So many steps were taken. Raises SpentError where they are too many for the attempt under way."""
        self.spent += count
        if self.bound is not None and self.spent > self.bound and self._is_firm:
            raise SpentError

    def is_beyond(self, part: float) -> bool:
        """Whether so large a part of all steps is used up."""
        return self.most is not None and self.spent >= self.most * part

    def left(self, part: float) -> int | None:
        """How many steps are left of so large a part of all."""
        return None if self.most is None else max(round(self.most * part) - self.spent, 0)

    def at_most(self, count: int | None) -> _Bound:
        """What is done inside may take so many steps."""
        return _Bound(self, count)

    @contextmanager
    def lenient(self) -> Iterator[None]:
        """Steps inside count, and never end the attempt: what happens there cannot be rolled back."""
        before, self._is_firm = self._is_firm, False
        try:
            yield
        finally:
            self._is_firm = before


class HasTurns(Protocol):
    """A job that has turns."""

    round_: int
    looked: int


class Rounds:
    """Which jobs had a turn since every job had one."""

    def __init__(self) -> None:
        self._number = 1
        self._turns = 0  # decisions of this round before the one under way
        self._first = -1  # what the world counted when the round began
        self._last = -1  # and when the last decision was made

    @property
    def is_under_way(self) -> bool:
        """Whether a decision before this one ended early."""
        return self._turns > 0

    def begin(self, changes: int) -> bool:
        """A decision begins; whether anything changed since the last one of the round."""
        is_changed = not self._turns or changes != self._last
        if not self._turns:
            self._first = changes
        self._last = changes
        return is_changed

    def mark_turn(self, job: HasTurns, step: int) -> None:
        """It is a job's turn in a step."""
        if job.round_ != self._number:
            job.round_, job.looked = self._number, 0
        job.looked |= 1 << step

    def had_turn(self, job: HasTurns, step: int) -> bool:
        """Whether a job had its turn in a step of this round."""
        return job.round_ == self._number and bool(job.looked >> step & 1)

    def continue_later(self) -> None:
        """The decision ended early."""
        self._turns += 1

    def end(self) -> bool:
        """Every job had a turn; returns whether the World changed since the first of them had its own."""
        is_stale = self._turns > 0 and self._first != self._last
        self._number += 1
        self._turns = 0
        return is_stale
