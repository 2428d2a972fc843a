"""Decides whether a gang that a former leader began to bind is completed, taken back, or left alone.

Given an intent and the World. By the write order of `live/bind/binder.py` a gang with a bound pod has all its claims,
and is completed by binding the others where they were to go; one that has none is taken back. Never writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.live.bind import binder
from dovetail.live.intents import intent_parts
from dovetail.model import plan, reservations
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class Complete(NamedTuple):
    """Bind these pods to their planned nodes."""

    members: tuple[tuple[pods.Pod, plan.Placement], ...]


class TakeBack(NamedTuple):
    """Release the claims of these pods; they will not start now."""

    members: tuple[pods.Pod, ...]


class Finished(NamedTuple):
    """Nothing remains to be done."""


Verdict = Complete | TakeBack | Finished


def verdict_on(
    start: intent_parts.GangStart, world: World, *, apart: Collection[str] = ()
) -> Verdict:
    """What to do about a gang that was being bound; pods in `apart` belong to another Intent.

    With a part missing, either no claim was written or everything was finished. Pods of other namespaces are ignored.
    """
    members = [*_existing(start, world)]
    waiting = [(pod, member.node) for pod, member in members if _waits(pod)]
    unbound = [(pod, node) for pod, node in waiting if pod.metadata.uid not in apart]
    if not unbound:
        return Finished()

    are_nodes_known = all(node in world.nodes for _, node in unbound)
    has_all_claims = binder.has_all_claims(pod for pod, _ in members)
    if start.is_whole and has_all_claims and are_nodes_known:
        return Complete(tuple((pod, planned_placement(pod, node, world)) for pod, node in unbound))
    return TakeBack(tuple(pod for pod, _ in unbound))


def _existing(
    start: intent_parts.GangStart, world: World
) -> Iterator[tuple[pods.Pod, intents.Member]]:
    """The members that exist, in the gang's own namespace."""
    for member in start.members:
        pod = world.pods.get(member.uid)
        if pod is not None and pod.metadata.namespace == start.gang.namespace:
            yield pod, member


def gang_of(intent: intents.Intent) -> plan.GangRef:
    """The gang an Intent is about."""
    return plan.GangRef(intent.metadata.namespace, intent.spec.gang)


def reserved_claims(pod: pods.Pod, world: World) -> tuple[ObjectKey, ...]:
    """The allocated claims that are reserved for a pod."""
    keys: list[ObjectKey] = []
    for key in reservations.used_claims(pod):
        claim = world.claims.get(key)
        if claim is None or claim.status.allocation is None:
            continue
        if reservations.reserves(claim, pod):
            keys.append(key)
    return tuple(keys)


def planned_placement(pod: pods.Pod, node: str, world: World) -> plan.Placement:
    """The planned placement, from what the pod's claims have allocated now."""
    keys = reservations.used_claims(pod)
    allocations = tuple(
        plan.Allocation(claim=plan.ClaimRef(*key), result=claim.status.allocation)
        for key in keys
        if (claim := world.claims.get(key)) is not None and claim.status.allocation is not None
    )
    return plan.Placement(
        pod=plan.pod_ref(pod),
        node=node,
        allocations=allocations,
        reservations=tuple(plan.ClaimRef(*key) for key in keys),
    )


def _waits(pod: pods.Pod) -> bool:
    is_ended = (
        pod.status.phase in pods.TERMINAL_PHASES or pod.metadata.deletion_timestamp is not None
    )
    return not pod.spec.node_name and not is_ended
