"""How many replicas each ReplicaSet of a Deployment should have: surge, unavailability, and shares while it is scaled.

Given a Deployment and its ReplicaSets; returns numbers. The rounding is upstream's. Never writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from dovetail.sim.controllers import owner_references, pod_states, pod_templates, tree_fields

Tree = dict[str, Any]

DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"


def is_rolling(deployment: Tree) -> bool:
    """Whether the Deployment replaces its pods step by step."""
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def max_surge(deployment: Tree) -> int:
    """How many pods there may be beyond `spec.replicas`."""
    return _limits(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Tree) -> int:
    """How many pods fewer than `spec.replicas` may be available."""
    replicas: int = deployment["spec"]["replicas"]
    if not is_rolling(deployment) or replicas == 0:
        return 0
    return min(_limits(deployment)[1], replicas)


def replicas_of(replica_set: Tree) -> int:
    """The replicas that a ReplicaSet should have."""
    replicas = replica_set["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def total(replica_sets: Iterable[Tree]) -> int:
    """The replicas that ReplicaSets should have together."""
    return sum(map(replicas_of, replica_sets))


def counted(replica_sets: Iterable[Tree], field: str) -> int:
    """The sum of a number in the status of ReplicaSets."""
    return sum(tree_fields.number(each, "status", field) for each in replica_sets)


def active(replica_sets: Iterable[Tree]) -> list[Tree]:
    """The ReplicaSets that should have replicas."""
    return [replica_set for replica_set in replica_sets if replicas_of(replica_set) > 0]


def oldest_first(replica_sets: Iterable[Tree]) -> list[Tree]:
    """By creation, then by name."""
    return sorted(replica_sets, key=_age)


def replicas_of_new(deployment: Tree, new: Tree, replica_sets: Iterable[Tree]) -> int:
    """The replicas that the newest ReplicaSet may have now, given all ReplicaSets, itself included."""
    desired: int = deployment["spec"]["replicas"]
    if not is_rolling(deployment):
        return desired
    surge = deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    allowed = desired + pod_templates.scaled_value(surge, desired, rounds_up=True)
    room = allowed - total(replica_sets)
    current = replicas_of(new)
    if room <= 0:
        return current
    return current + min(room, desired - current)


def is_saturated(deployment: Tree, new: Tree | None) -> bool:
    """Whether the newest ReplicaSet has all replicas of the Deployment, available."""
    if new is None:
        return False
    desired = deployment["spec"]["replicas"]
    annotation = owner_references.annotations_of(new).get(DESIRED_REPLICAS)
    numbers = (replicas_of(new), counted([new], "availableReplicas"))
    return annotation == str(desired) and numbers == (desired, desired)


def proportional_sizes(deployment: Tree, replica_sets: list[Tree]) -> dict[str, int]:
    """The sizes of active ReplicaSets, by name, when the Deployment is scaled in the middle of a rollout.

    Each grows or shrinks by its share of the difference, the largest first; what rounding leaves over goes to the
    largest. Among equals the newest grows first and the oldest shrinks first.
    """
    desired: int = deployment["spec"]["replicas"]
    allowed = desired + max_surge(deployment) if desired else 0
    difference = allowed - total(replica_sets)
    by_age = sorted(replica_sets, key=_age, reverse=difference > 0)
    by_size = sorted(by_age, key=replicas_of, reverse=True)

    sizes = {}
    added = 0
    for replica_set in by_size:
        share = _share(deployment, replica_set, difference=difference, added=added)
        sizes[replica_set["metadata"]["name"]] = replicas_of(replica_set) + share
        added += share
    if by_size and difference:
        largest = by_size[0]["metadata"]["name"]
        sizes[largest] = max(0, sizes[largest] + difference - added)
    return sizes


def _share(deployment: Tree, replica_set: Tree, *, difference: int, added: int) -> int:
    remaining = difference - added
    if not remaining or not replicas_of(replica_set):
        return 0
    fraction = _fraction(deployment, replica_set)
    return min(fraction, remaining) if difference > 0 else max(fraction, remaining)


def _fraction(deployment: Tree, replica_set: Tree) -> int:
    """By how much a ReplicaSet changes if it keeps its part of the largest size of the Deployment."""
    desired: int = deployment["spec"]["replicas"]
    current = replicas_of(replica_set)
    if desired == 0:
        return -current
    before = _annotated(replica_set, MAX_REPLICAS)
    if not before:
        before = tree_fields.number(deployment, "status", "replicas")
    if not before:
        return 0
    size = current * (desired + max_surge(deployment)) / before
    return math.floor(size + 0.5) - current


def _annotated(replica_set: Tree, annotation: str) -> int:
    text = owner_references.annotations_of(replica_set).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def _limits(deployment: Tree) -> tuple[int, int]:
    """Surge and unavailability. If both round to zero, one pod may be unavailable, else nothing could ever move."""
    limits = deployment["spec"]["strategy"]["rollingUpdate"]
    desired: int = deployment["spec"]["replicas"]
    surge = pod_templates.scaled_value(limits.get("maxSurge"), desired, rounds_up=True)
    unavailable = pod_templates.scaled_value(limits.get("maxUnavailable"), desired, rounds_up=False)
    if surge == 0 and unavailable == 0:
        return 0, 1
    return surge, unavailable


def _age(replica_set: Tree) -> tuple[str, str]:
    created = pod_states.created_at(replica_set)
    stamp = "" if created is None else created.isoformat()
    return stamp, replica_set["metadata"]["name"]
