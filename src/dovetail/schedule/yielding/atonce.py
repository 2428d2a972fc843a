"""Places pods where no queue exists: in what is free, else in what others leave, else by preemption, all in one turn.

Priority alone decides there, so a pod that finds no room makes others yield before less important ones are given what
is free. What one pod learned holds for those alike that come after it. Given a stage; never decides whose turn it is.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType

from dovetail.model import plan
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.yielding.priorities import Preemptor

Likeness = Callable[[Job, Sequence[str]], Hashable]


class AtOnce:
    """The turns of one decision. A context: what it entered is left at its end."""

    def __init__(self, stage: Stage, placer: Placer, *, spared: frozenset[str], likeness: Likeness) -> None:
        self._stage = stage
        self._placer = placer
        self._likeness = likeness
        self._preemptor = Preemptor(stage, placer, spared=spared)
        self._helpless: set[Hashable] = set()  # likenesses of jobs that cannot preempt
        self._preempting: set[Hashable] = set()  # jobs that wait for others to leave, and their likenesses
        self._ahead = contextlib.ExitStack()  # holds what is later, while jobs alike ask for it

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead.__exit__(kind, error, trace)

    @property
    def wake(self) -> datetime.datetime | None:
        """When a pod may next preempt that was too young for it."""
        return self._preemptor.wake

    def step(self, job: Job, ids: Sequence[str]) -> plan.Refusal | None:
        """Places these pods of a job, others having to yield if need be; or none of them, and why."""
        kind = self._likeness(job, ids)
        # What is beyond a minimum that waits for others to leave does not start before it. And where one finds no room
        # now, its like does not either: what is later is entered once for all of them.
        is_ahead = job.id in self._preempting or kind in self._preempting
        if not is_ahead:
            self._ahead.close()
        elif not self._stage.is_later:
            self._ahead.enter_context(self._stage.later())
        refusal = self._placer.step(job, ids)
        if refusal is None:
            self._preemptor.changed(job)
            if not all(self._stage.given[id_].is_now for id_ in ids):
                self._preempting |= {job.id, kind}  # waits for others to leave, as its like will have to
            return None
        if refusal.is_undecided or kind in self._helpless or self._preemptor.preempt(job, kind) is not None:
            self._helpless.add(kind)
            self._ahead.close()
            return self._placer.step(job, ids) if is_ahead else refusal  # why not now
        self._helpless.clear()  # others lost what they had, and room may be left over
        self._preempting |= {job.id, kind}
        return None
