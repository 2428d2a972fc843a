"""Places pods where no queue exists: on free capacity, else on capacity that leaving pods free, else by preemption.

Priority alone decides there, as in kube-scheduler, so a pod that finds no room preempts before pods of lower
priority are given what is free. What one pod learned holds for equal pods that come after it. Given a transaction;
never decides whose turn it is.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType

from dovetail.model import plan
from dovetail.model.reasons import Reason
from dovetail.schedule.evict import eviction_rules
from dovetail.schedule.evict.priority_preemption import Preemptor
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.gang.transaction import Transaction

Likeness = Callable[[Job, Sequence[str]], Hashable]


class PlaceOrPreempt:
    """The turns of one decision. A context manager: `later`, if it was entered, is left at the end."""

    def __init__(
        self,
        transaction: Transaction,
        placer: Placer,
        *,
        spared: frozenset[str],
        likeness: Likeness,
        may_not_evict: dict[str, Reason],
    ) -> None:
        self._transaction = transaction
        self._placer = placer
        self._likeness = likeness
        self._may_not_evict = may_not_evict  # by job, filled in here
        self._preemptor = Preemptor(transaction, placer, spared=spared)
        # Kinds of jobs that cannot preempt, and why; None where a job was not even decided about.
        self._helpless: dict[Hashable, Reason | None] = {}
        self._preempting: set[Hashable] = set()  # jobs that wait for their victims, and their kinds
        self._in_later = contextlib.ExitStack()  # keeps `later` open for a run of equal jobs

    def __enter__(self) -> PlaceOrPreempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in_later.__exit__(kind, error, trace)

    @property
    def wake(self) -> datetime.datetime | None:
        """When a pod that was too young to preempt first may."""
        return self._preemptor.wake

    def step(self, job: Job, ids: Sequence[str]) -> plan.Refusal | None:
        """Places these pods of a job, with preemption if need be; or none of them, and why."""
        kind = self._likeness(job, ids)
        # Pods beyond a minimum that waits for victims do not start before it. And where one job finds no room now, an
        # equal job does not either. `later` costs as much as all that was decided so far: it is entered once for all
        # of them.
        is_ahead = job.id in self._preempting or kind in self._preempting
        if not is_ahead:
            self._in_later.close()
        elif not self._transaction.is_after_evictions:
            self._in_later.enter_context(self._transaction.after_evictions())

        refusal = self._placer.step(job, ids)
        if refusal is None:
            self._preemptor.changed(job)
            if not all(self._transaction.placements[pod_id].is_now for pod_id in ids):
                self._preempting |= {job.id, kind}
            return None

        if self._preempts(job, kind, refusal):
            self._helpless.clear()  # victims freed capacity, and some may be left over
            self._preempting |= {job.id, kind}
            return None

        self._in_later.close()
        # Inside `later` the refusal speaks of capacity that is not free yet. The owner reads why not now.
        return self._placer.step(job, ids) if is_ahead else refusal

    def _preempts(self, job: Job, kind: Hashable, refusal: plan.Refusal) -> bool:
        if kind not in self._helpless:
            reason = None
            if not refusal.is_undecided:
                reason = self._preemptor.preempt(job, kind)
                if reason is None:
                    return True
            self._helpless[kind] = reason

        reason = self._helpless[kind]
        if reason is not None and reason.code in eviction_rules.ABOUT_JOB:
            self._may_not_evict[job.id] = reason
        return False
