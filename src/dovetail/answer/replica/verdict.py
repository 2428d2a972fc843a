"""Whether a pod starts, by the engine's plan about the whole cluster: where, after whom, or why not.

Given a replica. A pod starts when the plan places it, or nominates it for a node that others leave first. Pods ahead of
it are part of the same plan, so the verdict is the one that the live scheduler comes to. Never changes anything.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.model import gangs, plan
from dovetail.world import events


class Verdict(NamedTuple):
    """What becomes of one pod."""

    starts: bool
    node: str = ""  # where it runs, starts, or will start
    placement: plan.Placement | None = None
    evictions: tuple[plan.Eviction, ...] = ()  # of the pods that leave for it
    refusal: plan.Refusal | None = None
    promise: plan.Promise | None = None
    is_bound: bool = False

    @property
    def promised_start(self) -> datetime.datetime | None:
        """When it starts, where that was promised."""
        return None if self.promise is None else self.promise.start


def verdict(replica: Replica, pod_id: str, decided: plan.Plan | None = None) -> Verdict:
    """What becomes of the pod with this id; `decided` is the plan about the replica where it is known."""
    pod = replica.world.pods[pod_id]
    if pod.spec.node_name:
        return Verdict(True, pod.spec.node_name, is_bound=True)
    if decided is None:
        decided = replica.decide()

    placements = {placement.pod: placement for placement in decided.placements}
    ref = plan.pod_ref(pod)
    gang = gang_of(replica, pod_id)
    evictions = tuple(eviction for eviction in decided.evictions if eviction.beneficiary == gang)
    if ref in placements:
        placement = placements[ref]
        return Verdict(True, placement.node, placement, evictions)

    nominated = [nomination.node for nomination in decided.nominations if nomination.pod == ref]
    if nominated:
        return Verdict(True, nominated[0], evictions=evictions)
    refusal = next((refusal for refusal in decided.refusals if refusal.pod == ref), None)
    promise = next((promise for promise in decided.promises if promise.gang == gang), None)
    return Verdict(False, refusal=refusal, promise=promise)


def gang_of(replica: Replica, pod_id: str) -> plan.GangRef:
    """The gang of a pod; a pod alone is a gang of itself."""
    world = replica.world
    member = world.gangs.of(pod_id) or gangs.lone_membership(world.pods[pod_id])
    return plan.GangRef(*member.gang)


def id_of(replica: Replica, namespace: str, name: str) -> str | None:
    """The id of a pod by name; None if it is not there."""
    pod = replica.pod(namespace, name)
    return None if pod is None else events.pod_id(pod)
