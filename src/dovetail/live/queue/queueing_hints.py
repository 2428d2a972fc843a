"""Decides which parked pods an event may help, in the manner of kube-scheduler's queueing hints.

Given an object before and after the event. An event is classified (`News`), and one table (`HINTS`)
says which kind of change it is; each `ReasonCode` names the kinds of changes that may help a pod
refused for it. Without queues and gangs a parked pod is retried only after an event that may help it;
with them all pods are decided about together, and every row of the table retries all of them.
Heartbeats and our own conditions are no news. Changes without an object (a wake-up time, an expired
slot, a failed write) are requested by the code that notices them. Never decides whether a pod can
start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.live.queue import awaited_objects
from dovetail.model import gangs, plan
from dovetail.model.reasons import Change
from dovetail.world.events import ObjectKey


class News(Enum):
    """What happened."""

    POD_WAITS = "a pod waits, or asks for something else"
    POD_WITHDRAWN = "a waiting pod is gone, is being deleted, or has ended"
    NOMINEE_MOVED = (
        "a waiting pod with a nominated node is gone, looks different, or has another node"
    )
    POD_PLACED = "a pod came to a node, is leaving it, or has other labels there"
    POD_STARTED = "a pod on a node started"
    POD_USES_CHANGED = "a pod on a node takes something else, or its annotations say something else"
    POD_ENDED = "a pod on a node ended or is gone"
    CLAIM_CHANGED = "a claim came, went, or differs"
    CLAIM_TAKEN = "a claim was given devices"
    CLAIM_FREED = "a claim lost its devices"
    NODE_CHANGED = "a node came, went, or offers something else"
    GANG_CHANGED = "what an owner or a PodGroup says about its gang differs"
    VOLUME_CLAIM_CHANGED = "a volume claim came, went, or differs"
    STORAGE_CHANGED = (
        "a volume, a storage class, or what a driver says about storage came, went, or differs"
    )
    RULES_CHANGED = (
        "a slice, class, taint rule, namespace, queue or topology came, went, or differs"
    )


HINTS: Final[Mapping[News, Change]] = {
    News.POD_WAITS: Change.ITSELF,
    News.POD_WITHDRAWN: Change.SHARES,  # shares, minimums and promises counted it
    News.NOMINEE_MOVED: Change.NEIGHBOURS,
    News.POD_PLACED: Change.NEIGHBOURS,
    News.POD_STARTED: Change.SHARES,  # from now on its runtime counts
    News.POD_USES_CHANGED: Change.CAPACITY,  # it may have shrunk, or may be evicted from now on
    News.POD_ENDED: Change.CAPACITY,
    News.CLAIM_CHANGED: Change.ITS_CLAIMS,
    News.CLAIM_TAKEN: Change.SHARES,  # a promise that cannot be kept no longer holds others back
    News.CLAIM_FREED: Change.CAPACITY,
    News.NODE_CHANGED: Change.CAPACITY,
    News.GANG_CHANGED: Change.CAPACITY,
    News.VOLUME_CLAIM_CHANGED: Change.ITS_CLAIMS,
    News.STORAGE_CHANGED: Change.VOLUMES,
    News.RULES_CHANGED: Change.CAPACITY,
}
GROUPS: Final[Mapping[Change, ObjectKey]] = {  # the names under which such pods are parked
    Change.SHARES: awaited_objects.TOGETHER,
    Change.NEIGHBOURS: awaited_objects.NEIGHBOURS,
    Change.VOLUMES: awaited_objects.VOLUMES,
    Change.CAPACITY: awaited_objects.ALL_PODS,
}


def parked_under(pod: pods.Pod, refusal: plan.Refusal) -> tuple[ObjectKey, ...]:
    """The names under which a refused pod waits: its claims and volumes, and what its reasons add.

    Every parked pod is woken by changes for all pods (`ALL_PODS`), so that name is never listed.
    """
    names = awaited_objects.names_for(pod)
    codes = [obstacle.reason.code for obstacle in refusal.obstacles]
    is_tied = any(Change.NEIGHBOURS in code.helped_by for code in codes)
    return (*names, awaited_objects.NEIGHBOURS) if is_tied else names


def of_pod(before: pods.Pod | None, pod: pods.Pod, *, is_there: bool) -> Iterator[News]:
    """What a pod's change means. `before` is None if the pod was not seen yet."""
    is_waiting = is_there and _is_pending(pod)
    if is_waiting and (before is None or _asks_differently(before, pod)):
        yield News.POD_WAITS

    if before is not None:
        if _is_withdrawn(before, pod, is_there=is_there, is_waiting=is_waiting):
            yield News.POD_WITHDRAWN
        if _moves_nominee(before, pod, is_waiting=is_waiting):
            yield News.NOMINEE_MOVED

    if is_there and _moves_neighbours(before, pod):
        yield News.POD_PLACED

    if before is not None and before.spec.node_name:
        yield from _of_placed_pod(before, pod, is_there=is_there)


