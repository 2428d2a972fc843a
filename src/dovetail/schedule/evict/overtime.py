"""Decides which gangs ran longer than they or their queue allow, and evicts them.

Given a transaction. Pods that the kubelet ends by then, by their own deadline, are left to it. Never looks for a
job that would gain by it.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable

from dovetail.model import plan
from dovetail.quantity import durations
from dovetail.schedule import pod_order
from dovetail.schedule.backfill import runtimes
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import EvictedPod, Transaction


def evict_overtime(transaction: Transaction, spared: Collection[str]) -> datetime.datetime | None:
    """Evicts every gang whose time is over; when the next one's will be."""
    if transaction.now is None:
        return None

    wake: datetime.datetime | None = None
    for job in _jobs_with_limits(transaction):
        queue_limit = runtimes.allowed(transaction.accounts, job.queue)
        seconds = runtimes.limit(job.gang, queue_limit)
        if seconds is None:
            continue
        started = _started(job)
        if started is None:
            continue

        until = durations.later(started, seconds)
        if until > transaction.now:
            wake = until if wake is None else min(wake, until)
        elif not any(pod_id in spared for pod_id in job.active()):
            _evict(transaction, job, seconds, is_queue_limit=seconds == queue_limit)
    return wake


def _jobs_with_limits(transaction: Transaction) -> Iterable[Job]:
    """All jobs, in order; without the settled ones where neither they nor their queues limit how long they run."""
    queues = (account.queue for account in transaction.accounts.by_name.values())
    has_limits = any(
        queue is not None and queue.spec.max_runtime_seconds is not None for queue in queues
    )
    if has_limits or transaction.settled.states_runtime:
        return transaction.jobs.values()
    return transaction.live_jobs


def _evict(transaction: Transaction, job: Job, seconds: int, *, is_queue_limit: bool) -> None:
    whose = f"queue {job.queue} allows" if is_queue_limit else "it states as its longest"
    why = EvictedPod(job, plan.Rule.OVERTIME, None, f"it ran for the {seconds} s {whose}")
    for pod_id in job.active():
        if pod_id not in transaction.evictions and not _ends_itself(job, pod_id, seconds):
            transaction.evict(job, pod_id, why)


def _started(job: Job) -> datetime.datetime | None:
    """Since when its oldest pod runs; None where none does."""
    starts = [
        pod_order.instant(job.pods[pod_id].status.start_time)
        for pod_id, state in job.state.items()
        if state is State.ACTIVE and job.pods[pod_id].status.start_time is not None
    ]
    return min((start for start in starts if start is not pod_order.NEVER), default=None)


def _ends_itself(job: Job, pod_id: str, seconds: int) -> bool:
    """Whether the pod's own deadline ends it: it then fails, which is what it asked for."""
    deadline = job.pods[pod_id].spec.active_deadline_seconds
    return deadline is not None and deadline <= seconds
