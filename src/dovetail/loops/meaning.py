"""Decides what a change means to pods that wait: nothing, something to pods tied to others, or something to anybody.

Given an object as it was and as it is. Heartbeats and our own conditions mean nothing. Never reads a world.
"""

from __future__ import annotations

from typing import Final

from dovetail.model import gangs, nodes, plan, pods
from dovetail.model.reasons import ReasonCode

TIES: Final = frozenset(
    {ReasonCode.POD_AFFINITY, ReasonCode.POD_ANTI_AFFINITY, ReasonCode.SPREAD, ReasonCode.NOMINATED}
)


def asks_otherwise(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether a decision about a pod that waits could differ: our own conditions on it change nothing."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.metadata.owner_references != after.metadata.owner_references
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        or says_otherwise(before, after)
        or before.status.resource_claim_statuses != after.status.resource_claim_statuses
        or before.status.extended_resource_claim_status != after.status.extended_resource_claim_status
        or before.status.nominated_node_name != after.status.nominated_node_name
        or before.status.phase != after.status.phase
    )


def says_otherwise(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether a pod's annotations say something else to a scheduler."""
    if before.metadata.annotations == after.metadata.annotations:
        return False
    return gangs.words_of(before.metadata) != gangs.words_of(after.metadata)


def holds_otherwise(before: pods.Pod, after: pods.Pod) -> bool:
    """Whether a pod on a node takes something else there, or may be made to yield to others than before."""
    return (
        before.spec != after.spec
        or before.metadata.owner_references != after.metadata.owner_references
        or before.status.extended_resource_claim_status != after.status.extended_resource_claim_status
        or says_otherwise(before, after)
    )


def offers_more(before: nodes.Node, after: nodes.Node) -> bool:
    """Whether a node's change could help a pod."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.status.allocatable != after.status.allocatable
        or before.status.declared_features != after.status.declared_features
    )


def moves_neighbours(before: pods.Pod | None, after: pods.Pod) -> bool:
    """Whether a pod came to a node or looks different there: pods that want to be near or away from it may care."""
    if before is None or before.status.nominated_node_name != after.status.nominated_node_name:
        return bool(after.spec.node_name) or before is not None
    return bool(after.spec.node_name) and (
        before.spec.node_name != after.spec.node_name
        or before.metadata.labels != after.metadata.labels
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    )


def is_tied(refusal: plan.Refusal) -> bool:
    """Whether the pod waits because of where other pods are, or are not."""
    return any(obstacle.reason.code in TIES for obstacle in refusal.obstacles)
