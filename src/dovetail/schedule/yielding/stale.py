"""Decides which gangs fell below their minimum for too long: what is left of them is taken back.

Given a stage. A gang that is finishing (one of its pods succeeded) is left alone. Never looks for anybody who gains.
"""

from __future__ import annotations

import datetime

from dovetail.model import durations, plan
from dovetail.schedule import order
from dovetail.schedule.gangs.jobs import Job, Lone, State
from dovetail.schedule.gangs.stage import Stage, Yielded

_LEFT = (State.ACTIVE, State.STARTING, State.NOMINATED)  # what could be taken back


def take_back(stage: Stage) -> datetime.datetime | None:
    """Takes back what is left of gangs that are incomplete for too long; when the next one will be."""
    wake: datetime.datetime | None = None
    for job in stage.jobs.values():
        if not _is_incomplete(job):
            continue
        grace = job.gang.stale_grace if job.gang.stale_grace is not None else stage.policy.batch.stale_grace_seconds
        if grace < 0:
            continue
        due = _due(stage, job, grace)
        if due is not None and stage.now is not None and due > stage.now:
            wake = due if wake is None else min(wake, due)
            continue
        detail = f"it had fewer pods than its minimum for {grace} s or more"
        why = Yielded(job, plan.Rule.STALE, None, detail)
        for id_, state in [*job.state.items()]:
            if state is State.ACTIVE:
                stage.release(job, id_, why)
            elif id_ in stage.given:  # what was decided before is on its way, and is taken back once it is there
                stage.withdraw(id_)
    return wake


def _is_incomplete(job: Job) -> bool:
    if isinstance(job, Lone):
        return False  # it is there or it is not
    states = job.state.values()
    if State.SUCCEEDED in states or not any(state in _LEFT for state in states):
        return False
    return not job.is_satisfied(job.root)


def _due(stage: Stage, job: Job, grace: int) -> datetime.datetime | None:
    if job.gang.stale_since is None:
        return durations.later(stage.now, grace) if stage.now is not None and grace else None
    return durations.later(order.instant(job.gang.stale_since), grace)
