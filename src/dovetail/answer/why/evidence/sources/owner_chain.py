"""The owners above a pod and the objects below a workload, by owner references.

Given the replica. Owners that were not read end the chain. Never follows a chain that is longer than real ones are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes import codec, meta, object_set, registry

_MAX_DEPTH: Final = 8
# Kinds that stand between a workload and its pods, besides those of the registry.
_BETWEEN: Final = tuple(
    object_set.unique_kind(api_version, kind)
    for api_version, kind in (
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "CronJob"),
        ("v1", "ReplicationController"),
    )
)
KINDS: Final = tuple(
    dict.fromkeys(
        (
            *(kind.unique_name for kind in (*registry.OWNERS, *registry.PARENTS)),
            *_BETWEEN,
        )
    )
)


def owners_of(replica: Replica, struct: codec.Object) -> Iterator[codec.Stored]:
    """The controllers above an object, the nearest first, as far as they were read."""
    namespace = struct.metadata.namespace
    for _ in range(_MAX_DEPTH):
        reference = controller_of(struct.metadata)
        if reference is None:
            return
        kind = object_set.unique_kind(reference.api_version, reference.kind)
        stored = replica.get(object_set.Key(kind, namespace, reference.name))
        if stored is None or _is_another(stored.struct.metadata.uid, reference.uid):
            return
        yield stored
        struct = stored.struct


def owner_uids(replica: Replica, struct: codec.Object) -> set[str]:
    """The identities of the object and everything above it, read or not."""
    uids = {struct.metadata.uid}
    uids.update(reference.uid for reference in struct.metadata.owner_references)
    for owner in owners_of(replica, struct):
        uids.add(owner.struct.metadata.uid)
        uids.update(reference.uid for reference in owner.struct.metadata.owner_references)
    return uids - {""}


def owned_by(replica: Replica, top: codec.Stored) -> tuple[list[codec.Stored], list[codec.Stored]]:
    """The workloads below an object, nearest first, and the pods below it and them."""
    namespace = top.struct.metadata.namespace
    candidates = [stored for kind in KINDS for stored in replica.listed(kind, namespace=namespace)]
    workloads, frontier = [top], [top]
    for _ in range(_MAX_DEPTH):
        frontier = [
            stored
            for stored in candidates
            if stored not in workloads and _is_owned(stored.struct, frontier)
        ]
        if not frontier:
            break
        workloads += frontier
    below = [
        stored
        for stored in replica.listed(registry.POD.unique_name, namespace=namespace)
        if _is_owned(stored.struct, workloads)
    ]
    return workloads[1:], below


def controller_of(metadata: meta.ObjectMeta) -> meta.OwnerReference | None:
    """The owner that manages the object, else its first owner."""
    references = metadata.owner_references
    managing = next((each for each in references if each.controller), None)
    return managing or next(iter(references), None)


def reference_to(stored: codec.Stored) -> patches.ObjectRef:
    """The reference by which a patch names the object."""
    return patches.ref_of(stored.struct)


def _is_owned(struct: codec.Object, owners: list[codec.Stored]) -> bool:
    for reference in struct.metadata.owner_references:
        for owner in owners:
            metadata = owner.struct.metadata
            if reference.uid and metadata.uid:
                is_owner = reference.uid == metadata.uid
            else:
                is_owner = (reference.kind, reference.name) == (owner.struct.kind, metadata.name)
            if is_owner:
                return True
    return False


def _is_another(uid: str, referred: str) -> bool:
    return bool(uid and referred and uid != referred)
