"""Decides which pods a change could help: one row for each kind of news, in the manner of queueing hints.

Given an object as it was and as it is. Without queues and gangs a parked pod is asked about again only by news that
could help it; with them pods are decided about together, and every kind of news here asks about all of them. News that
no object brings (an hour that has come, a place that expired, a write that failed) is reported by those who notice it.
Never decides whether a pod can start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from dovetail.loops import awaited, meaning
from dovetail.model import claims, gangs, kinds, nodes, pods
from dovetail.world.events import ObjectKey

TERMINAL: Final = ("Succeeded", "Failed")


class Concerned(Enum):
    """The pods that news could help."""

    ITSELF = "the pod"  # and with queues or gangs all others
    ITS_USERS = "the pods that name it"
    TOGETHER = "all pods, where they are decided about together"
    NEIGHBOURS = "pods that wait because of where other pods are, or are not"
    VOLUMES = "pods that use volumes"
    ANYBODY = "all pods"


class News(Enum):
    """What happened."""

    POD_WAITS = "a pod waits, or asks for something else"
    POD_WITHDRAWN = "a waiting pod is gone, is being deleted, or has ended"
    NOMINEE_MOVED = "a waiting pod with a nominated node is gone, looks different, or has another node"
    POD_PLACED = "a pod came to a node, is leaving it, or has other labels there"
    POD_STARTED = "a pod on a node started"
    POD_HOLDS_OTHERWISE = "a pod on a node takes something else, or its annotations say something else"
    POD_ENDED = "a pod on a node ended or is gone"
    CLAIM_CHANGED = "a claim came, went, or differs"
    CLAIM_TAKEN = "a claim was given devices"
    CLAIM_FREED = "a claim lost its devices"
    NODE_CHANGED = "a node came, went, or offers something else"
    GANG_CHANGED = "what an owner or a PodGroup says about its gang differs"
    VOLUME_CLAIM_CHANGED = "a volume claim came, went, or differs"
    STORAGE_CHANGED = "a volume, a storage class, or what a driver says about storage came, went, or differs"
    RULES_CHANGED = "a slice, class, taint rule, namespace, queue or topology came, went, or differs"


HINTS: Final[Mapping[News, Concerned]] = {
    News.POD_WAITS: Concerned.ITSELF,
    News.POD_WITHDRAWN: Concerned.TOGETHER,  # shares, minimums and promises counted it
    News.NOMINEE_MOVED: Concerned.NEIGHBOURS,
    News.POD_PLACED: Concerned.NEIGHBOURS,
    News.POD_STARTED: Concerned.TOGETHER,  # from now on its runtime counts
    News.POD_HOLDS_OTHERWISE: Concerned.ANYBODY,  # it may have shrunk, or may now be made to yield
    News.POD_ENDED: Concerned.ANYBODY,
    News.CLAIM_CHANGED: Concerned.ITS_USERS,
    News.CLAIM_TAKEN: Concerned.TOGETHER,  # a promise that cannot be kept any more holds nothing back
    News.CLAIM_FREED: Concerned.ANYBODY,
    News.NODE_CHANGED: Concerned.ANYBODY,
    News.GANG_CHANGED: Concerned.ANYBODY,
    News.VOLUME_CLAIM_CHANGED: Concerned.ITS_USERS,
    News.STORAGE_CHANGED: Concerned.VOLUMES,
    News.RULES_CHANGED: Concerned.ANYBODY,
}
GROUPS: Final[Mapping[Concerned, ObjectKey]] = {  # under which names such pods are parked
    Concerned.TOGETHER: awaited.TOGETHER,
    Concerned.NEIGHBOURS: awaited.NEIGHBOURS,
    Concerned.VOLUMES: awaited.VOLUMES,
    Concerned.ANYBODY: awaited.ANYBODY,
}


def of_pod(before: pods.Pod | None, pod: pods.Pod, *, is_there: bool) -> Iterator[News]:
    """What the change of a pod means. `before` is None where the pod was not seen yet."""
    waits = is_there and not pod.spec.node_name and pod.status.phase not in TERMINAL
    waited = before is not None and not before.spec.node_name and before.status.phase not in TERMINAL
    is_leaving = pod.metadata.deletion_timestamp is not None
    was_leaving = before is not None and before.metadata.deletion_timestamp is not None
    if waits and (before is None or meaning.asks_otherwise(before, pod)):
        yield News.POD_WAITS
    if waited and (not waits or (is_leaving and not was_leaving)) and not (is_there and pod.spec.node_name):
        yield News.POD_WITHDRAWN
    if before is not None and _moves_nominee(before, pod, waits=waits):
        yield News.NOMINEE_MOVED
    if is_there and meaning.moves_neighbours(before, pod):
        yield News.POD_PLACED
    if before is None or not before.spec.node_name:
        return
    if not is_there or pod.status.phase in TERMINAL:
        yield News.POD_ENDED
        return
    if meaning.holds_otherwise(before, pod):
        yield News.POD_HOLDS_OTHERWISE
    if before.status.start_time != pod.status.start_time:
        yield News.POD_STARTED


def of_claim(before: claims.ResourceClaim | None, claim: claims.ResourceClaim, *, is_there: bool) -> Iterator[News]:
    """What the change of a claim means."""
    yield News.CLAIM_CHANGED
    had = before.status.allocation if before is not None else None
    has = claim.status.allocation if is_there else None
    if had is not None and has is None:
        yield News.CLAIM_FREED
    elif had != has:
        yield News.CLAIM_TAKEN


def of_object(kind: kinds.Kind, before: Any, found: Any, *, is_there: bool) -> Iterator[News]:
    """What the change of an object of any other kind means."""
    match found:
        case nodes.Node():
            if not is_there or before is None or meaning.offers_more(before, found):
                yield News.NODE_CHANGED
        case gangs.Gang():
            yield News.GANG_CHANGED
        case _ if kind is kinds.VOLUME_CLAIM:
            yield News.VOLUME_CLAIM_CHANGED
        case _ if kind in kinds.STORAGE:
            yield News.STORAGE_CHANGED
        case _:
            yield News.RULES_CHANGED


def _moves_nominee(before: pods.Pod, pod: pods.Pod, *, waits: bool) -> bool:
    """Whether room that was kept for a waiting pod may be free, or those near it see something else."""
    if not before.status.nominated_node_name or before.spec.node_name:
        return False
    if pod.spec.node_name:
        return False  # it came to a node: that is news of its own
    return not waits or before.metadata.labels != pod.metadata.labels or before.spec != pod.spec
