"""The pods of a cluster by the family of work they belong to, so that records and objects are about the same thing.

Given a replica. Only pods that have not ended are work. Never reads records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size import families
from dovetail.answer.right_size.families import FamilyKey
from dovetail.kubetypes import object_set
from dovetail.kubetypes.core import pods
from dovetail.model.accounting import records


def pods_by_family(replica: Replica) -> dict[FamilyKey, list[pods.Pod]]:
    """The pods of every family, by name."""
    by_family: dict[FamilyKey, list[pods.Pod]] = defaultdict(list)
    for pod in replica.world.pods.values():
        if pod.status.phase not in pods.TERMINAL_PHASES:
            by_family[families.family_of(owner_of(pod))].append(pod)
    for own in by_family.values():
        own.sort(key=lambda pod: pod.metadata.name)
    return by_family


def owner_of(pod: pods.Pod) -> records.Owner:
    """The pod as records name it."""
    metadata = pod.metadata
    controller = next((ref for ref in metadata.owner_references if ref.controller), None)
    return records.Owner(
        namespace=metadata.namespace,
        pod=metadata.name,
        pod_uid=metadata.uid,
        controller_kind=controller.kind if controller is not None else "",
        controller=controller.name if controller is not None else "",
        labels=dict(metadata.labels),
    )


def programs(replica: Replica) -> Mapping[FamilyKey, list[dict[str, Any]]]:
    """The first pod of every family as a tree: what its containers run."""
    trees: dict[FamilyKey, list[dict[str, Any]]] = {}
    for key, own in pods_by_family(replica).items():
        stored = replica.get(object_set.key_of(own[0]))
        if stored is not None:
            trees[key] = [stored.tree]
    return trees
