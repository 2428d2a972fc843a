"""The volume controllers, in memory: volumes become available, claims are bound, volumes are provisioned.

Given all objects of some kinds as trees, returns the objects to write; called again until there are none. Stands in for
the volume and ephemeral volume controllers of kube-controller-manager and for a provisioner, in the parts a scheduler
depends on: a class that names a provisioner gets every volume it requests. Never decides where a pod goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dovetail.kubetypes import codec, untyped
from dovetail.kubetypes.storage import volumes
from dovetail.quantity import quantity

Tree = dict[str, Any]
Key = tuple[str, str]  # namespace and name
Listing = Mapping[str, list[Tree]]  # by kind
KINDS: Final = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Pod")
HOSTNAME: Final = "kubernetes.io/hostname"
OVER: Final = ("Succeeded", "Failed")


def changes(listed: Listing) -> Iterator[Tree]:
    """The controllers' next writes. A volume and its claim are bound to each other at once."""
    pods, all_volumes, all_claims, all_classes = (
        [_normalised(tree) for tree in listed[kind]]
        for kind in ("Pod", "PersistentVolume", "PersistentVolumeClaim", "StorageClass")
    )
    claims = {_key(claim): claim for claim in all_claims}
    for pod in pods:
        yield from _ephemeral_claims(pod, claims)

    yield from _phase_changes(all_volumes, claims)

    free = [volume for volume in all_volumes if _phase(volume) == volumes.AVAILABLE]
    classes = {class_["metadata"]["name"]: class_ for class_ in all_classes}
    for claim in claims.values():
        yield from _bind_or_provision(claim, all_volumes, free, classes=classes)


def _phase_changes(all_volumes: list[Tree], claims: Mapping[Key, Tree]) -> Iterator[Tree]:
    for volume in all_volumes:
        updated = _with_phase(volume, claims)
        if updated != volume:
            yield updated


def with_claim_ref(volume: Tree, claim: Tree) -> Tree:
    """The volume with a reference to its claim."""
    metadata = claim["metadata"]
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    ref |= {name: metadata[name] for name in ("namespace", "name", "uid") if name in metadata}
    marked = _annotated(volume, volumes.BOUND_BY_CONTROLLER, "yes")
    return marked | {"spec": (volume.get("spec") or {}) | {"claimRef": ref}}


def with_selected_node(claim: Tree, node: str) -> Tree:
    """The claim with the node for which its volume will be provisioned."""
    return _annotated(claim, volumes.SELECTED_NODE, node)


def _bind_or_provision(
    claim: Tree, all_volumes: list[Tree], free: list[Tree], *, classes: Mapping[str, Tree]
) -> Iterator[Tree]:
    """The next writes for a claim; none if it has a volume or has to wait."""
    metadata = claim["metadata"]
    annotations = metadata.get("annotations", {})
    if volumes.BIND_COMPLETED in annotations or metadata.get("deletionTimestamp"):
        return

    reserved = next((volume for volume in all_volumes if _names(volume, claim)), None)
    if reserved is not None:
        yield from _bound(claim, reserved)
        return

    binds_at_once = _binds_at_once(claim, classes)
    match = _smallest(claim, free) if binds_at_once else None
    if match is not None:
        free.remove(match)
        yield from _bound(claim, with_claim_ref(match, claim))
        return

    node = annotations.get(volumes.SELECTED_NODE, "")
    provisioner = _class_of(claim, classes).get("provisioner", "")
    may_provision = provisioner not in ("", volumes.NO_PROVISIONER)
    if may_provision and (node or binds_at_once):
        yield _provisioned(claim, node)
    elif not claim.get("status", {}).get("phase"):
        yield claim | {"status": {"phase": "Pending"}}


def _class_of(claim: Tree, classes: Mapping[str, Tree]) -> Tree:
    return classes.get(claim["spec"].get("storageClassName") or "", {})


def _binds_at_once(claim: Tree, classes: Mapping[str, Tree]) -> bool:
    mode = _class_of(claim, classes).get("volumeBindingMode")
    return mode != volumes.WAIT_FOR_FIRST_CONSUMER


def _bound(claim: Tree, volume: Tree) -> Iterator[Tree]:
    """Both sides of a binding."""
    done = _annotated(claim, volumes.BIND_COMPLETED, "yes")
    name = volume["metadata"]["name"]
    yield with_claim_ref(volume, claim) | {"status": {"phase": "Bound"}}
    yield done | {"spec": claim["spec"] | {"volumeName": name}, "status": {"phase": "Bound"}}


