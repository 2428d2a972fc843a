"""Pods as rows: what `dovetail get pods -o wide` shows, as structs. Never prints."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.tables import membership, pod_table, text


class PodItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod: where it runs, or why it does not."""

    namespace: str
    name: str
    status: str
    node: str
    claims: tuple[str, ...]
    created: str | None
    why_not: str
    work: str  # job/train, gang/llama, pod/notebook
    queue: str
    labels: dict[str, str]


def items_of(
    objects: object_set.ObjectSet, memberships: membership.Memberships
) -> tuple[PodItem, ...]:
    """All pods, by namespace and in natural order."""
    structs = [stored.struct for stored in objects.listed(registry.POD.name)]
    found = [pod for pod in structs if isinstance(pod, pods.Pod)]
    found.sort(key=lambda pod: (pod.metadata.namespace, text.natural(pod.metadata.name)))
    return tuple(item_of(pod, objects, memberships) for pod in found)


def item_of(
    pod: pods.Pod, objects: object_set.ObjectSet, memberships: membership.Memberships
) -> PodItem:
    """One pod."""
    return PodItem(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        status=pod_table.status_of(pod),
        node=pod.spec.node_name or "",
        claims=tuple(pod_table.claim_names(pod)),
        created=pod.metadata.creation_timestamp,
        why_not=pod_table.why_not(pod, objects),
        work=memberships.work_of(pod),
        queue=memberships.of(pod).queue,
        labels=pod.metadata.labels,
    )
