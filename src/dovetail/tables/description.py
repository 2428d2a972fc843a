"""One object in words, for `dovetail describe`: identity, spec in short, devices, conditions, events.

Given trees as the server wrote them, so that every kind can be described; kinds we know get sections of their own.
Returns lines. Never reads, never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests
from dovetail.tables import claim_tables, text
from dovetail.tables.gpus import gpu_tiles

Tree = dict[str, Any]

INDENT: Final = "  "
LABEL_WIDTH: Final = 14
MOST_SPEC_LINES: Final = 60
MOST_EVENTS: Final = 20
# Written by machines for machines.
HIDDEN_ANNOTATIONS: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
EVENT_HEADERS: Final = ("last seen", "type", "reason", "from", "message")
CONDITION_HEADERS: Final = ("type", "status", "reason", "since", "message")


class Related(NamedTuple):
    """Other objects that say more about the one described."""

    events: Sequence[Tree] = ()
    claims: Sequence[Tree] = ()
    pods: Sequence[Tree] = ()
    slices: Sequence[Tree] = ()


def lines_of(tree: Tree, related: Related, *, now: datetime.datetime) -> list[str]:
    """Everything about an object."""
    struct = _struct(tree)
    lines = list(_identity(tree, now))
    if isinstance(struct, pods.Pod):
        lines += _pod_lines(struct, related)
    elif isinstance(struct, claims.ResourceClaim):
        lines += _claim_lines(struct)
    elif tree["kind"] == "Node":
        lines += _node_lines(tree, related)
    else:
        lines += _body_lines("Spec", tree.get("spec"))
        lines += _body_lines("Status", _without_conditions(tree.get("status")))
    lines += _conditions(tree, now)
    lines += _events(related.events, now)
    return lines


def _struct(tree: Tree) -> codec.Object | None:
    try:
        return codec.decode(tree).struct
    except errors.InputError:
        return None


def _identity(tree: Tree, now: datetime.datetime) -> Iterator[str]:
    metadata: Tree = tree["metadata"]
    yield _line("Name", metadata["name"])
    if metadata.get("namespace"):
        yield _line("Namespace", metadata["namespace"])
    yield _line("Kind", f"{tree['kind']} ({tree['apiVersion']})")
    yield from _mapping("Labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    shown = {name: value for name, value in annotations.items() if name not in HIDDEN_ANNOTATIONS}
    yield from _mapping("Annotations", shown)
    created = metadata.get("creationTimestamp")
    age = f"{created} ({text.age(created, now)} ago)" if created else "-"  # manifests have none
    yield _line("Created", age)
    if deleted := metadata.get("deletionTimestamp"):
        yield _line("Deleting", f"since {deleted}")
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            yield _line("Controlled by", f"{owner['kind']}/{owner['name']}")


def _pod_lines(pod: pods.Pod, related: Related) -> Iterator[str]:
    yield _line("Status", pod.status.phase or "Pending")
    yield _line("Node", pod.spec.node_name or "-")
    yield _line("Priority", str(pod.spec.priority or 0))
    yield _line("Scheduler", pod.spec.scheduler_name or "default-scheduler")
    if not pod.spec.node_name:
        messages = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
        if messages and messages[0]:
            yield _line("Why not", messages[0])
    request = pod_requests.pod_request(pod)
    yield _line("Requests", _request_text(request))
    for container in pod.spec.containers:
        yield _line("Container", f"{container.name}")
    yield from _pod_claims(pod, related.claims)


def _request_text(request: pod_requests.Resources) -> str:
    cpu = f"{request.milli_cpu / 1000:g}"
    parts = [f"cpu {cpu}", f"memory {text.binary(request.memory_bytes)}"]
    parts += [f"{name} {amount}" for name, amount in request.scalars]
    return ", ".join(parts)


def _pod_claims(pod: pods.Pod, trees: Sequence[Tree]) -> Iterator[str]:
    """The claims of a pod and the devices each holds."""
    names = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    by_name = {tree["metadata"]["name"]: tree for tree in trees}
    served = pod.status.extended_resource_claim_status
    entries = [
        (entry.name, entry.resource_claim_name or names.get(entry.name) or "")
        for entry in pod.spec.resource_claims
    ]
    if served is not None:
        entries.append(("extended resources", served.resource_claim_name))
    if not entries:
        return
    yield "Claims:"
    for label, name in entries:
        tree = by_name.get(name)
        yield f"{INDENT}{label}: {name or 'not made yet'}"
        struct = None if tree is None else _struct(tree)
        if isinstance(struct, claims.ResourceClaim):
            yield f"{INDENT * 2}requests: {claim_tables.requests_summary(struct.spec.devices)}"
            yield f"{INDENT * 2}devices: {', '.join(_devices(struct)) or 'none yet'}"


def _devices(claim: claims.ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [f"{each.pool}/{each.device}" for each in allocation.devices.results]


def _claim_lines(claim: claims.ResourceClaim) -> Iterator[str]:
    yield _line("Requests", claim_tables.requests_summary(claim.spec.devices))
    yield _line("State", "allocated" if claim.status.allocation else "pending")
    yield _line("Devices", ", ".join(_devices(claim)) or "none yet")
    users = [f"{user.resource}/{user.name}" for user in claim.status.reserved_for]
    yield _line("Reserved for", ", ".join(users) or "-")


def _node_lines(tree: Tree, related: Related) -> Iterator[str]:
    spec: Tree = tree.get("spec") or {}
    status: Tree = tree.get("status") or {}
    taints = [
        f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
        for taint in spec.get("taints") or ()
    ]
    yield _line("Taints", ", ".join(taints) or "none")
    yield _line("Schedulable", "no" if spec.get("unschedulable") else "yes")
    allocatable: Tree = status.get("allocatable") or {}
    yield _line("Allocatable", ", ".join(f"{name} {value}" for name, value in allocatable.items()))

    everything = [tree, *related.claims, *related.pods, *related.slices]
    objects = object_set.of("", filter(None, map(_stored, everything)))
    for node in gpu_tiles.nodes_with_gpus(objects):
        yield _line("GPUs", f"{len(node.gpus)} x {node.products}, {node.offers}: {node.tiles}")
    yield from _pods_of_node(related.pods)


def _stored(tree: Tree) -> codec.Stored | None:
    try:
        return codec.decode(tree)
    except errors.InputError:
        return None


def _pods_of_node(trees: Sequence[Tree]) -> Iterator[str]:
    if not trees:
        yield _line("Pods", "none")
        return
    yield f"Pods: {len(trees)}"
    rows = []
    for tree in trees:
        struct = _struct(tree)
        if isinstance(struct, pods.Pod):
            metadata = struct.metadata
            request = _request_text(pod_requests.pod_request(struct))
            rows.append((metadata.namespace, metadata.name, struct.status.phase, request))
    table = text.table(("namespace", "name", "status", "requests"), rows)
    yield from (INDENT + line for line in table)


def _without_conditions(status: Any) -> Any:
    if not isinstance(status, Mapping):
        return status
    return {name: value for name, value in status.items() if name != "conditions"}


def _body_lines(title: str, body: Any) -> Iterator[str]:
    """A part of an object as indented lines, cut to a screenful."""
    if not body:
        return
    yield f"{title}:"
    lines = list(_tree_lines(body, INDENT))
    yield from lines[:MOST_SPEC_LINES]
    if len(lines) > MOST_SPEC_LINES:
        yield f"{INDENT}... {len(lines) - MOST_SPEC_LINES} more lines; get -o yaml shows all"


def _tree_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, Mapping | list) and inner:
                yield f"{indent}{name}:"
                yield from _tree_lines(inner, indent + INDENT)
            else:
                yield f"{indent}{name}: {_scalar(inner)}"
        return
    if isinstance(value, list):
        for inner in value:
            if isinstance(inner, Mapping | list) and inner:
                first, *others = _tree_lines(inner, indent + INDENT)
                yield f"{indent}- {first.strip()}"
                yield from others
            else:
                yield f"{indent}- {_scalar(inner)}"
        return
    yield f"{indent}{_scalar(value)}"


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _conditions(tree: Tree, now: datetime.datetime) -> Iterator[str]:
    status = tree.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not conditions:
        return
    rows = [
        (
            str(each.get("type") or ""),
            str(each.get("status") or ""),
            str(each.get("reason") or ""),
            text.age(each.get("lastTransitionTime"), now),
            str(each.get("message") or ""),
        )
        for each in conditions
    ]
    yield "Conditions:"
    yield from (INDENT + line for line in text.table(CONDITION_HEADERS, rows))


def _events(events: Sequence[Tree], now: datetime.datetime) -> Iterator[str]:
    if not events:
        yield _line("Events", "none")
        return
    ordered = sorted(events, key=_event_time)[-MOST_EVENTS:]
    rows = [
        (
            text.age(_event_time(event), now),
            str(event.get("type") or ""),
            str(event.get("reason") or ""),
            str(
                event.get("reportingComponent")
                or (event.get("source") or {}).get("component")
                or ""
            ),
            str(event.get("message") or ""),
        )
        for event in ordered
    ]
    yield "Events:"
    yield from (INDENT + line for line in text.table(EVENT_HEADERS, rows))


def _event_time(event: Tree) -> str:
    """When an event was last seen; writers fill in different fields."""
    series: Tree = event.get("series") or {}
    created = (event.get("metadata") or {}).get("creationTimestamp")
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event.get("firstTimestamp") or created or "")


def _line(label: str, value: str) -> str:
    return f"{label + ':':<{LABEL_WIDTH}} {value}"


def _mapping(label: str, entries: Mapping[str, str]) -> Iterator[str]:
    """One entry per line, the first beside the label."""
    if not entries:
        yield _line(label, "none")
        return
    first, *others = (f"{name}={value}" for name, value in sorted(entries.items()))
    yield _line(label, first)
    for entry in others:
        yield f"{'':<{LABEL_WIDTH}} {entry}"
