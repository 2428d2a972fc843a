"""Decides whether a gang that has started runs below its minimum, and records since when in the World.

Given the World, assumptions included: a pod that was bound and not confirmed yet counts, and so does a pod that
succeeded. A gang without a single pod on a node only waits; it is not below its minimum. Kept in memory: a new
leader starts to count again. Never evicts.
"""

from __future__ import annotations

import datetime

from dovetail import timestamps
from dovetail.model import gangs, plan
from dovetail.schedule.gang import jobs
from dovetail.world.world import World


def note(world: World, now: datetime.datetime) -> None:
    """Records for all gangs of several pods since when they are below their minimum. Linear in their pods."""
    stamp = timestamps.to_text(now)
    for key in [*world.gangs.keys()]:
        if not gangs.is_shared(key):
            continue
        since: str | None = None
        if is_short(plan.GangRef(*key), world):
            since = world.gangs.stale_since(key) or stamp
        world.gangs.note_stale(key, since)


def is_short(gang: plan.GangRef, world: World) -> bool:
    """Whether too few of the gang's pods have a node, unless it states that it may run like that."""
    key = (gang.namespace, gang.name)
    members = {
        pod_id: (world.pods[pod_id], group)
        for pod_id, group in world.gangs.members(key).items()
        if pod_id in world.pods
    }
    if not members:
        return False
    definition = world.gangs.definition(key)
    if definition.stale_grace is not None and definition.stale_grace < 0:
        return False

    job = jobs.Job(definition, members, queue="", is_preemptible=True)
    for pod_id in members:
        if pod_id in world.assumed or job.state[pod_id] is jobs.State.SUCCEEDED:
            job.mark(pod_id, jobs.State.ACTIVE)
    return job.has_active and not job.is_satisfied(job.root)
