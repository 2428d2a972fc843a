"""Explains why a queue waits below its quota: which queues hold more than theirs in work that may not be evicted.

Given a transaction after everything was decided. Such work started before it became non-preemptible, or before the
quotas were set; what starts now stays within its quota. Names queues, amounts, workloads and the reason why they
stay. Never decides.
"""

from __future__ import annotations

from typing import Final

from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts, quota_check
from dovetail.schedule.queue.accounts import Account, display_name
from dovetail.schedule.queue.amounts import ENDLESS

SHOWN: Final = 3  # workloads named for each queue and cause
NOT_PREEMPTIBLE: Final = "not preemptible"

_Key = tuple[str, tuple[tuple[str, int], ...]]


class BlockedQuota:
    """The answers of one decision; jobs of one queue with equal requests share them."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._reasons: dict[_Key, Reason | None] = {}
        self._fixed_jobs: dict[str, list[Job]] | None = None

    def of(self, job: Job) -> Reason | None:
        """Which queues keep the job waiting although it is within its quota; None if it is not so."""
        request = {name: amount for name, amount in job.next_cost().items() if amount > 0}
        key = (job.queue, tuple(sorted(request.items())))
        if key not in self._reasons:
            self._reasons[key] = self._reason(job.queue, request)
        return self._reasons[key]

    def _reason(self, queue: str, request: amounts.Amounts) -> Reason | None:
        account = self._transaction.accounts.by_name[queue]
        lineage = list(account.lineage())
        bounded = {
            name: amount for name, amount in request.items() if account.quota_of(name) < ENDLESS
        }
        if not bounded or not all(_has_left(ancestor, bounded) for ancestor in lineage):
            return None

        name = amounts.GPU if amounts.GPU in bounded else next(iter(bounded))
        sentences = []
        for holder in self._transaction.accounts.by_name.values():
            if holder not in lineage and _stays_beyond(holder, name):
                sentences += self._sentences(holder, name)
        if not sentences:
            return None

        charged = quota_check.text(name, account.charged.get(name, 0))
        quota = quota_check.text(name, account.quota_of(name))
        detail = f"has {charged} of its quota of {quota} {name}; {'; '.join(sentences)}"
        return Reason(code=ReasonCode.QUEUE_BEHIND, subject=display_name(queue), detail=detail)

    def _sentences(self, account: Account, name: str) -> list[str]:
        """What an account holds beyond its quota, in which workloads, and why those stay; none if none does."""
        by_cause: dict[str, list[str]] = {}
        for job in self._fixed_by_queue().get(account.name, ()):
            if self._transaction.cost_of(job, job.active()).get(name, 0) > 0:
                by_cause.setdefault(job.non_preemptible_because or NOT_PREEMPTIBLE, []).append(
                    job.id
                )
        if not by_cause:
            return []

        charged = quota_check.text(name, account.charged.get(name, 0))
        fixed = quota_check.text(name, account.fixed.get(name, 0))
        quota = quota_check.text(name, account.quota_of(name))
        causes = [f"{_some(job_ids)} ({cause})" for cause, job_ids in sorted(by_cause.items())]
        return [
            f"{display_name(account.name)} holds {charged} of its {quota} {name}, {fixed} "
            f"of it in work that cannot be made to yield: {', '.join(causes)}"
        ]

    def _fixed_by_queue(self) -> dict[str, list[Job]]:
        """By queue, running jobs that may not be evicted. Computed once, when the first job waits below its quota."""
        if self._fixed_jobs is None:
            self._fixed_jobs = {}
            for job in self._transaction.jobs.values():
                if not job.is_preemptible and job.has_active:
                    self._fixed_jobs.setdefault(job.queue, []).append(job)
        return self._fixed_jobs


def _has_left(account: Account, request: amounts.Amounts) -> bool:
    return all(
        account.charged.get(name, 0) + amount <= account.quota_of(name)
        for name, amount in request.items()
    )


def _stays_beyond(account: Account, name: str) -> bool:
    return account.fixed.get(name, 0) > account.quota_of(name)


def _some(job_ids: list[str]) -> str:
    shown = ", ".join(sorted(job_ids)[:SHOWN])
    return shown if len(job_ids) <= SHOWN else f"{shown} and {len(job_ids) - SHOWN} more"
