"""Pods that lose their node to a change: their owners create them again, pods without an owner are lost.

Given a replica and nodes. A pod that is created again keeps its name here and waits, younger than everything else;
its claims give their devices back. Pods of DaemonSets and static pods belong to their node: they stay on a drained
one, and go with a removed one. Never decides where a pod starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import msgspec

from dovetail.answer.replica import recreated_pods
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import effect
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import plan, reservations
from dovetail.world import events

MIRROR = "kubernetes.io/config.mirror"  # annotation of static pods


class Displaced(NamedTuple):
    """What happens to pods: edits, the names of those that wait again and of those that are lost."""

    edits: list[Edit]
    again: list[str]
    lost: list[str]


def displaced(
    replica: Replica,
    nodes: Collection[str],
    *,
    is_node_gone: bool,
    among: Callable[[pods.Pod], bool] = lambda pod: True,
) -> Displaced:
    """The pods on these nodes leave, as far as `among` selects them."""
    result = Displaced([], [], [])
    leaving: list[pods.Pod] = []
    present = [
        replica.world.pods[pod_id]
        for pod_id, (node, _) in replica.world.running().items()
        if node in nodes
    ]
    for pod in sorted(present, key=plan.pod_ref):
        if not among(pod):
            continue
        if is_bound_to_node(pod):
            if is_node_gone:
                leaving.append(pod)
                result.edits.append(effect.deleted(pod))
            continue
        leaving.append(pod)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if is_recreated(replica, pod):
            result.edits.append(_again(replica, pod))
            result.again.append(name)
        else:
            result.edits.append(effect.deleted(pod))
            result.lost.append(name)
    result.edits.extend(released(replica, leaving))
    return result


def is_recreated(replica: Replica, pod: pods.Pod) -> bool:
    """Whether a controller creates the pod again."""
    member = replica.world.gangs.of(events.pod_id(pod))
    return member is not None and replica.world.gangs.definition(member.gang).is_recreated


def is_bound_to_node(pod: pods.Pod) -> bool:
    """Whether the pod exists because of its node: of a DaemonSet, or static."""
    owners = pod.metadata.owner_references
    by_daemon_set = any(owner.controller and owner.kind == "DaemonSet" for owner in owners)
    return by_daemon_set or MIRROR in pod.metadata.annotations


def released(replica: Replica, leaving: Collection[pods.Pod]) -> Iterator[Edit]:
    """The claims of these pods without them; a claim without any user gives its devices back."""
    changed: dict[object_set.Key, tuple[codec.Stored, claims.ResourceClaim]] = {}
    for pod in leaving:
        for namespace, name in reservations.used_claims(pod):
            key = object_set.Key(registry.CLAIM.unique_name, namespace, name)
            stored = replica.get(key)
            if stored is None or not isinstance(stored.struct, claims.ResourceClaim):
                continue
            claim = changed[key][1] if key in changed else stored.struct
            changed[key] = (stored, _without(claim, pod))
    for key, (stored, claim) in changed.items():
        is_of_pod = any(reservations.is_made_for(claim, pod) for pod in leaving)
        is_extended = any(_serves_extended(pod, claim) for pod in leaving)
        if is_extended and is_of_pod:
            yield Edit(key, None)  # the scheduler creates another one with the next placement
        else:
            yield effect.changed(stored, claim)


def _without(claim: claims.ResourceClaim, pod: pods.Pod) -> claims.ResourceClaim:
    users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
    allocation = claim.status.allocation if users else None
    status = msgspec.structs.replace(claim.status, reserved_for=users, allocation=allocation)
    return msgspec.structs.replace(claim, status=status)


def _serves_extended(pod: pods.Pod, claim: claims.ResourceClaim) -> bool:
    extended = pod.status.extended_resource_claim_status
    return extended is not None and extended.resource_claim_name == claim.metadata.name


def _again(replica: Replica, pod: pods.Pod) -> Edit:
    """The pod that its owner creates instead."""
    stored = replica.get(object_set.key_of(pod))
    assert stored is not None, "a pod of the World that was never stored"
    return effect.changed(stored, recreated_pods.recreated(pod, replica.now))
