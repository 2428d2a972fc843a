"""Decides between victims the rules hold for equal: idle ones first, then by what the eviction costs their owner.

An eviction that counts as a failure of its Job is worse than one that does not. Then lost work counts, in
GPU-seconds since the last checkpoint, or since the start; but only in queues where some job states a checkpoint:
elsewhere the youngest job goes first. Given a transaction; never decides which jobs may be evicted.
"""

from __future__ import annotations

import datetime

from dovetail.model import gangs, workload_annotations
from dovetail.schedule import pod_order
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts

Toll = tuple[bool, float]


class EvictionCosts:
    """What an eviction costs the jobs of one decision."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._checkpoints: dict[str, datetime.datetime | None] = {}  # by job
        self._queues_with_checkpoints: set[str] | None = None

    def toll(self, job: Job) -> Toll:
        """A sort key: higher is evicted first, where everything else is equal."""
        is_no_failure = not job.gang.counts_failures
        if not self._counts_lost_work(job.queue):
            return is_no_failure, 0.0
        return is_no_failure, -self.lost(job)

    def lost(self, job: Job) -> float:
        """GPU-seconds of work since the last checkpoint or the start. A checkpoint in the future does not count."""
        now = self._transaction.now
        if now is None:
            return 0.0

        since = self._last_safe_time(job, now)
        cap = self._transaction.policy.batch.lost_work_cap_seconds
        seconds = cap if since is None else min(max((now - since).total_seconds(), 0.0), cap)
        milli_gpus = self._transaction.cost_of(job, job.active()).get(amounts.GPU, 0)
        return seconds * milli_gpus / amounts.scale(amounts.GPU)

    def _last_safe_time(self, job: Job, now: datetime.datetime) -> datetime.datetime | None:
        """The later of its start and its last checkpoint; None where neither is known."""
        times = []
        starts = [
            pod_order.instant(job.pods[pod_id].status.start_time)
            for pod_id, state in job.state.items()
            if state is State.ACTIVE and job.pods[pod_id].status.start_time is not None
        ]
        if starts:
            times.append(min(starts))
        checkpoint = self._checkpoint(job)
        if checkpoint is not None and checkpoint <= now:
            times.append(checkpoint)
        return max(times, default=None)

    def note(self, job: Job) -> str:
        """What the owner of a victim should know besides the rule."""
        note = ""
        now = self._transaction.now
        if job.idle_since is not None and now is not None:
            minutes = (now - job.idle_since).total_seconds() / 60
            note += f"; its GPUs were nearly unused for {minutes:.0f} min"
        checkpoint = self._checkpoint(job)
        if checkpoint is not None and now is not None and checkpoint <= now:
            note += f"; it loses {self.lost(job) / 60:.0f} GPU-minutes since its checkpoint"
        if job.gang.counts_failures:
            note += (
                "; this counts against its Job's backoffLimit, "
                "as it has no podFailurePolicy that ignores disruptions"
            )
        return note

    def _counts_lost_work(self, queue: str) -> bool:
        if self._queues_with_checkpoints is None:
            running = self._transaction.running_jobs()
            self._queues_with_checkpoints = {
                job.queue for job in running if self._checkpoint(job) is not None
            }
        return queue in self._queues_with_checkpoints

    def _checkpoint(self, job: Job) -> datetime.datetime | None:
        is_stated = job.gang.last_checkpoint is not None or any(
            workload_annotations.LAST_CHECKPOINT in pod.metadata.annotations
            for pod in job.pods.values()
        )
        if not is_stated:  # most jobs state none
            return None

        if job.id not in self._checkpoints:
            text = gangs.checkpoint_of(job.gang, job.pods.values())
            time = pod_order.instant(text)
            is_readable = text is not None and time is not pod_order.NEVER
            self._checkpoints[job.id] = time if is_readable else None
        return self._checkpoints[job.id]
