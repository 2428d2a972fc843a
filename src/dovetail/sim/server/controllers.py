"""The controllers that every cluster needs, in memory: creates claims, releases devices, collects orphans.

Given the object store, acts until nothing is left to do. Stands in for the claim controller and the garbage collector
of kube-controller-manager, in the parts a scheduler depends on, and runs the volume controllers. `given_back` and
`made_for` work on single objects, for callers that store claims elsewhere. Never allocates, never binds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import Any, Final

from dovetail.kubetypes import codec, meta, names, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, reservations
from dovetail.model.workloads import owner_gangs
from dovetail.sim.server import volume_controllers
from dovetail.sim.server.object_store import ObjectStore, Record, uids
from dovetail.world.events import key_of

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
# Kinds of owners whose absence is noticed. Owners of other kinds count as present.
COLLECTED: Final = {
    kind.name: kind for kind in (registry.POD, registry.NODE, registry.CLAIM, registry.POD_GROUP)
}
OWNED: Final = (registry.CLAIM, registry.SLICE, registry.LEASE, registry.POD, registry.VOLUME_CLAIM)
VOLUME_KINDS: Final = {
    kind.name: kind
    for kind in (*registry.STORAGE, registry.POD)
    if kind.name in volume_controllers.KINDS
}

Tree = dict[str, Any]


def settle(shelf: ObjectStore) -> int:
    """Acts until nothing is left to do; returns how many revisions that took."""
    before = shelf.revision
    while True:
        start = shelf.revision
        for record in shelf.all(registry.POD_GROUP):
            _make_group_claims(shelf, record)
        for record in shelf.all(registry.POD):
            _make_claims(shelf, record)
            _reserve_claims(shelf, record.struct)
        for record in shelf.all(registry.CLAIM):
            _release(shelf, record)
        if _has_volumes(shelf):
            _run_volume_controllers(shelf)
        _collect(shelf)
        if shelf.revision == start:
            return shelf.revision - before


def _run_volume_controllers(shelf: ObjectStore) -> None:
    listed = {
        name: [record.tree for record in shelf.all(kind)] for name, kind in VOLUME_KINDS.items()
    }
    for tree in volume_controllers.changes(listed):
        shelf.put(VOLUME_KINDS[tree["kind"]], tree)


def _has_volumes(shelf: ObjectStore) -> bool:
    """Whether the volume controllers could have anything to do: running them is slow with many pods."""
    is_used = any(
        shelf.all(kind)
        for name, kind in VOLUME_KINDS.items()
        if name.startswith("PersistentVolume")
    )
    return is_used or any(record.struct.spec.volumes for record in shelf.all(registry.POD))


def releases(tree: Tree, staying: Collection[str]) -> Iterator[Tree]:
    """A claim after each write that removes all users but those of the given uids.

    With the last user, the devices are deallocated and then the finalizer is removed. An allocation without our
    finalizer belongs to another controller and stays.
    """
    status = dict(tree.get("status") or {})
    users = [user for user in status.pop("reservedFor", ()) if user.get("uid") in staying]
    metadata = dict(tree["metadata"])
    finalizers = metadata.pop("finalizers", [])
    if users:
        yield tree | {"status": status | {"reservedFor": users}}
    elif claims.DELETE_PROTECTION_FINALIZER not in finalizers:
        yield tree | {"status": status}
    else:
        status.pop("allocation", None)
        status.pop("devices", None)
        yield tree | {"status": dict(status)}

        ours = claims.DELETE_PROTECTION_FINALIZER
        other_finalizers = [finalizer for finalizer in finalizers if finalizer != ours]
        if other_finalizers:
            metadata["finalizers"] = other_finalizers
        yield tree | {"metadata": metadata, "status": status}


def owner_pod(claim: claims.ResourceClaim) -> meta.OwnerReference | None:
    """The pod for which a claim was created and with which it ends; None for a claim that any pod may use."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.kind == "Pod":
            return owner
    return None


def _make_claims(shelf: ObjectStore, record: Record) -> None:
    """Creates a claim for each template that a pod names, and records its name in the pod's status."""
    pod: pods.Pod = record.struct
    if _is_over(pod) or pod.metadata.deletion_timestamp is not None:
        return

    recorded_names = {status.name for status in pod.status.resource_claim_statuses}
    new_statuses = []
    for entry in pod.spec.resource_claims:
        template = _template(shelf, entry, namespace=pod.metadata.namespace)
        if entry.name in recorded_names or template is None:
            continue

        group = _group_of(shelf, pod)
        if group is not None and entry in group.claims:
            claim_name = _group_claims(shelf, pod).get(entry.name)
            if claim_name is None:
                continue  # the group's claim has to be created first
        else:
            claim = _from_template(
                "v1", "Pod", pod.metadata, entry=entry.name, template=template.tree
            )
            shelf.put(registry.CLAIM, claim)
            claim_name = claim["metadata"]["name"]
        new_statuses.append({"name": entry.name, "resourceClaimName": claim_name})

    if new_statuses:
        status: Tree = record.tree.get("status") or {}
        statuses = [*status.get("resourceClaimStatuses", ()), *new_statuses]
        shelf.put(
            registry.POD, record.tree | {"status": status | {"resourceClaimStatuses": statuses}}
        )


