"""An API server's rules for writes: merges patches, restores read-only fields, fills in defaults, validates.

Given trees, returns the tree to store or raises a failure of `ports.failures`. The rules of resource.k8s.io are those
of `admission`; for pods and nodes there are only the rules that schedulers depend on. Never stores anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.admission import admit
from dovetail.kubetypes import codec, field_errors, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.registry import Kind
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server import object_defaults, served_kinds
from dovetail.sim.server.object_store import Record

Tree = dict[str, Any]

STATUS_STRANGERS: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")
KEPT_METADATA: Final = (
    *STATUS_STRANGERS,
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
)
CHANGEABLE_IN_POD: Final = frozenset(
    {"activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"}
)
DECIDED_AT_CREATION: Final = (
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "schedulerName",
    "priority",
    "preemptionPolicy",
    "priorityClassName",
    "nodeName",
)
CHANGEABLE_WHILE_GATED: Final = frozenset({"nodeSelector", "affinity"})
GATED: Final = "SchedulingGated"
# The fields a write of a pod may change, in upstream's words.
POD_UPDATES: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
OUTDATED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
NO_VERSION_ON_CREATE: Final = "resourceVersion should not be set on objects to be created"


class Invalid(failures.Refused):
    """422, with every field that is wrong: upstream's type of the problem, the field, the message."""

    def __init__(self, kind: str, name: str, problems: Iterable[field_errors.FieldProblem]) -> None:
        self.kind = kind
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
        super().__init__(f'{kind} "{name}" is invalid: {text}', status=422, reason="Invalid")


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
    """Applies a JSON merge patch (RFC 7396): null deletes a key, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(tree) if isinstance(tree, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def created(
    target: Target, tree: Tree, *, name: str, terms: field_errors.Terms, has_status: bool = False
) -> Tree:
    """The object as it is first stored. `name` is the generated one if only a prefix was given.

    Where the status has a path of its own, a new object does not bring it; only nodes do.
    """
    kind = target.kind
    metadata = dict(tree.get("metadata") or {})
    check_type(kind, tree)
    if metadata.get("namespace", target.namespace) != target.namespace:
        raise _bad(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.pop("resourceVersion", ""):
        # Upstream answers with an internal error here.
        raise failures.Unavailable(NO_VERSION_ON_CREATE, status=500)

    for field in KEPT_METADATA[:-1]:
        metadata.pop(field, None)
    metadata["name"] = name
    if target.namespace:
        metadata["namespace"] = target.namespace
    tree = tree | {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if has_status and not is_kind(kind, registry.NODE):
        tree.pop("status", None)
    tree = object_defaults.filled(kind, tree)
    if is_kind(kind, registry.POD):
        tree = _with_pod_defaults(tree, terms.now)
    struct = _decoded(kind, tree)
    if not isinstance(struct, codec.Object):
        return tree
    return _validated(tree, struct, admit.create(struct, terms))


def patched(
    target: Target,
    record: Record,
    patch: Tree,
    *,
    terms: field_errors.Terms,
    has_status: bool,
) -> Tree:
    """The object after a merge patch of it or of its status."""
    tree = merged(record.tree, patch)
    return written(target, record, tree, terms=terms, has_status=has_status)


def written(
    target: Target,
    record: Record,
    new: Tree,
    *,
    terms: field_errors.Terms,
    has_status: bool,
) -> Tree:
    """The object after a write of all of it, or of its status, with the fields a writer may not change put back."""
    old = record.tree
    tree = dict(new)
    check_type(target.kind, tree)
    metadata = tree["metadata"] = dict(tree.get("metadata") or {})
    if metadata.get("name", target.name) != target.name:
        raise _bad(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        )
    if metadata.get("namespace", target.namespace) != target.namespace:
        raise _bad(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    _check_preconditions(target, metadata, old["metadata"])
    metadata |= {"name": target.name}
    if target.namespace:
        metadata["namespace"] = target.namespace
    _restore(metadata, old["metadata"], KEPT_METADATA)
    _check_finalizers(target, metadata, old["metadata"])

    tree |= {"apiVersion": target.kind.api_version, "kind": target.kind.name}
    if target.subresource == "status":
        if not has_status:
            raise not_served()
        return _status_written(target, record, tree, terms=terms)
    return _main_written(target, record, tree, terms=terms, has_status=has_status)


def _check_preconditions(target: Target, metadata: Tree, old_metadata: Tree) -> None:
    """Refuses a write made for another version of the object, or for another object of its name."""
    version = metadata.get("resourceVersion")
    if version and version != old_metadata["resourceVersion"]:
        raise _conflict(target, OUTDATED)
    uid = metadata.get("uid")
    if uid and uid != old_metadata["uid"]:
        raise _invalid(target, f'metadata.uid: Invalid value: "{uid}": field is immutable')


def _restore(metadata: Tree, old_metadata: Tree, fields: Iterable[str]) -> None:
    """Puts back fields that a writer may not change."""
    for field in fields:
        metadata.pop(field, None)
        if field in old_metadata:
            metadata[field] = old_metadata[field]


def bound(target: Target, record: Record, binding: Tree, *, now: str) -> Tree:
    """The pod with its node, as a Binding sets it."""
    binding_target = binding.get("target") or {}
    if binding_target.get("kind") not in (None, "", "Node") or not binding_target.get("name"):
        raise _invalid(target, "target: expected kind Node and a name")
    _check_bindable(target, record.struct, (binding.get("metadata") or {}).get("uid"))

    tree = record.tree
    status = dict(tree.get("status") or {})
    status.pop("nominatedNodeName", None)
    conditions = status.get("conditions", ())
    other_conditions = [entry for entry in conditions if entry.get("type") != "PodScheduled"]
    status["conditions"] = [
        *other_conditions,
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
    ]
    return tree | {"spec": tree["spec"] | {"nodeName": binding_target["name"]}, "status": status}


def _check_bindable(target: Target, pod: pods.Pod, uid: str | None) -> None:
    name = pod.metadata.name
    if uid and uid != pod.metadata.uid:
        raise _conflict(
            target,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.metadata.uid}",
        )
    if pod.metadata.deletion_timestamp is not None:
        raise _conflict(target, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod.spec.node_name:
        raise _conflict(target, f'pod {name} is already assigned to node "{pod.spec.node_name}"')
    if pod.spec.scheduling_gates:
        raise _conflict(target, f"pod {name} has non-empty .spec.schedulingGates")


def _main_written(
    target: Target, record: Record, tree: Tree, *, terms: field_errors.Terms, has_status: bool
) -> Tree:
    kind, old = target.kind, record.tree
    if has_status:
        tree.pop("status", None)
        if "status" in old:
            tree["status"] = old["status"]
    tree = object_defaults.filled(kind, tree, old)
    if is_kind(kind, registry.POD):
        tree["spec"] = dict(tree.get("spec") or {})
        _fill_pod_spec(tree["spec"], old["spec"])
        _check_pod_spec(target, tree["spec"], old["spec"])
    struct = _decoded(kind, tree)
    if not isinstance(struct, codec.Object):
        return tree
    return _validated(tree, struct, admit.update(struct, record.struct, terms=terms))


def _status_written(
    target: Target, record: Record, tree: Tree, *, terms: field_errors.Terms
) -> Tree:
    kind, old = target.kind, record.tree
    for field in old.keys() | tree.keys():
        if field in ("metadata", "status"):
            continue
        tree.pop(field, None)
        if field in old:
            tree[field] = old[field]
    if kind.struct is not codec.Generic:
        tree.setdefault("spec", {})
    else:
        # Of kinds without rules here, a write of the status changes no metadata but managedFields.
        tree["metadata"] = old["metadata"] | {
            name: tree["metadata"][name] for name in ("managedFields",) if name in tree["metadata"]
        }
    if is_kind(kind, registry.POD):
        # For pods, upstream protects only the owners here.
        _restore(tree["metadata"], old["metadata"], ("ownerReferences",))
    struct = _decoded(kind, tree)
    if not isinstance(struct, codec.Object):
        return tree
    return _validated(tree, struct, admit.update_status(struct, record.struct, terms=terms))


def _validated(tree: Tree, struct: codec.Object, verdict: admit.Verdict) -> Tree:
    """The tree with the defaults of admission. Raises Refused for its problems."""
    if verdict.problems:
        group = struct.api_version.rpartition("/")[0]
        subject = f"{struct.kind}.{group}" if group else struct.kind
        name = struct.metadata.name or struct.metadata.generate_name
        raise Invalid(subject, name, verdict.problems)
    if verdict.object == struct:
        return tree
    stored = codec.Stored(struct, codec.encode_tree(tree))
    return codec.replace(stored, verdict.object).tree


def _with_pod_defaults(tree: Tree, now: str) -> Tree:
    """The pod with the server's defaults that schedulers and kubelets read."""
    spec = dict(tree.get("spec") or {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            spec[name] = [with_requests(container) for container in spec[name]]
    status: Tree = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": GATED, "lastTransitionTime": now}
        ]
    return tree | {"spec": spec, "status": status}


def _fill_pod_spec(new: Tree, old: Tree) -> None:
    """Fills in what was decided when the pod was created, for writers that send their manifest again."""
    for field in DECIDED_AT_CREATION:
        if field in old:
            new.setdefault(field, old[field])
    for name in ("containers", "initContainers"):
        if isinstance(new.get(name), list):
            new[name] = [with_requests(container) for container in new[name]]


def with_all_requests(pod: Tree) -> Tree:
    """The pod whose containers request their limits, where they request nothing else."""
    spec = dict(pod.get("spec") or {})
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            spec[name] = [with_requests(container) for container in spec[name]]
    return pod | {"spec": spec}


def with_requests(container: Any) -> Any:
    """The container with its limits as requests, for resources it does not request."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict) or not resources.get("limits"):
        return container
    requests = resources["limits"] | (resources.get("requests") or {})
    return container | {"resources": resources | {"requests": requests}}


def _check_pod_spec(target: Target, new: Tree, old: Tree) -> None:
    changeable = CHANGEABLE_IN_POD
    if old.get("schedulingGates"):
        changeable |= CHANGEABLE_WHILE_GATED
    for name in sorted((new.keys() | old.keys()) - changeable):
        if _immutable_part(new, name) != _immutable_part(old, name):
            raise _invalid(target, f"spec: Forbidden: {POD_UPDATES}\nspec.{name} differs")

    added = _gate_names(new) - _gate_names(old)
    if added:
        raise _invalid(
            target,
            f"spec.schedulingGates: only deletion is allowed, but found new gates {sorted(added)}",
        )


def _immutable_part(spec: Tree, field: str) -> Any:
    """The field's value; containers without their image, which may be changed."""
    if field not in ("containers", "initContainers"):
        return spec.get(field)
    containers = [dict(container) for container in spec.get(field, ())]
    for container in containers:
        container.pop("image", None)
    return containers


def _gate_names(spec: Tree) -> set[str]:
    gates = spec.get("schedulingGates", ())
    return {str(gate.get("name")) if isinstance(gate, dict) else "" for gate in gates}


def _check_finalizers(target: Target, new: Tree, old: Tree) -> None:
    if not old.get("deletionTimestamp"):
        return
    if set(new.get("finalizers", ())) - set(old.get("finalizers", ())):
        raise _invalid(
            target,
            "metadata.finalizers: no new finalizers can be added if the object is being deleted",
        )


def check_type(kind: Kind, tree: Tree) -> None:
    """Refuses a document of another kind or version than its path says."""
    stated = (tree.get("apiVersion") or kind.api_version, tree.get("kind") or kind.name)
    if stated != (kind.api_version, kind.name):
        group_version, name = stated
        raise _bad(
            f'{name} in version "{group_version}" cannot be handled as a {kind.name}: '
            f"converting ({group_version}, Kind={name}) to ({kind.api_version}, Kind={kind.name}): "
            "unknown conversion"
        )


def _decoded(kind: Kind, tree: Tree) -> Any:
    try:
        return codec.decode_struct(kind.struct, codec.encode_tree(tree))
    except errors.InputError as error:
        raise _bad(
            f'{kind.name} in version "{kind.api_version.rpartition("/")[2]}" cannot be handled as a '
            f"{kind.name}: {error}"
        ) from None


def is_kind(kind: Kind, other: Kind) -> bool:
    """Whether both are stored in the same place, whatever their versions."""
    return served_kinds.table_key(kind) == served_kinds.table_key(other)


def qualified(kind: Kind) -> str:
    """The plural with its group, as messages name a resource: pods, deployments.apps."""
    group, plural = served_kinds.table_key(kind)
    return f"{plural}.{group}" if group else plural


def not_found(kind: Kind, name: str) -> failures.Missing:
    """The failure of a request for an object that is not there."""
    return failures.Missing(f'{qualified(kind)} "{name}" not found', status=404, reason="NotFound")


def forbidden(kind: Kind, name: str, reason: str) -> failures.Refused:
    """The failure of a request that admission does not let through."""
    message = f'{qualified(kind)} "{name}" is forbidden: {reason}'
    return failures.Refused(message, status=403, reason="Forbidden")


def not_served() -> failures.Missing:
    """The failure of a request for a path that is not there."""
    message = "the server could not find the requested resource"
    return failures.Missing(message, status=404, reason="NotFound")


def _bad(message: str) -> failures.Refused:
    return failures.Refused(message, status=400, reason="BadRequest")


def _invalid(target: Target, message: str) -> Invalid:
    group = served_kinds.table_key(target.kind)[0]
    subject = f"{target.kind.name}.{group}" if group else target.kind.name
    field, _, detail = message.partition(": ")
    type_ = field_errors.FORBIDDEN if detail.startswith("Forbidden") else field_errors.INVALID
    problem = field_errors.FieldProblem(type_, field, detail)
    return Invalid(subject, target.name, [problem])


def _conflict(target: Target, message: str) -> failures.Conflict:
    below = "/binding" if target.subresource == "binding" else ""
    return failures.Conflict(
        f'Operation cannot be fulfilled on {qualified(target.kind)}{below} "{target.name}": {message}',
        status=409,
        reason="Conflict",
    )
