"""The controllers of volumes, in memory: volumes become available, claims are bound, what is asked for is provisioned.

Given all objects of some kinds as trees, answers with those to write, whole; asked again until nothing is left. Stands
for the volume and ephemeral volume controllers of kube-controller-manager and for a provisioner, as far as schedulers
meet them: every class that names a provisioner gets what it asks for. Never decides where a pod goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from dovetail.model import objects, quantity, trees, volumes

Tree = dict[str, Any]
Key = tuple[str, str]  # namespace and name
Listing = Mapping[str, list[Tree]]  # by kind
KINDS: Final = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Pod")
HOSTNAME: Final = "kubernetes.io/hostname"
OVER: Final = ("Succeeded", "Failed")


def changes(listed: Listing, still: Collection[Key] = ()) -> Iterator[Tree]:
    """What the controllers would write next. Volumes and claims are bound to each other in one go.

    Of claims in `still` only those move on whose pod was placed: they are as somebody found them elsewhere.
    """
    listed = {kind: [_whole(one) for one in found] for kind, found in listed.items()}
    held = {_key(claim): claim for claim in listed["PersistentVolumeClaim"]}
    for pod in listed["Pod"]:
        yield from _claims_made(pod, held)
    for volume in listed["PersistentVolume"]:
        if (after := _phased(volume, held)) != volume:
            yield after
    free = [volume for volume in listed["PersistentVolume"] if _phase(volume) == volumes.AVAILABLE]
    classes = {one["metadata"]["name"]: one for one in listed["StorageClass"]}
    for key, claim in held.items():
        if key in still and _binds_at_once(claim, classes):
            continue
        yield from _served(claim, listed["PersistentVolume"], free, classes=classes)


def given(volume: Tree, claim: Tree) -> Tree:
    """The volume that names its claim."""
    metadata = claim["metadata"]
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    ref |= {name: metadata[name] for name in ("namespace", "name", "uid") if name in metadata}
    marked = _annotated(volume, volumes.BOUND_BY_CONTROLLER, "yes")
    return marked | {"spec": (volume.get("spec") or {}) | {"claimRef": ref}}


def selected(claim: Tree, node: str) -> Tree:
    """The claim that says where its volume is to be made."""
    return _annotated(claim, volumes.SELECTED_NODE, node)


def _served(claim: Tree, everything: list[Tree], free: list[Tree], *, classes: Mapping[str, Tree]) -> Iterator[Tree]:
    """A claim on its way to a volume; nothing if it has one or has to wait."""
    spec, metadata = claim["spec"], claim["metadata"]
    if volumes.BIND_COMPLETED in metadata.get("annotations", {}) or metadata.get("deletionTimestamp"):
        return
    mine = next((one for one in everything if _names(one, claim)), None)
    if mine is not None:
        yield from _bound(claim, mine)
        return
    class_ = classes.get(spec.get("storageClassName") or "", {})
    waits = not _binds_at_once(claim, classes)
    node = metadata.get("annotations", {}).get(volumes.SELECTED_NODE, "")
    match = None if waits else _smallest(claim, free)
    if match is not None:
        free.remove(match)
        yield from _bound(claim, given(match, claim))
    elif class_.get("provisioner", "") not in ("", volumes.NO_PROVISIONER) and (node or not waits):
        yield _provisioned(claim, node)
    elif not claim.get("status", {}).get("phase"):
        yield claim | {"status": {"phase": "Pending"}}


def _binds_at_once(claim: Tree, classes: Mapping[str, Tree]) -> bool:
    class_ = classes.get(claim["spec"].get("storageClassName") or "", {})
    return class_.get("volumeBindingMode") != volumes.WAIT_FOR_FIRST_CONSUMER


def _bound(claim: Tree, volume: Tree) -> Iterator[Tree]:
    """Both sides of a binding."""
    done = _annotated(claim, volumes.BIND_COMPLETED, "yes")
    name = volume["metadata"]["name"]
    yield given(volume, claim) | {"status": {"phase": "Bound"}}
    yield done | {"spec": claim["spec"] | {"volumeName": name}, "status": {"phase": "Bound"}}


def _provisioned(claim: Tree, node: str) -> Tree:
    """A new volume for a claim, on the node it was to be made for."""
    spec, metadata = claim["spec"], claim["metadata"]
    made: Tree = {
        "capacity": spec.get("resources", {}).get("requests", {}),
        "accessModes": spec.get("accessModes", []),
        "storageClassName": spec.get("storageClassName", ""),
    }
    if node:
        test = {"key": HOSTNAME, "operator": "In", "values": [node]}
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}}
    name = f"pvc-{metadata.get('uid') or metadata['name']}"
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": made}
    return given(volume, claim)


def _claims_made(pod: Tree, held: Mapping[Key, Tree]) -> Iterator[Tree]:
    """A claim for each ephemeral volume of a pod."""
    metadata = pod["metadata"]
    if pod.get("status", {}).get("phase") in OVER or metadata.get("deletionTimestamp"):
        return
    for volume in pod.get("spec", {}).get("volumes", ()):
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        key = (metadata.get("namespace", ""), f"{metadata['name']}-{volume.get('name', '')}")
        if not isinstance(template, dict) or key in held:
            continue
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        made = {"namespace": key[0], "name": key[1], "ownerReferences": [owner | {"controller": True}]}
        wanted = template.get("metadata") or {}
        made |= {name: wanted[name] for name in ("labels", "annotations") if wanted.get(name)}
        spec = template.get("spec") or {}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": spec}
        if _is_readable(claim):  # else no server would take it, and the pod waits for it
            yield claim | {"status": {"phase": "Pending"}}


def _is_readable(claim: Tree) -> bool:
    try:
        objects.decode(claim)
    except objects.DecodeError:
        return False
    return True


def _phased(volume: Tree, held: Mapping[Key, Tree]) -> Tree:
    """The volume with the phase it should have: free, or left by a claim that is gone."""
    ref = volume["spec"].get("claimRef")
    if ref is None:
        return volume if _phase(volume) else volume | {"status": {"phase": volumes.AVAILABLE}}
    claim = held.get((ref.get("namespace", ""), ref.get("name", "")))
    is_left = bool(ref.get("uid")) and (claim is None or claim["metadata"].get("uid") != ref["uid"])
    return volume | {"status": {"phase": "Released"}} if is_left else volume


def _smallest(claim: Tree, free: list[Tree]) -> Tree | None:
    spec = claim["spec"]
    fitting = [
        one
        for one in free
        if one["spec"].get("storageClassName", "") == (spec.get("storageClassName") or "")
        and _size(one["spec"].get("capacity")) >= _size(spec.get("resources", {}).get("requests"))
        and set(spec.get("accessModes", ())) <= set(one["spec"].get("accessModes", ()))
    ]
    return min(fitting, key=lambda one: (_size(one["spec"].get("capacity")), one["metadata"]["name"]), default=None)


def _names(volume: Tree, claim: Tree) -> bool:
    ref, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    is_named = (ref.get("namespace"), ref.get("name")) == (metadata.get("namespace"), metadata["name"])
    return is_named and ref.get("uid") in (None, "", metadata.get("uid"))


def _annotated(tree: Tree, name: str, value: str) -> Tree:
    metadata = tree["metadata"]
    return tree | {"metadata": metadata | {"annotations": (metadata.get("annotations") or {}) | {name: value}}}


def _whole(tree: Tree) -> Tree:
    """The object without nulls, which mean absent, and with a spec: whoever applied it may have left both in or out."""
    return {"spec": {}} | trees.without_nulls(objects.KINDS[tree["apiVersion"], tree["kind"]], tree)


def _phase(tree: Tree) -> str:
    return str(tree.get("status", {}).get("phase", ""))


def _key(tree: Tree) -> Key:
    return tree["metadata"].get("namespace", ""), tree["metadata"]["name"]


def _size(amounts: Mapping[str, Any] | None) -> int:
    return quantity.from_wire((amounts or {}).get(volumes.STORAGE, "0")).nanos
