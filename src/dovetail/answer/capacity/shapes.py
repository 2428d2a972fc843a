"""Shapes of pods: what a pod requests, apart from its name, so that copies of it can be placed.

Given a pod with the specs of its claims. A copy is a new pending pod with claims of its own. Never places anything.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import errors, timestamps
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import codec, meta, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs, reservations, workload_annotations

# Objects that exist on paper only.
UID: Final = "dovetail-capacity"
# Copies are work that a controller makes again after an eviction, as most work is.
_OWNER: Final = meta.OwnerReference(
    api_version="apps/v1", kind="ReplicaSet", name=UID, uid=UID, controller=True
)
_NO_DOCUMENT: Final = b"{}"  # copies are decided about, never printed
_POD: Final = registry.POD.unique_name
_CLAIM: Final = registry.CLAIM.unique_name


class Shape(NamedTuple):
    """A pod to copy, and the specs of its claims by the names the pod gives them."""

    name: str  # for people
    pod: pods.Pod
    claims: Mapping[str, claims.ResourceClaimSpec]


class Copies(NamedTuple):
    """Copies of a shape as edits of a replica, and their pod ids."""

    ids: tuple[str, ...]
    edits: tuple[Edit, ...]


def shape_of(replica: Replica, pod: pods.Pod) -> Shape:
    """The shape of a pod that is there. Raises InputError where a claim of it is not."""
    specs: dict[str, claims.ResourceClaimSpec] = {}
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        name = reservations.claim_name(pod, entry)
        claim = replica.world.claims.get((namespace, name or ""))
        if claim is not None:
            specs[entry.name] = claim.spec
            continue
        template = replica.world.templates.get(
            (namespace, entry.resource_claim_template_name or "")
        )
        if template is None:
            raise errors.InputError(
                f"pod {namespace}/{pod.metadata.name}: its claim {entry.name} does not exist, "
                "so its shape is not known"
            )
        specs[entry.name] = template.spec.spec
    return Shape(f"pod {namespace}/{pod.metadata.name}", _pending(pod), specs)


def copies(shape: Shape, count: int, now: datetime.datetime, *, gang: str = "") -> Copies:
    """So many new pending pods of the shape; with a gang's name they start together or not at all."""
    ids: list[str] = []
    edits: list[Edit] = []
    created = timestamps.to_text(now)
    for number in range(count):
        pod, owned = _copy(shape, number, created, gang=gang, size=count)
        ids.append(pod.metadata.uid)
        edits.append(_edit(_POD, pod))
        edits.extend(_edit(_CLAIM, claim) for claim in owned)
    return Copies(tuple(ids), tuple(edits))


def _copy(
    shape: Shape, number: int, created: str, *, gang: str, size: int
) -> tuple[pods.Pod, list[claims.ResourceClaim]]:
    name = f"{UID}-{gang or 'copy'}-{number}"
    namespace = shape.pod.metadata.namespace
    labels = _without_gang(shape.pod.metadata.labels)
    if gang:
        labels |= {gangs.GANG_LABEL: gang, gangs.MIN_LABEL: str(size)}
    metadata = meta.ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"{namespace}/{name}",
        creation_timestamp=created,
        labels=labels,
        annotations=dict(_options(shape.pod.metadata.annotations)),
        owner_references=(_OWNER,),
    )
    owned = list(_owned_claims(shape, metadata))
    statuses = tuple(
        pods.PodResourceClaimStatus(name=entry.name, resource_claim_name=f"{name}-{entry.name}")
        for entry in shape.pod.spec.resource_claims
    )
    pod = msgspec.structs.replace(
        shape.pod,
        metadata=metadata,
        status=pods.PodStatus(phase="Pending", resource_claim_statuses=statuses),
    )
    return pod, owned


def _owned_claims(shape: Shape, pod: meta.ObjectMeta) -> Iterator[claims.ResourceClaim]:
    owner = meta.OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    for name, spec in shape.claims.items():
        metadata = meta.ObjectMeta(
            name=f"{pod.name}-{name}",
            namespace=pod.namespace,
            uid=f"{pod.uid}-{name}",
            creation_timestamp=pod.creation_timestamp,
            owner_references=(owner,),
        )
        yield claims.ResourceClaim(
            api_version=registry.CLAIM.api_version,
            kind=registry.CLAIM.name,
            metadata=metadata,
            spec=spec,
        )


def _pending(pod: pods.Pod) -> pods.Pod:
    """The pod without what only this one has: a node, gates, a group, claims shared by name."""
    entries = tuple(
        pods.PodResourceClaim(name=entry.name, resource_claim_template_name=entry.name)
        for entry in pod.spec.resource_claims
    )
    spec = msgspec.structs.replace(
        pod.spec,
        node_name="",
        scheduling_gates=(),
        scheduling_group=None,
        resource_claims=entries,
    )
    return msgspec.structs.replace(pod, spec=spec, status=pods.PodStatus(phase="Pending"))


_GANG_KEYS: Final = frozenset(
    {
        gangs.GANG_LABEL,
        gangs.GROUP_LABEL,
        gangs.MIN_LABEL,
        gangs.KUEUE_GROUP,
        gangs.KUEUE_TOTAL,
        gangs.KAI_GROUP_ANNOTATION,
        gangs.KAI_USER_MADE,
        gangs.KAI_SUBGROUP,
        workload_annotations.MAX,
        workload_annotations.KAI_MIN,
        workload_annotations.KAI_MIN_OTHERS,
    }
)


def _without_gang(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in _GANG_KEYS}


def _options(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The annotations that a scheduler reads, without those about the gang of the original."""
    for key, value in workload_annotations.scheduler_entries(dict(annotations)):
        if key not in _GANG_KEYS:
            yield key, value


def _edit(kind: str, struct: pods.Pod | claims.ResourceClaim) -> Edit:
    key = object_set.Key(kind, struct.metadata.namespace, struct.metadata.name)
    return Edit(key, codec.Stored(struct, _NO_DOCUMENT))