def _provisioned(claim: Tree, node: str) -> Tree:
    """A new volume for a claim, on its selected node if it has one."""
    spec, metadata = claim["spec"], claim["metadata"]
    provisioned: Tree = {
        "capacity": spec.get("resources", {}).get("requests", {}),
        "accessModes": spec.get("accessModes", []),
        "storageClassName": spec.get("storageClassName", ""),
    }
    if node:
        test = {"key": HOSTNAME, "operator": "In", "values": [node]}
        provisioned["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}
        }
    name = f"pvc-{metadata.get('uid') or metadata['name']}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": provisioned,
    }
    return with_claim_ref(volume, claim)


def _ephemeral_claims(pod: Tree, claims: Mapping[Key, Tree]) -> Iterator[Tree]:
    """A claim for each ephemeral volume of a pod."""
    metadata = pod["metadata"]
    if pod.get("status", {}).get("phase") in OVER or metadata.get("deletionTimestamp"):
        return
    for volume in pod.get("spec", {}).get("volumes", ()):
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        key = (metadata.get("namespace", ""), f"{metadata['name']}-{volume.get('name', '')}")
        if not isinstance(template, dict) or key in claims:
            continue
        claim = _claim_from_template(template, key, pod_metadata=metadata)
        # A server would refuse an unreadable claim, and the pod would wait for it.
        if _is_readable(claim):
            yield claim | {"status": {"phase": "Pending"}}


def _claim_from_template(template: Tree, key: Key, *, pod_metadata: Tree) -> Tree:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod_metadata["name"],
        "uid": pod_metadata["uid"],
        "controller": True,
    }
    metadata = {"namespace": key[0], "name": key[1], "ownerReferences": [owner]}
    template_metadata = template.get("metadata") or {}
    for field in ("labels", "annotations"):
        if template_metadata.get(field):
            metadata[field] = template_metadata[field]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


def _is_readable(claim: Tree) -> bool:
    try:
        codec.decode(claim)
    except codec.DecodeError:
        return False
    return True


def _with_phase(volume: Tree, claims: Mapping[Key, Tree]) -> Tree:
    """The volume, as Available if it is new, as Released if its claim is gone."""
    ref = volume["spec"].get("claimRef")
    if ref is None:
        return volume if _phase(volume) else volume | {"status": {"phase": volumes.AVAILABLE}}
    if not ref.get("uid"):
        return volume

    claim = claims.get((ref.get("namespace", ""), ref.get("name", "")))
    if claim is not None and claim["metadata"].get("uid") == ref["uid"]:
        return volume
    return volume | {"status": {"phase": "Released"}}


def _smallest(claim: Tree, free: list[Tree]) -> Tree | None:
    """The smallest free volume that fits the claim."""
    fitting = [volume for volume in free if _fits(volume["spec"], claim["spec"])]
    return min(
        fitting,
        key=lambda volume: (_size(volume["spec"].get("capacity")), volume["metadata"]["name"]),
        default=None,
    )


def _fits(volume_spec: Tree, claim_spec: Tree) -> bool:
    if volume_spec.get("storageClassName", "") != (claim_spec.get("storageClassName") or ""):
        return False
    if not set(claim_spec.get("accessModes", ())) <= set(volume_spec.get("accessModes", ())):
        return False
    requested = claim_spec.get("resources", {}).get("requests")
    return _size(volume_spec.get("capacity")) >= _size(requested)


def _names(volume: Tree, claim: Tree) -> bool:
    ref, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    is_named = (ref.get("namespace"), ref.get("name")) == (
        metadata.get("namespace"),
        metadata["name"],
    )
    return is_named and ref.get("uid") in (None, "", metadata.get("uid"))


def _annotated(tree: Tree, name: str, value: str) -> Tree:
    metadata = tree["metadata"]
    return tree | {
        "metadata": metadata | {"annotations": (metadata.get("annotations") or {}) | {name: value}}
    }


def _normalised(tree: Tree) -> Tree:
    """The object without nulls, which mean absent, and with a spec, which manifests may omit."""
    return {"spec": {}} | untyped.without_nulls(codec.KINDS[tree["apiVersion"], tree["kind"]], tree)


def _phase(tree: Tree) -> str:
    return str(tree.get("status", {}).get("phase", ""))


def _key(tree: Tree) -> Key:
    return tree["metadata"].get("namespace", ""), tree["metadata"]["name"]


def _size(amounts: Mapping[str, Any] | None) -> int:
    return quantity.from_wire((amounts or {}).get(volumes.STORAGE, "0")).nanos
