"""Names behind whom a queue waits below its quota: work beyond the quota of others that cannot be made to yield.

Given a stage after everything was decided. Such work started before it could not be moved, or before quotas were what
they are: what starts now stays within its quota. Names queues, amounts, workloads and why they stay. Never decides.
"""

from __future__ import annotations

from typing import Final

from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts, gate
from dovetail.schedule.queues.accounts import Account, called
from dovetail.schedule.queues.amounts import ENDLESS

SHOWN: Final = 3  # workloads named for each queue and cause
NOT_PREEMPTIBLE: Final = "not preemptible"

_Key = tuple[str, tuple[tuple[str, int], ...]]


class Behind:
    """The answers of one decision; jobs of one queue that ask for the same share them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._known: dict[_Key, Reason | None] = {}
        self._fixed: dict[str, list[Job]] | None = None

    def of(self, job: Job) -> Reason | None:
        """Behind whom the job waits although its queue is sure of what it asks for; None if it is not so."""
        asked = {name: amount for name, amount in job.asked().items() if amount > 0}
        key = (job.queue, tuple(sorted(asked.items())))
        if key not in self._known:
            self._known[key] = self._found(job.queue, asked)
        return self._known[key]

    def _found(self, queue: str, asked: amounts.Amounts) -> Reason | None:
        account = self._stage.accounts.by_name[queue]
        names = [name for name in asked if account.quota_of(name) < ENDLESS]
        own = list(account.lineage())
        if not names or not all(_has_left(one, name, asked[name]) for one in own for name in names):
            return None
        name = amounts.GPU if amounts.GPU in names else names[0]
        others = [one for one in self._stage.accounts.by_name.values() if one not in own and _stays_beyond(one, name)]
        told = [text for one in others if (text := self._told(one, name))]
        if not told:
            return None
        held, quota = account.charged.get(name, 0), account.quota_of(name)
        detail = f"has {gate.text(name, held)} of its quota of {gate.text(name, quota)} {name}; {'; '.join(told)}"
        return Reason(code=ReasonCode.QUEUE_BEHIND, subject=called(queue), detail=detail)

    def _told(self, account: Account, name: str) -> str:
        """What an account holds beyond its quota, in which workloads, and why those stay."""
        by_cause: dict[str, list[str]] = {}
        for job in self._jobs().get(account.name, ()):
            if self._stage.cost_of(job, job.active()).get(name, 0) > 0:
                by_cause.setdefault(job.fixed_by or NOT_PREEMPTIBLE, []).append(job.id)
        if not by_cause:
            return ""
        held, fixed = account.charged.get(name, 0), account.fixed.get(name, 0)
        quota = gate.text(name, account.quota_of(name))
        causes = [f"{_some(ids)} ({cause})" for cause, ids in sorted(by_cause.items())]
        return (
            f"{called(account.name)} holds {gate.text(name, held)} of its {quota} {name}, {gate.text(name, fixed)} "
            f"of it in work that cannot be made to yield: {', '.join(causes)}"
        )

    def _jobs(self) -> dict[str, list[Job]]:
        """By queue, running jobs that do not yield. Looked up once, and only where somebody waits below its quota."""
        if self._fixed is None:
            self._fixed = {}
            for job in self._stage.jobs.values():
                if not job.is_preemptible and job.has_active:
                    self._fixed.setdefault(job.queue, []).append(job)
        return self._fixed


def _has_left(account: Account, name: str, amount: int) -> bool:
    return account.charged.get(name, 0) + amount <= account.quota_of(name)


def _stays_beyond(account: Account, name: str) -> bool:
    return account.fixed.get(name, 0) > account.quota_of(name)


def _some(ids: list[str]) -> str:
    shown = ", ".join(sorted(ids)[:SHOWN])
    return shown if len(ids) <= SHOWN else f"{shown} and {len(ids) - SHOWN} more"
