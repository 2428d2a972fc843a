"""Decides which gangs ran for longer than they may, by what they state or by what their queue allows: they yield.

Given a stage. Pods that a node ends by itself at that time are left to it. Never looks for anybody who gains.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection

from dovetail.model import durations, plan
from dovetail.schedule import order
from dovetail.schedule.backfill import runtimes
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.stage import Stage, Yielded


def end(stage: Stage, spared: Collection[str]) -> datetime.datetime | None:
    """Makes everybody yield whose time is over; when the next one's will be."""
    if stage.now is None:
        return None
    wake: datetime.datetime | None = None
    for job in stage.jobs.values():
        by_queue = runtimes.allowed(stage.accounts, job.queue)
        seconds = runtimes.limit(job.gang, by_queue)
        began = _began(job) if seconds is not None else None
        if seconds is None or began is None:
            continue
        until = durations.later(began, seconds)
        if until > stage.now:
            wake = until if wake is None else min(wake, until)
        elif not any(id_ in spared for id_ in job.active()):
            whose = f"queue {job.queue} allows" if seconds == by_queue else "it states as its longest"
            why = Yielded(job, plan.Rule.OVERTIME, None, f"it ran for the {seconds} s {whose}")
            for id_ in job.active():
                if id_ not in stage.yielded and not _ends_itself(job, id_, seconds):
                    stage.release(job, id_, why)
    return wake


def _began(job: Job) -> datetime.datetime | None:
    """Since when its oldest pod runs; None where nothing runs."""
    times = [
        order.instant(job.pods[id_].status.start_time)
        for id_, state in job.state.items()
        if state is State.ACTIVE and job.pods[id_].status.start_time is not None
    ]
    return min((one for one in times if one is not order.NEVER), default=None)


def _ends_itself(job: Job, id_: str, seconds: int) -> bool:
    """Whether the pod's own deadline ends it: it then fails, which is what it asked for."""
    own = job.pods[id_].spec.active_deadline_seconds
    return own is not None and own <= seconds