def _make_group_claims(shelf: ObjectStore, record: Record) -> None:
    """Creates a claim for each template that a PodGroup names, and records its name in the group's status."""
    group: owners.PodGroup = record.struct
    if group.metadata.deletion_timestamp is not None:
        return
    status: Tree = record.tree.get("status") or {}
    statuses = list(status.get("resourceClaimStatuses", ()))
    recorded_names = {claim_status["name"] for claim_status in statuses}
    for entry in group.spec.resource_claims:
        template = _template(shelf, entry, namespace=group.metadata.namespace)
        if entry.name in recorded_names or template is None:
            continue
        version = registry.POD_GROUP.api_version
        claim = _from_template(
            version, "PodGroup", group.metadata, entry=entry.name, template=template.tree
        )
        shelf.put(registry.CLAIM, claim)
        statuses.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})

    if len(statuses) > len(recorded_names):
        shelf.put(
            registry.POD_GROUP,
            record.tree | {"status": status | {"resourceClaimStatuses": statuses}},
        )


def _template(shelf: ObjectStore, entry: pods.PodResourceClaim, *, namespace: str) -> Record | None:
    name = entry.resource_claim_template_name
    return shelf.find(registry.TEMPLATE, (namespace, name)) if name else None


def _group_of(shelf: ObjectStore, pod: pods.Pod) -> gangs.Gang | None:
    """The gang described by the PodGroup of a pod."""
    native = pod.spec.scheduling_group
    if native is None or not native.pod_group_name:
        return None
    record = shelf.find(registry.POD_GROUP, (pod.metadata.namespace, native.pod_group_name))
    return None if record is None else owner_gangs.gang_of(record.struct)


def _group_claims(shelf: ObjectStore, pod: pods.Pod) -> dict[str, str]:
    """The names of the claims created for the PodGroup of a pod, by entry."""
    native = pod.spec.scheduling_group
    name = native.pod_group_name if native is not None else None
    record = shelf.find(registry.POD_GROUP, (pod.metadata.namespace, name or ""))
    if record is None:
        return {}
    statuses = (record.tree.get("status") or {}).get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


def _from_template(
    version: str, kind: str, of: meta.ObjectMeta, *, entry: str, template: Tree
) -> Tree:
    claim_template = template["spec"]
    base = f"{of.name}-{entry}-"[: names.MAX_GENERATED_BASE]
    metadata = claim_template.get("metadata") or {}
    owner = {
        "apiVersion": version,
        "kind": kind,
        "name": of.name,
        "uid": of.uid,
        "controller": True,
    }
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {
            "name": base + hashlib.sha256(f"{of.uid}/{entry}".encode()).hexdigest()[:5],
            "generateName": base,
            "namespace": of.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": (metadata.get("annotations") or {}) | {POD_CLAIM_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": claim_template["spec"],
    }


def _reserve_claims(shelf: ObjectStore, pod: pods.Pod) -> None:
    """Reserves allocated claims for a bound pod, in case its binder did not."""
    if not pod.spec.node_name or _is_over(pod):
        return
    for key in reservations.named_claims(pod):
        record = shelf.find(registry.CLAIM, key)
        if record is None or record.metadata.deletion_timestamp is not None:
            continue
        if record.struct.status.allocation is None:
            continue
        if reservations.reserves(record.struct, pod):
            continue
        status = record.tree["status"]
        user = reservations.user_of(pod, key[1], _group_of(shelf, pod))
        users = [*status.get("reservedFor", ()), codec.tree_of(user)]
        shelf.put(registry.CLAIM, record.tree | {"status": status | {"reservedFor": users}})


def _release(shelf: ObjectStore, record: Record) -> None:
    """Removes users that are gone from a claim, and deletes a claim created for one of them."""
    claim: claims.ResourceClaim = record.struct
    users = claim.status.reserved_for
    staying = {user.uid for user in users if _is_user(shelf, claim, user)}
    is_deleted = claim.metadata.deletion_timestamp is not None
    is_protected = claims.DELETE_PROTECTION_FINALIZER in claim.metadata.finalizers
    is_unused = not users and is_deleted and is_protected
    if len(staying) < len(users) or is_unused:
        for tree in releases(record.tree, staying):
            record = shelf.put(registry.CLAIM, tree)
    if not staying:
        _retire(shelf, record.struct)


def _retire(shelf: ObjectStore, claim: claims.ResourceClaim) -> None:
    """Deletes a claim that was created for a pod, once the pod has ended."""
    owner = owner_pod(claim)
    if owner is None:
        return
    pod = shelf.find(registry.POD, (claim.metadata.namespace, owner.name))
    if pod is None or pod.metadata.uid != owner.uid:
        return  # the garbage collector deletes it
    if _is_over(pod.struct):
        shelf.delete(registry.CLAIM, key_of(claim))


def _is_user(
    shelf: ObjectStore, claim: claims.ResourceClaim, user: claims.ResourceClaimConsumerReference
) -> bool:
    """Whether a user still needs the claim: a pod until it ends, a PodGroup until it is deleted, others always."""
    if reservations.is_group(user):
        group = shelf.find(registry.POD_GROUP, (claim.metadata.namespace, user.name))
        return group is not None and group.metadata.uid == user.uid
    if user.resource != "pods":
        return True
    pod = shelf.find(registry.POD, (claim.metadata.namespace, user.name))
    if pod is None or pod.metadata.uid != user.uid:
        return False
    return not _is_over(pod.struct)


def _is_over(pod: pods.Pod) -> bool:
    """Whether a pod has ended, or was deleted before it was bound."""
    is_dropped = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase in pods.TERMINAL_PHASES or is_dropped


def _collect(shelf: ObjectStore) -> None:
    """Deletes the objects whose owners are all gone."""
    present_uids = uids(shelf, COLLECTED.values())
    for kind in OWNED:
        for record in shelf.all(kind):
            if record.metadata.deletion_timestamp is None and _is_orphan(record, present_uids):
                shelf.delete(kind, key_of(record.struct))


def _is_orphan(record: Record, present_uids: Collection[str]) -> bool:
    owner_references = record.metadata.owner_references
    if not owner_references:
        return False
    return all(
        owner.kind in COLLECTED and owner.uid not in present_uids for owner in owner_references
    )
