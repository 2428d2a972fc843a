"""What an API server makes of a write: merges, keeps what a writer may not touch, fills in defaults, refuses.

Given trees, returns the tree to keep or raises a failure of `ports.failures`. The rules of resource.k8s.io are those
of `model.validation`; of pods and nodes only what schedulers meet. Never keeps anything.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.model import kinds, objects
from dovetail.model.kinds import Kind
from dovetail.model.validation import admission, fields
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.shelf import Record

Tree = dict[str, Any]

WITH_STATUS: Final = frozenset(
    {
        "Pod",
        "Node",
        "ResourceClaim",
        "DeviceTaintRule",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Queue",
    }
)
STATUS_STRANGERS: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")
KEPT_METADATA: Final = (*STATUS_STRANGERS, "deletionTimestamp", "deletionGracePeriodSeconds", "generateName")
CHANGEABLE_IN_POD: Final = frozenset(
    {"activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"}
)
CHANGEABLE_WHILE_GATED: Final = frozenset({"nodeSelector", "affinity"})
GATED: Final = "SchedulingGated"


def parsed(document: bytes) -> Tree:
    """A JSON object."""
    try:
        tree = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise failures.Refused(f"not JSON: {error}", status=400, reason="BadRequest") from None
    if not isinstance(tree, dict):
        raise failures.Refused("expected an object", status=400, reason="BadRequest")
    return tree


def merged(tree: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396): null deletes a key, lists are whole values."""
    if not isinstance(patch, dict):
        return patch
    result = dict(tree) if isinstance(tree, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def created(target: Target, tree: Tree, *, name: str, terms: fields.Terms) -> Tree:
    """The object as it is first kept. `name` is what was chosen where only a prefix was given."""
    kind = target.kind
    metadata = dict(tree.get("metadata") or {})
    _check_type(kind, tree)
    if metadata.get("namespace", target.namespace) != target.namespace:
        raise _bad(f"the namespace of the object ({metadata['namespace']}) does not match the one asked for")
    if metadata.pop("resourceVersion", ""):
        message = "resourceVersion should not be set on objects to be created"
        raise failures.Unavailable(message, status=500)  # upstream takes this for a fault of its own
    for kept in KEPT_METADATA[:-1]:
        metadata.pop(kept, None)
    metadata["name"] = name
    if target.namespace:
        metadata["namespace"] = target.namespace
    tree = tree | {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if kind.name == kinds.POD.name:
        tree = _pod_created(tree, terms.now)
    struct = _decoded(kind, tree)
    if not isinstance(struct, objects.Object):
        return tree
    return _judged(kind, tree, struct, admission.create(struct, terms))


def patched(target: Target, record: Record, patch: Tree, *, terms: fields.Terms) -> Tree:
    """The object after a merge patch of it or of its status."""
    kind, old = target.kind, record.tree
    asked = patch.get("metadata") if isinstance(patch.get("metadata"), dict) else {}
    assert isinstance(asked, dict)
    version = asked.get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise _conflict(target, "the object has been modified; apply your changes to the latest version")
    if asked.get("uid") and asked["uid"] != old["metadata"]["uid"]:
        raise _invalid(target, f"metadata.uid: {asked['uid']} is another object's; it cannot be changed")
    tree = merged(old, patch)
    _check_type(kind, tree)
    metadata = tree["metadata"] = dict(tree.get("metadata") or {})
    if (metadata.get("name"), metadata.get("namespace", "")) != (target.name, target.namespace):
        raise _bad("the name of the object does not match the name asked for")
    for kept in KEPT_METADATA:
        metadata.pop(kept, None)
    metadata |= {name: old["metadata"][name] for name in KEPT_METADATA if name in old["metadata"]}
    _check_finalizers(target, metadata, old["metadata"])
    if target.subresource == "status":
        return _status_written(target, record, tree, terms=terms)
    return _main_written(target, record, tree, terms=terms)


def bound(target: Target, record: Record, binding: Tree, *, now: str) -> Tree:
    """The pod on its node."""
    pod = record.struct
    wanted = binding.get("target") or {}
    uid = (binding.get("metadata") or {}).get("uid")
    if wanted.get("kind") not in (None, "", "Node") or not wanted.get("name"):
        raise _invalid(target, "target: expected kind Node and a name")
    if uid and uid != pod.metadata.uid:
        raise _conflict(target, f"the uid asked for is {uid}, the pod's is {pod.metadata.uid}")
    if pod.metadata.deletion_timestamp is not None:
        raise _conflict(target, "the pod is being deleted, cannot be assigned to a host")
    if pod.spec.node_name:
        raise _conflict(target, f"the pod is already assigned to node {pod.spec.node_name}")
    if pod.spec.scheduling_gates:
        raise _conflict(target, "the pod has scheduling gates, cannot be assigned to a host")
    tree = record.tree
    status = dict(tree.get("status") or {})
    status.pop("nominatedNodeName", None)
    others = [one for one in status.get("conditions", ()) if one.get("type") != "PodScheduled"]
    status["conditions"] = [*others, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
    return tree | {"spec": tree["spec"] | {"nodeName": wanted["name"]}, "status": status}


def _main_written(target: Target, record: Record, tree: Tree, *, terms: fields.Terms) -> Tree:
    kind, old = target.kind, record.tree
    if kind.name in WITH_STATUS:
        tree.pop("status", None)
        if "status" in old:
            tree["status"] = old["status"]
    if kind.name == kinds.POD.name:
        _check_pod_spec(target, tree["spec"], old["spec"])
    struct = _decoded(kind, tree)
    if not isinstance(struct, objects.Object):
        return tree
    return _judged(kind, tree, struct, admission.update(struct, record.struct, terms=terms))


def _status_written(target: Target, record: Record, tree: Tree, *, terms: fields.Terms) -> Tree:
    kind, old = target.kind, record.tree
    if kind.name not in WITH_STATUS:
        raise failures.Missing(f"{target}: no such subresource", status=404, reason="NotFound")
    tree["spec"] = old.get("spec", {})
    if kind.name == kinds.POD.name:  # upstream guards owners alone here
        tree["metadata"].pop("ownerReferences", None)
        tree["metadata"] |= {name: old["metadata"][name] for name in ("ownerReferences",) if name in old["metadata"]}
    struct = _decoded(kind, tree)
    if not isinstance(struct, objects.Object):
        return tree
    return _judged(kind, tree, struct, admission.update_status(struct, record.struct, terms=terms))


def _judged(kind: Kind, tree: Tree, struct: objects.Object, verdict: admission.Verdict) -> Tree:
    if verdict.problems:
        subject = objects.subject_of(struct)
        said = "; ".join(map(str, verdict.problems))
        raise failures.Refused(f"{subject} is invalid: {said}", status=422, reason="Invalid")
    if verdict.object == struct:
        return tree
    stored = objects.Stored(struct, objects.encode_tree(tree))
    return objects.replace(stored, verdict.object).tree


def _pod_created(tree: Tree, now: str) -> Tree:
    """What the server fills in, as far as schedulers and nodes read it."""
    spec = dict(tree.get("spec") or {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            spec[name] = [_container_created(one) for one in spec[name]]
    status: Tree = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": GATED, "lastTransitionTime": now}]
    return tree | {"spec": spec, "status": status}


def _container_created(container: Any) -> Any:
    """What is limited and not asked for is asked for up to its limit."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict) or not resources.get("limits"):
        return container
    requests = resources["limits"] | (resources.get("requests") or {})
    return container | {"resources": resources | {"requests": requests}}


def _check_pod_spec(target: Target, new: Tree, old: Tree) -> None:
    allowed = CHANGEABLE_IN_POD | (CHANGEABLE_WHILE_GATED if old.get("schedulingGates") else frozenset())
    for name in sorted(new.keys() | old.keys()):
        if name in allowed:
            continue
        if name in ("containers", "initContainers"):
            is_changed = [_imageless(one) for one in new.get(name, ())] != [
                _imageless(one) for one in old.get(name, ())
            ]
        else:
            is_changed = new.get(name) != old.get(name)
        if is_changed:
            raise _invalid(target, f"spec.{name}: pod updates may not change this field")
    added = {_name(gate) for gate in new.get("schedulingGates", ())} - {
        _name(g) for g in old.get("schedulingGates", ())
    }
    if added:
        raise _invalid(target, f"spec.schedulingGates: only deletion is allowed, but found new gates {sorted(added)}")


def _imageless(container: Tree) -> Tree:
    return {name: value for name, value in container.items() if name != "image"}


def _name(gate: Any) -> str:
    return str(gate.get("name")) if isinstance(gate, dict) else ""


def _check_finalizers(target: Target, new: Tree, old: Tree) -> None:
    if old.get("deletionTimestamp") and set(new.get("finalizers", ())) - set(old.get("finalizers", ())):
        raise _invalid(target, "metadata.finalizers: no new finalizers can be added if the object is being deleted")


def _check_type(kind: Kind, tree: Tree) -> None:
    given = (tree.get("apiVersion") or kind.api_version, tree.get("kind") or kind.name)
    if given != (kind.api_version, kind.name):
        raise _bad(f"expected {kind.api_version} {kind.name}, got {given[0]} {given[1]}")


def _decoded(kind: Kind, tree: Tree) -> Any:
    try:
        return objects.decode_struct(kind.struct, objects.encode_tree(tree))
    except errors.InputError as error:
        raise _bad(str(error)) from None


def _bad(message: str) -> failures.Refused:
    return failures.Refused(message, status=400, reason="BadRequest")


def _invalid(target: Target, message: str) -> failures.Refused:
    return failures.Refused(f"{target} is invalid: {message}", status=422, reason="Invalid")


def _conflict(target: Target, message: str) -> failures.Conflict:
    return failures.Conflict(f"{target}: {message}", status=409, reason="Conflict")
