"""Which pods leave with a pod: its gang, where that cannot do without it, else the pod alone.

Given a World. A gang that falls below its minimum has ended, so that all its placed pods leave together. Never evicts.
"""

from __future__ import annotations

from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.schedule.gang import jobs
from dovetail.world.world import World


def leaving_with(world: World, pod_id: str, key: gangs.GangKey) -> list[str]:
    """The pod alone, or all placed pods of its gang where that cannot do without it."""
    members = {
        member_id: (world.pods[member_id], group)
        for member_id, group in world.gangs.members(key).items()
        if member_id in world.pods
    }
    if len(members) < 2:
        return [pod_id]
    definition = world.gangs.definition(key)
    without = {each: entry for each, entry in members.items() if each != pod_id}
    job = jobs.job_of(definition, without, queue="")
    if job.is_satisfied(job.root) and not definition.evicts_whole:
        return [pod_id]
    placed = [each for each, (pod, _) in members.items() if pods.occupies_node(pod)]
    return sorted(placed)
