"""Decides what becomes of a gang whose writes were begun by somebody who is gone: completed, taken back, or left.

Given an intent and the World. All claims of a gang are written before its first binding, so one that has a bound pod
can be completed by binding the others where they were to go; one that has none is taken back. Never writes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.loops import awaited, parts
from dovetail.model import intents, plan, pods, reservations
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

TERMINAL = ("Succeeded", "Failed")


class Complete(NamedTuple):
    """These are to be bound where they were to go."""

    members: tuple[tuple[pods.Pod, plan.Placement], ...]


class TakeBack(NamedTuple):
    """These hold claims for nothing."""

    members: tuple[pods.Pod, ...]


class Over(NamedTuple):
    """Nothing is left to do."""


Verdict = Complete | TakeBack | Over


def judged(begun: parts.Begun, world: World, *, apart: Collection[str] = ()) -> Verdict:
    """What is to be done about what was begun; pods that are `apart` are somebody else's to end.

    Without all its parts no claim was written, or everything was over. A pod of another namespace is none of its gang.
    """
    there = [
        (pod, member)
        for member in begun.members
        if (pod := world.pods.get(member.uid)) is not None and pod.metadata.namespace == begun.gang.namespace
    ]
    unbound = [(pod, member.node) for pod, member in there if _waits(pod) and member.uid not in apart]
    if not unbound:
        return Over()
    are_nodes_there = all(node in world.nodes for _, node in unbound)
    is_started = any(pod.spec.node_name for pod, _ in there)
    if not begun.is_whole or not is_started or not are_nodes_there:
        return TakeBack(tuple(pod for pod, _ in unbound))
    return Complete(tuple((pod, resumed(pod, node, world)) for pod, node in unbound))


def gang_of(intent: intents.Intent) -> plan.GangRef:
    """The gang it is about."""
    return plan.GangRef(intent.metadata.namespace, intent.spec.gang)


def held_by(pod: pods.Pod, world: World) -> tuple[ObjectKey, ...]:
    """The claims that hold devices for a pod."""
    return tuple(
        key
        for key in awaited.claims_of(pod)
        if (claim := world.claims.get(key)) is not None
        and claim.status.allocation is not None
        and reservations.reserves(claim, pod)
    )


def resumed(pod: pods.Pod, node: str, world: World) -> plan.Placement:
    """The placement as it was meant, by what the pod's claims hold now."""
    keys = awaited.claims_of(pod)
    return plan.Placement(
        pod=plan.pod_ref(pod),
        node=node,
        allocations=tuple(
            plan.Allocation(claim=plan.ClaimRef(*key), result=claim.status.allocation)
            for key in keys
            if (claim := world.claims.get(key)) is not None and claim.status.allocation is not None
        ),
        reservations=tuple(plan.ClaimRef(*key) for key in keys),
    )


def _waits(pod: pods.Pod) -> bool:
    is_ended = pod.status.phase in TERMINAL or pod.metadata.deletion_timestamp is not None
    return not pod.spec.node_name and not is_ended
