"""Decides which gangs were below their minimum for too long, and evicts what is left of them.

Given a transaction. A gang that is finishing (one of its pods succeeded) is left alone. Never looks for a job that
would gain by it.
"""

from __future__ import annotations

import datetime

from dovetail.model import plan
from dovetail.quantity import durations
from dovetail.schedule import pod_order
from dovetail.schedule.gang.jobs import Job, SinglePodJob, State
from dovetail.schedule.gang.transaction import EvictedPod, Transaction

_ON_NODE = (State.ACTIVE, State.STARTING, State.NOMINATED)


def evict_stale_gangs(transaction: Transaction) -> datetime.datetime | None:
    """Evicts what is left of gangs whose grace is over; when the next one's will be."""
    wake: datetime.datetime | None = None
    for job in transaction.live_jobs:  # settled ones are single pods, which run
        if not _is_incomplete(job):
            continue
        grace = job.gang.stale_grace
        if grace is None:
            grace = transaction.policy.batch.stale_grace_seconds
        if grace < 0:  # such a gang may run below its minimum
            continue

        due = _due(transaction, job, grace)
        if due is not None and transaction.now is not None and due > transaction.now:
            wake = due if wake is None else min(wake, due)
        else:
            _evict(transaction, job, grace)
    return wake


def _evict(transaction: Transaction, job: Job, grace: int) -> None:
    detail = f"it had fewer pods than its minimum for {grace} s or more"
    why = EvictedPod(job, plan.Rule.STALE, None, detail)
    for pod_id, state in [*job.state.items()]:
        if state is State.ACTIVE:
            transaction.evict(job, pod_id, why)
        elif pod_id in transaction.placements:
            # Only placements of this decision. A pod that is still being bound is evicted once it is bound.
            transaction.withdraw(pod_id)


def _is_incomplete(job: Job) -> bool:
    if isinstance(job, SinglePodJob):
        return False  # a single pod is complete or absent
    states = job.state.values()
    if State.SUCCEEDED in states or not any(state in _ON_NODE for state in states):
        return False
    return not job.is_satisfied(job.root)


def _due(transaction: Transaction, job: Job, grace: int) -> datetime.datetime | None:
    if job.gang.stale_since is not None:
        return durations.later(pod_order.instant(job.gang.stale_since), grace)
    # Incomplete only since now: the grace begins.
    return (
        durations.later(transaction.now, grace) if transaction.now is not None and grace else None
    )
