"""The controllers a cluster cannot do without, in memory: claims for pods, devices given back, orphans collected.

Given the shelf, acts until nothing is left to do. Stands for the claim controller and the garbage collector of
kube-controller-manager as far as schedulers meet them, and lets those of volumes act. What becomes of a claim is said
about trees and structs alone, for whoever keeps claims elsewhere. Never allocates, never binds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import Any, Final

from dovetail.model import claims, gangs, kinds, meta, objects, pods, reservations
from dovetail.model.workloads import owners, reading
from dovetail.sim import volumes
from dovetail.sim.shelf import Record, Shelf, uids
from dovetail.world.events import ObjectKey, key_of

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
MAX_GENERATED_BASE: Final = 58  # what apimachinery keeps of a name before it appends five characters
TERMINAL: Final = ("Succeeded", "Failed")
# Owners that could be here and are not: what they owned goes. Owners of other kinds count as there.
COLLECTED: Final = {kind.name: kind for kind in (kinds.POD, kinds.NODE, kinds.CLAIM, kinds.POD_GROUP)}
OWNED: Final = (kinds.CLAIM, kinds.SLICE, kinds.LEASE, kinds.POD, kinds.VOLUME_CLAIM)
VOLUME_KINDS: Final = {kind.name: kind for kind in (*kinds.STORAGE, kinds.POD) if kind.name in volumes.KINDS}

Tree = dict[str, Any]


def settle(shelf: Shelf) -> int:
    """Acts until nothing is left to do; how many versions that took."""
    before = shelf.revision
    while True:
        start = shelf.revision
        for record in shelf.all(kinds.POD_GROUP):
            _make_group_claims(shelf, record)
        for record in shelf.all(kinds.POD):
            _make_claims(shelf, record)
            _reserve_claims(shelf, record.struct)
        for record in shelf.all(kinds.CLAIM):
            _release(shelf, record)
        if _has_volumes(shelf):
            listed = {name: [record.tree for record in shelf.all(kind)] for name, kind in VOLUME_KINDS.items()}
            for tree in volumes.changes(listed):
                shelf.put(VOLUME_KINDS[tree["kind"]], tree)
        _collect(shelf)
        if shelf.revision == start:
            return shelf.revision - before


def _has_volumes(shelf: Shelf) -> bool:
    """Whether the controllers of volumes could have anything to do: looking is dear where there are many pods."""
    kept = any(shelf.all(kind) for name, kind in VOLUME_KINDS.items() if name.startswith("PersistentVolume"))
    return kept or any(record.struct.spec.volumes for record in shelf.all(kinds.POD))


def given_back(tree: Tree, staying: Collection[str]) -> Iterator[Tree]:
    """A claim after each write that takes it from all users but those of these uids.

    With the last user go the devices and then the protection; an allocation nobody protects is not ours to take.
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
        left = {name: value for name, value in status.items() if name not in ("allocation", "devices")}
        yield tree | {"status": left}
        kept = [one for one in finalizers if one != claims.DELETE_PROTECTION_FINALIZER]
        yield tree | {"metadata": metadata | ({"finalizers": kept} if kept else {}), "status": left}


def made_for(claim: claims.ResourceClaim) -> meta.OwnerReference | None:
    """The pod a claim was made for, which has no more use for it when it has ended; None for anybody's claim."""
    return next((one for one in claim.metadata.owner_references if one.controller and one.kind == "Pod"), None)


def _make_claims(shelf: Shelf, record: Record) -> None:
    """A claim for each template a pod names, and its name in the pod's status."""
    pod: pods.Pod = record.struct
    if _is_over(pod) or pod.metadata.deletion_timestamp is not None:
        return
    known = {status.name for status in pod.status.resource_claim_statuses}
    made = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_template_name
        template = shelf.find(kinds.TEMPLATE, (pod.metadata.namespace, name)) if name else None
        if entry.name in known or template is None:
            continue
        group = _group_of(shelf, pod)
        if group is not None and entry in group.claims:
            name = next((one["resourceClaimName"] for one in _made(shelf, pod) if one["name"] == entry.name), None)
            if name is not None:  # else its group comes first
                made.append({"name": entry.name, "resourceClaimName": name})
            continue
        claim = _from_template("v1", "Pod", pod.metadata, entry=entry.name, template=template.tree)
        shelf.put(kinds.CLAIM, claim)
        made.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})
    if made:
        status: Tree = record.tree.get("status") or {}
        statuses = [*status.get("resourceClaimStatuses", ()), *made]
        shelf.put(kinds.POD, record.tree | {"status": status | {"resourceClaimStatuses": statuses}})


def _make_group_claims(shelf: Shelf, record: Record) -> None:
    """A claim for each template a PodGroup names, and its name in the group's status."""
    group: owners.PodGroup = record.struct
    if group.metadata.deletion_timestamp is not None:
        return
    status: Tree = record.tree.get("status") or {}
    made = list(status.get("resourceClaimStatuses", ()))
    known = {one["name"] for one in made}
    for entry in group.spec.resource_claims:
        name = entry.resource_claim_template_name
        template = shelf.find(kinds.TEMPLATE, (group.metadata.namespace, name)) if name else None
        if entry.name in known or template is None:
            continue
        version = kinds.POD_GROUP.api_version
        claim = _from_template(version, "PodGroup", group.metadata, entry=entry.name, template=template.tree)
        shelf.put(kinds.CLAIM, claim)
        made.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})
    if len(made) > len(known):
        shelf.put(kinds.POD_GROUP, record.tree | {"status": status | {"resourceClaimStatuses": made}})


