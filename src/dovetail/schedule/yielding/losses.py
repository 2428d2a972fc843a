"""Decides between victims the rules hold for equal: idle ones first, then whose owner pays least for it.

An eviction that counts as a failure of its Job is worse than one that does not; then lost work counts, in GPU-seconds
since the last checkpoint, or since the start. It counts only in queues where somebody states a checkpoint: elsewhere
the youngest yields first. Given a stage; never decides who may be asked.
"""

from __future__ import annotations

import datetime

from dovetail.model import gangs, wishes
from dovetail.schedule import order
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts

Toll = tuple[bool, float]


class Losses:
    """What yielding costs the jobs of one decision."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._points: dict[str, datetime.datetime | None] = {}
        self._weighs: dict[str, bool] | None = None  # by queue, whether somebody states a checkpoint

    def toll(self, job: Job) -> Toll:
        """Higher has to yield first, where everything else is equal."""
        return not job.gang.counts_failures, -self.lost(job) if self._counts(job.queue) else 0.0

    def lost(self, job: Job) -> float:
        """GPU-seconds of work that nobody could go on from. A checkpoint of the future is none."""
        now = self._stage.now
        if now is None:
            return 0.0
        point = self._point(job)
        starts = [
            order.instant(job.pods[id_].status.start_time)
            for id_, state in job.state.items()
            if state is State.ACTIVE and job.pods[id_].status.start_time is not None
        ]
        since = max(
            [*([min(starts)] if starts else []), *([point] if point is not None and point <= now else [])], default=None
        )
        cap = self._stage.policy.batch.lost_work_cap_seconds
        seconds = cap if since is None else min(max((now - since).total_seconds(), 0.0), cap)
        return seconds * self._stage.cost_of(job, job.active()).get(amounts.GPU, 0) / amounts.scale(amounts.GPU)

    def note(self, job: Job) -> str:
        """What the owner of a victim should know beside the rule."""
        told = ""
        if job.idle_since is not None and self._stage.now is not None:
            minutes = (self._stage.now - job.idle_since).total_seconds() / 60
            told += f"; its GPUs were nearly unused for {minutes:.0f} min"
        point = self._point(job)
        if point is not None and self._stage.now is not None and point <= self._stage.now:
            told += f"; it loses {self.lost(job) / 60:.0f} GPU-minutes since its checkpoint"
        if job.gang.counts_failures:
            told += (
                "; this counts against its Job's backoffLimit, as it has no podFailurePolicy that ignores disruptions"
            )
        return told

    def _counts(self, queue: str) -> bool:
        if self._weighs is None:
            self._weighs = {}
            for job in self._stage.running_jobs():
                if self._point(job) is not None:
                    self._weighs[job.queue] = True
        return self._weighs.get(queue, False)

    def _point(self, job: Job) -> datetime.datetime | None:
        if job.gang.last_checkpoint is None and not any(
            wishes.LAST_CHECKPOINT in pod.metadata.annotations for pod in job.pods.values()
        ):
            return None  # most say nothing
        if job.id not in self._points:
            text = gangs.checkpoint_of(job.gang, job.pods.values())
            point = order.instant(text)
            self._points[job.id] = None if text is None or point is order.NEVER else point
        return self._points[job.id]
