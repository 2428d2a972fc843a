"""Decides whether a gang that was begun has enough pods on nodes to run.

Given the World, assumptions included: a pod that was bound and is not heard of yet counts. Pods that ended well did
their part. Never evicts.
"""

from __future__ import annotations

from dovetail.model import plan
from dovetail.schedule.gangs import jobs
from dovetail.world.world import World


def is_short(gang: plan.GangRef, world: World) -> bool:
    """Whether too few of the gang's pods have a node, and it does not say that it can live with that."""
    key = (gang.namespace, gang.name)
    members = {id_: (world.pods[id_], group) for id_, group in world.gangs.members(key).items() if id_ in world.pods}
    if not members:
        return False
    known = world.gangs.known(key)
    if known.stale_grace is not None and known.stale_grace < 0:
        return False
    job = jobs.Job(known, members, queue="", is_preemptible=True)
    for id_ in members:
        if id_ in world.assumed or job.state[id_] is jobs.State.SUCCEEDED:
            job.mark(id_, jobs.State.ACTIVE)
    return job.has_active and not job.is_satisfied(job.root)