def _of_placed_pod(before: pods.Pod, pod: pods.Pod, *, is_there: bool) -> Iterator[News]:
    """What the change of a pod that had a node means for the room it uses."""
    if not is_there or pod.status.phase in pods.TERMINAL_PHASES:
        yield News.POD_ENDED
        return
    if _holds_differently(before, pod):
        yield News.POD_USES_CHANGED
    if before.status.start_time != pod.status.start_time:
        yield News.POD_STARTED


def of_claim(
    before: claims.ResourceClaim | None, claim: claims.ResourceClaim, *, is_there: bool
) -> Iterator[News]:
    """What a claim's change means."""
    yield News.CLAIM_CHANGED
    old_allocation = before.status.allocation if before is not None else None
    new_allocation = claim.status.allocation if is_there else None
    if old_allocation is not None and new_allocation is None:
        yield News.CLAIM_FREED
    elif old_allocation != new_allocation:
        yield News.CLAIM_TAKEN


def of_object(kind: registry.Kind, before: Any, after: Any, *, is_there: bool) -> Iterator[News]:
    """What the change of an object of any other kind means."""
    match after:
        case nodes.Node():
            if not is_there or before is None or _offers_differently(before, after):
                yield News.NODE_CHANGED
        case gangs.Gang():
            yield News.GANG_CHANGED
        case claims.ResourceClaimTemplate():
            pass  # no pod can start because of it: the claim that is made from it is the news
        case _ if kind is registry.VOLUME_CLAIM:
            yield News.VOLUME_CLAIM_CHANGED
        case _ if kind in registry.STORAGE:
            yield News.STORAGE_CHANGED
        case _:
            yield News.RULES_CHANGED


def _is_pending(pod: pods.Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES


def _is_withdrawn(before: pods.Pod, pod: pods.Pod, *, is_there: bool, is_waiting: bool) -> bool:
    """Whether a pending pod stops waiting although it got no node."""
    is_bound = is_there and bool(pod.spec.node_name)
    if not _is_pending(before) or is_bound:
        return False
    was_leaving = before.metadata.deletion_timestamp is not None
    begins_to_leave = pod.metadata.deletion_timestamp is not None and not was_leaving
    return not is_waiting or begins_to_leave


def _moves_nominee(before: pods.Pod, pod: pods.Pod, *, is_waiting: bool) -> bool:
    """Whether a nominated pod gives up its room, or looks different to pods near that room."""
    if not before.status.nominated_node_name or before.spec.node_name:
        return False
    if pod.spec.node_name:
        return False  # it came to a node: that is POD_PLACED
    has_changed = before.metadata.labels != pod.metadata.labels or before.spec != pod.spec
    return not is_waiting or has_changed


def _asks_differently(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether a decision about a waiting pod may differ. Our own conditions change nothing."""
    old, new = before.metadata, after.metadata
    return (
        before.spec != after.spec
        or old.labels != new.labels
        or old.owner_references != new.owner_references
        or old.deletion_timestamp != new.deletion_timestamp
        or _is_annotated_differently(before, after)
        or _decision_inputs(before.status) != _decision_inputs(after.status)
    )


def _decision_inputs(status: pods.PodStatus) -> tuple[object, ...]:
    """The fields of a pending pod's status that a decision reads."""
    return (
        status.resource_claim_statuses,
        status.extended_resource_claim_status,
        status.nominated_node_name,
        status.phase,
    )


def _is_annotated_differently(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether annotations that a decision reads differ."""
    if before.metadata.annotations == after.metadata.annotations:
        return False
    return gangs.scheduling_annotations(before.metadata) != gangs.scheduling_annotations(
        after.metadata
    )


def _holds_differently(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether a pod on a node uses something else there, or other pods may evict it than before."""
    old_claim = before.status.extended_resource_claim_status
    return (
        before.spec != after.spec
        or before.metadata.owner_references != after.metadata.owner_references
        or old_claim != after.status.extended_resource_claim_status
        or _is_annotated_differently(before, after)
    )


def _offers_differently(before: nodes.Node, after: nodes.Node) -> bool:
    """Whether a node's change may help a pod. Heartbeats do not."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.status.allocatable != after.status.allocatable
        or before.status.declared_features != after.status.declared_features
    )


def _moves_neighbours(before: pods.Pod | None, after: pods.Pod) -> bool:
    """Whether a pod came to a node or looks different there, for pods with affinity to it."""
    is_on_node = bool(after.spec.node_name)
    if before is None:
        return is_on_node
    if before.status.nominated_node_name != after.status.nominated_node_name:
        return True
    return is_on_node and (
        before.spec.node_name != after.spec.node_name
        or before.metadata.labels != after.metadata.labels
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    )