def _group_of(shelf: Shelf, pod: pods.Pod) -> gangs.Gang | None:
    """What the PodGroup of a pod says."""
    native = pod.spec.scheduling_group
    if native is None or not native.pod_group_name:
        return None
    found = shelf.find(kinds.POD_GROUP, (pod.metadata.namespace, native.pod_group_name))
    return None if found is None else reading.gang_of(found.struct)


def _made(shelf: Shelf, pod: pods.Pod) -> list[Tree]:
    """The claims made for the PodGroup of a pod."""
    native = pod.spec.scheduling_group
    name = native.pod_group_name if native is not None else None
    found = shelf.find(kinds.POD_GROUP, (pod.metadata.namespace, name or ""))
    made: list[Tree] = (found.tree.get("status") or {}).get("resourceClaimStatuses", []) if found is not None else []
    return made


def _from_template(version: str, kind: str, of: meta.ObjectMeta, *, entry: str, template: Tree) -> Tree:
    wanted = template["spec"]
    base = f"{of.name}-{entry}-"[:MAX_GENERATED_BASE]
    metadata = wanted.get("metadata") or {}
    owner = {"apiVersion": version, "kind": kind, "name": of.name, "uid": of.uid, "controller": True}
    return {
        "apiVersion": objects.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {
            "name": base + hashlib.sha256(f"{of.uid}/{entry}".encode()).hexdigest()[:5],
            "generateName": base,
            "namespace": of.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": (metadata.get("annotations") or {}) | {POD_CLAIM_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": wanted["spec"],
    }


def _reserve_claims(shelf: Shelf, pod: pods.Pod) -> None:
    """A bound pod becomes a user of its allocated claims, where whoever bound it left that out."""
    if not pod.spec.node_name or _is_over(pod):
        return
    for key in _claims_of(pod):
        record = shelf.find(kinds.CLAIM, key)
        if record is None or record.struct.status.allocation is None or record.metadata.deletion_timestamp is not None:
            continue
        if reservations.reserves(record.struct, pod):
            continue
        status = record.tree["status"]
        user = reservations.user_of(pod, key[1], _group_of(shelf, pod))
        users = [*status.get("reservedFor", ()), objects.tree_of(user)]
        shelf.put(kinds.CLAIM, record.tree | {"status": status | {"reservedFor": users}})


def _claims_of(pod: pods.Pod) -> list[ObjectKey]:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [entry.resource_claim_name or made.get(entry.name) for entry in pod.spec.resource_claims]
    return [(pod.metadata.namespace, name) for name in names if name]


def _release(shelf: Shelf, record: Record) -> None:
    """Users that are gone give the claim back; a claim made for one of them goes with it."""
    claim: claims.ResourceClaim = record.struct
    users = claim.status.reserved_for
    staying = {user.uid for user in users if _is_user(shelf, claim, user)}
    is_leaving = len(staying) < len(users)
    is_protected = claims.DELETE_PROTECTION_FINALIZER in claim.metadata.finalizers
    if is_leaving or (not users and claim.metadata.deletion_timestamp is not None and is_protected):
        for tree in given_back(record.tree, staying):
            record = shelf.put(kinds.CLAIM, tree)
    if not staying:
        _retire(shelf, record.struct)


def _retire(shelf: Shelf, claim: claims.ResourceClaim) -> None:
    """A claim made for a pod that has ended is of no more use."""
    owner = made_for(claim)
    found = None if owner is None else shelf.find(kinds.POD, (claim.metadata.namespace, owner.name))
    if owner is None or found is None or found.metadata.uid != owner.uid:
        return  # nobody's, or the collector's
    if _is_over(found.struct):
        shelf.delete(kinds.CLAIM, key_of(claim))


def _is_user(shelf: Shelf, claim: claims.ResourceClaim, user: claims.ResourceClaimConsumerReference) -> bool:
    """Whether a user is still there: a pod until it has ended, a PodGroup until it is deleted, others for ever."""
    if reservations.is_group(user):
        group = shelf.find(kinds.POD_GROUP, (claim.metadata.namespace, user.name))
        return group is not None and group.metadata.uid == user.uid
    found = shelf.find(kinds.POD, (claim.metadata.namespace, user.name))
    is_there = found is not None and found.metadata.uid == user.uid and not _is_over(found.struct)
    return user.resource != "pods" or is_there


def _is_over(pod: pods.Pod) -> bool:
    """Ended, or told to end before it was anywhere."""
    is_dropped = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase in TERMINAL or is_dropped


def _collect(shelf: Shelf) -> None:
    """Deletes what has owners none of which is there."""
    there = uids(shelf, COLLECTED.values())
    for kind in OWNED:
        for record in shelf.all(kind):
            owners = record.metadata.owner_references
            is_orphan = bool(owners) and all(one.kind in COLLECTED and one.uid not in there for one in owners)
            if is_orphan and record.metadata.deletion_timestamp is None:
                shelf.delete(kind, key_of(record.struct))
