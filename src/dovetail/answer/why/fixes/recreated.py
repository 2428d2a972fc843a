"""What controllers make of objects that are created again: pods without a node, and claims from their templates.

Given trees; returns trees. Does what the API server, the claim controller and the garbage collector would, in the parts
that scheduling reads. Identities are made from the old ones, so that the same change gives the same objects. Never
looks anything up but through what it is given.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.answer.why.fixes import tree_paths
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes import names, registry

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
# What a server or a controller writes, and a manifest to create must not bring.
_SERVER_METADATA: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_JOB_LABELS: Final = (  # batch/v1: made from the uid of the Job
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
_ACCESS_VOLUME: Final = "kube-api-access-"  # of the ServiceAccount admission plugin
_BIND_ANNOTATIONS: Final = (  # of a bound volume claim
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
)
_SERVER_FINALIZERS: Final = frozenset(
    {
        "kubernetes.io/pvc-protection",
        "resource.kubernetes.io/delete-protection",
        "foregroundDeletion",
        "orphan",
    }
)

TemplateLookup = Callable[[str, str], Tree | None]  # namespace and name


class Priority(NamedTuple):
    """What a PriorityClass gives its pods."""

    value: int
    preemption_policy: str


def manifest(tree: Tree) -> Tree:
    """The object as a person would create it: without what servers and controllers wrote."""
    metadata = {
        name: value for name, value in tree["metadata"].items() if name not in _SERVER_METADATA
    }
    dropped = {_LAST_APPLIED, *_BIND_ANNOTATIONS}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {
        name: value for name, value in annotations.items() if name not in dropped
    }
    finalizers = metadata.get("finalizers") or ()
    metadata["finalizers"] = [name for name in finalizers if name not in _SERVER_FINALIZERS]
    for name in ("annotations", "finalizers", "labels"):
        if not metadata.get(name):
            metadata.pop(name, None)
    bare = {name: value for name, value in tree.items() if name != "status"}
    bare["metadata"] = metadata
    if tree.get("kind") == "Job":
        return _job_manifest(bare)
    if tree.get("kind") == "PersistentVolumeClaim":
        return _without(bare, ("spec", "volumeName"))
    if tree.get("kind") == "Pod":
        return _pod_manifest(bare)
    return bare


def _pod_manifest(bare: Tree) -> Tree:
    """Without the token that the server mounts into every pod, and without what it reads off a PriorityClass."""
    spec = dict(bare.get("spec") or {})
    if spec.get("priorityClassName"):
        spec.pop("priority", None)
    volumes = spec.get("volumes") or ()
    tokens = {
        volume.get("name")
        for volume in volumes
        if str(volume.get("name")).startswith(_ACCESS_VOLUME) and "projected" in volume
    }
    if tokens:
        spec["volumes"] = [volume for volume in volumes if volume.get("name") not in tokens]
        for field in ("containers", "initContainers"):
            if field in spec:
                spec[field] = [_without_mounts(container, tokens) for container in spec[field]]
        if not spec["volumes"]:
            del spec["volumes"]
    return bare | {"spec": spec}


def _without_mounts(container: Tree, volumes: Collection[str | None]) -> Tree:
    mounts = container.get("volumeMounts") or ()
    left = [mount for mount in mounts if mount.get("name") not in volumes]
    bare = {name: value for name, value in container.items() if name != "volumeMounts"}
    return bare | {"volumeMounts": left} if left else bare


def _job_manifest(bare: Tree) -> Tree:
    if tree_paths.at(bare, ("spec", "manualSelector")):
        return bare
    bare = _without(bare, ("spec", "selector"))
    for place in (("metadata",), ("spec", "template", "metadata")):
        for label in _JOB_LABELS:
            bare = _without(bare, (*place, "labels", label))
    return bare


def _without(tree: Tree, path: Path) -> Tree:
    result: Tree = tree_paths.without(tree, path)
    return result


def again(tree: Tree, now: datetime.datetime) -> Tree:
    """The object right after it was created again."""
    bare = manifest(tree)
    old_uid = str(tree["metadata"].get("uid") or tree["metadata"].get("name"))
    stamp = timestamps.to_text(now)
    return bare | {
        "metadata": bare["metadata"] | {"uid": fresh_uid(old_uid), "creationTimestamp": stamp}
    }


def fresh_uid(old_uid: str) -> str:
    """The identity of what was created again."""
    digest = hashlib.sha256(f"again/{old_uid}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


class NewPod(NamedTuple):
    """A pod that was created again, and the claims made for it."""

    tree: Tree
    claims: tuple[Tree, ...]


def pod_again(
    tree: Tree,
    now: datetime.datetime,
    *,
    template_of: TemplateLookup,
    shared_claims: Mapping[str, str],
    priorities: Mapping[str, Priority],
    keeps_node: bool = False,
) -> NewPod:
    """A pod after its deletion and creation; `shared_claims` are those of its group, by entry."""
    new = again(tree, now)
    spec = dict(new.get("spec") or {})
    if not keeps_node:
        spec.pop("nodeName", None)
    _set_priority(spec, priorities)
    new["spec"] = spec
    namespace = new["metadata"].get("namespace", "")
    claims: list[Tree] = []
    statuses: list[Tree] = []
    for entry in spec.get("resourceClaims") or ():
        name, template_name = str(entry.get("name")), entry.get("resourceClaimTemplateName")
        if not template_name:
            continue
        if name in shared_claims:
            statuses.append({"name": name, "resourceClaimName": shared_claims[name]})
            continue
        template = template_of(namespace, template_name)
        if template is None:
            continue
        claim = _claim_for(new["metadata"], name, template)
        claims.append(claim)
        statuses.append({"name": name, "resourceClaimName": claim["metadata"]["name"]})
    status: Tree = {"phase": "Pending"}
    if statuses:
        status["resourceClaimStatuses"] = statuses
    new["status"] = status
    return NewPod(new, tuple(claims))


def _set_priority(spec: Tree, priorities: Mapping[str, Priority]) -> None:
    priority = priorities.get(spec.get("priorityClassName") or "")
    if priority is not None:
        spec["priority"] = priority.value
        spec.setdefault("preemptionPolicy", priority.preemption_policy)


def _claim_for(pod: Tree, entry: str, template: Tree) -> Tree:
    """The claim that the claim controller makes for an entry of a pod."""
    template_spec = template.get("spec") or {}
    own = template_spec.get("metadata") or {}
    base = f"{pod['name']}-{entry}-"[: names.MAX_GENERATED_BASE]
    suffix = hashlib.sha256(f"{pod['uid']}/{entry}".encode()).hexdigest()[:5]
    owner = {
        "apiVersion": registry.CORE_V1,
        "kind": "Pod",
        "name": pod["name"],
        "uid": pod["uid"],
        "controller": True,
    }
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {
            "name": base + suffix,
            "generateName": base,
            "namespace": pod.get("namespace", ""),
            "uid": fresh_uid(f"{pod['uid']}/{entry}"),
            "labels": own.get("labels") or {},
            "annotations": (own.get("annotations") or {}) | {POD_CLAIM_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": template_spec.get("spec") or {},
    }


def released(claim: Tree, gone: Collection[str]) -> Tree | None:
    """A claim after these pods are gone: None where it was theirs alone, without devices where none uses it."""
    owners = claim["metadata"].get("ownerReferences") or ()
    if any(owner.get("controller") and owner.get("uid") in gone for owner in owners):
        return None
    status = dict(claim.get("status") or {})
    users = status.pop("reservedFor", None) or ()
    staying = [user for user in users if user.get("uid") not in gone]
    if staying:
        status["reservedFor"] = staying
    elif users:
        status.pop("allocation", None)
        status.pop("devices", None)
    return claim | {"status": status}


def uncordoned(node: Tree) -> Tree:
    """A node after the node controller took the taint of a cordon away."""
    if tree_paths.at(node, ("spec", "unschedulable")):
        return node
    taints = tree_paths.at(node, ("spec", "taints")) or ()
    left = [taint for taint in taints if taint.get("key") != UNSCHEDULABLE]
    if len(left) == len(taints):
        return node
    result: Tree = tree_paths.with_value(node, ("spec", "taints"), left)
    return result


UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
