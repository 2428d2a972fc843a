"""The columns that `kubectl get` shows for built-in kinds, with the cells of one object.

Names, order and priorities are those of the API server's printers; kinds without a row show name and age. Given a
plain tree and the time, returns cells. Never reads a store.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dovetail.sim.rest.printing import pod_status
from dovetail.sim.rest.printing.printed_values import (
    NONE,
    UNKNOWN,
    access_modes,
    age,
    between,
    containers,
    label_selector,
    labels,
)
from dovetail.sim.server.served_kinds import TableKey

Tree = dict[str, Any]
Cells = list[Any]
CellsOf = Callable[[Tree, datetime.datetime], Cells]
WIDE: Final = 1  # the priority of columns that only -o wide shows


class Definition(NamedTuple):
    """One column."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


class Printer(NamedTuple):
    """The columns of a kind and how their cells come about."""

    columns: tuple[Definition, ...]
    cells: CellsOf


NAME: Final = Definition(
    "Name", format="name", description="Name must be unique within a namespace."
)
AGE: Final = Definition("Age", description="How long ago the object was created.")


def _columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[Definition, ...]:
    """Definitions by name; `Name:integer` states another type than text."""
    made = [NAME]
    for priority, group in ((0, names), (WIDE, wide)):
        for name in group:
            title, _, type_ = name.partition(":")
            made.append(Definition(title, type_ or "string", priority))
    return tuple(made)


def _age(tree: Tree, now: datetime.datetime) -> str:
    return age(tree["metadata"].get("creationTimestamp"), now)


def _spec(tree: Tree) -> Tree:
    spec: Tree = tree.get("spec") or {}
    return spec


def _status(tree: Tree) -> Tree:
    status: Tree = tree.get("status") or {}
    return status


def _name(tree: Tree) -> str:
    return str(tree["metadata"]["name"])


def _template_cells(spec: Tree) -> Cells:
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return [*containers(pod_spec), label_selector(spec.get("selector"))]


def _pod(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    shown = pod_status.shown(tree, now)
    gates = spec.get("readinessGates") or ()
    met = {
        condition.get("type")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    passed = sum(gate.get("conditionType") in met for gate in gates)
    return [
        _name(tree),
        *shown,
        _age(tree, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _node(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    ready = [
        condition.get("status")
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    words = ["Ready" if ready[-1] == "True" else "NotReady"] if ready else ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    info: Tree = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel = f"{kernel} ({info['architecture']})"
    return [
        _name(tree),
        ",".join(words),
        _roles(tree),
        _age(tree, now),
        info.get("kubeletVersion") or "",
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(tree: Tree) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = {
        label.removeprefix(prefix)
        for label in tree["metadata"].get("labels") or {}
        if label.startswith(prefix)
    }
    return ",".join(sorted(filter(None, roles))) or NONE


def _address(status: Tree, kind: str) -> str:
    for address in status.get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address"))
    return NONE


def _deployment(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return [_name(tree), ready, updated, available, _age(tree, now), *_template_cells(spec)]


def _replica_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(tree), *counts, _age(tree, now), *_template_cells(spec)]


def _replication_controller(tree: Tree, now: datetime.datetime) -> Cells:
    cells = _replica_set(tree, now)
    return [*cells[:-1], labels(_spec(tree).get("selector"))]


def _stateful_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(tree), ready, _age(tree, now), *_template_cells(spec)[:2]]


def _daemon_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    counts = [status.get(field, 0) for field in fields]
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    chosen = labels(pod_spec.get("nodeSelector"))
    return [_name(tree), *counts, chosen, _age(tree, now), *_template_cells(spec)]


def _job(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    succeeded = status.get("succeeded", 0)
    parallelism = spec.get("parallelism") or 0
    completions = f"{succeeded}/{spec.get('completions') or 1}"
    if spec.get("completions") is None and parallelism > 1:
        completions = f"{succeeded}/1 of {parallelism}"
    start, end = status.get("startTime"), status.get("completionTime")
    lasted = "" if not start else between(start, end) if end else age(start, now)
    return [
        _name(tree),
        _job_status(tree, status),
        completions,
        lasted,
        _age(tree, now),
        *_template_cells(spec),
    ]


def _job_status(tree: Tree, status: Tree) -> str:
    met = {
        condition.get("type")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    for word in ("Complete", "Failed"):
        if word in met:
            return word
    if tree["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for word in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if word in met:
            return word
    return "Running"


def _cron_job(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    last = status.get("lastScheduleTime")
    job_spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        _name(tree),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        _age(tree, now),
        *_template_cells(job_spec),
    ]


def _service(tree: Tree, now: datetime.datetime) -> Cells:
    spec = _spec(tree)
    external = ",".join(spec.get("externalIPs") or ()) or spec.get("externalName") or NONE
    if spec.get("type") == "LoadBalancer" and external == NONE:
        external = "<pending>"
    ports = [_service_port(port) for port in spec.get("ports") or ()]
    return [
        _name(tree),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        external,
        ",".join(ports) or NONE,
        _age(tree, now),
        labels(spec.get("selector")),
    ]


def _service_port(port: Tree) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _event(tree: Tree, now: datetime.datetime) -> Cells:
    regarding: Tree = tree.get("regarding") or tree.get("involvedObject") or {}
    series: Tree = tree.get("series") or {}
    first_seen = tree.get("deprecatedFirstTimestamp") or tree.get("firstTimestamp")
    first_seen = first_seen or tree.get("eventTime")
    last_seen = tree.get("deprecatedLastTimestamp") or tree.get("lastTimestamp") or first_seen
    last_seen = series.get("lastObservedTime") or last_seen
    count = series.get("count") or tree.get("deprecatedCount") or tree.get("count") or 1
    subject = str(regarding.get("kind", "")).lower()
    if regarding.get("name"):
        subject = f"{subject}/{regarding['name']}"
    controller = tree.get("reportingController") or tree.get("reportingComponent") or ""
    source = (tree.get("deprecatedSource") or tree.get("source") or {}).get("component")
    instance = tree.get("reportingInstance") or ""
    reporter = source or ", ".join(filter(None, (controller, instance)))
    return [
        age(last_seen, now),
        tree.get("type", ""),
        tree.get("reason", ""),
        subject,
        regarding.get("fieldPath", ""),
        reporter,
        str(tree.get("note") or tree.get("message") or "").strip(),
        age(first_seen, now),
        count,
        _name(tree),
    ]


def _namespace(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), _status(tree).get("phase", ""), _age(tree, now)]


def _config_map(tree: Tree, now: datetime.datetime) -> Cells:
    entries = len(tree.get("data") or {}) + len(tree.get("binaryData") or {})
    return [_name(tree), entries, _age(tree, now)]


def _secret(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), tree.get("type", ""), len(tree.get("data") or {}), _age(tree, now)]


def _volume_claim(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    phase = "Terminating" if tree["metadata"].get("deletionTimestamp") else status.get("phase", "")
    is_bound = bool(spec.get("volumeName"))
    capacity = (status.get("capacity") or {}).get("storage", "") if is_bound else ""
    modes = access_modes(status.get("accessModes")) if is_bound else ""
    return [
        _name(tree),
        phase,
        spec.get("volumeName", ""),
        capacity,
        modes,
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        _age(tree, now),
        spec.get("volumeMode") or "Filesystem",
    ]


def _volume(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    reference: Tree = spec.get("claimRef") or {}
    claim = f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""
    phase = "Terminating" if tree["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        _name(tree),
        (spec.get("capacity") or {}).get("storage", ""),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        phase,
        claim,
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason") or "",
        _age(tree, now),
        spec.get("volumeMode") or "Filesystem",
    ]


def _claim(tree: Tree, now: datetime.datetime) -> Cells:
    status = _status(tree)
    is_deleted = bool(tree["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if status.get("allocation"):
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not is_deleted:
        states.append("pending")
    return [_name(tree), ",".join(states), _age(tree, now)]


def _slice(tree: Tree, now: datetime.datetime) -> Cells:
    spec = _spec(tree)
    pool = (spec.get("pool") or {}).get("name", "")
    return [_name(tree), spec.get("nodeName", ""), spec.get("driver", ""), pool, _age(tree, now)]


def _lease(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), _spec(tree).get("holderIdentity") or "", _age(tree, now)]


def _budget(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        _name(tree),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        status.get("disruptionsAllowed", 0),
        _age(tree, now),
    ]


def _priority_class(tree: Tree, now: datetime.datetime) -> Cells:
    policy = tree.get("preemptionPolicy") or "PreemptLowerPriority"
    is_default = bool(tree.get("globalDefault"))
    return [_name(tree), tree.get("value", 0), is_default, _age(tree, now), policy]


def _storage_class(tree: Tree, now: datetime.datetime) -> Cells:
    annotations = tree["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{_name(tree)} (default)" if is_default else _name(tree),
        tree.get("provisioner", ""),
        tree.get("reclaimPolicy") or "Delete",
        tree.get("volumeBindingMode") or "Immediate",
        "true" if tree.get("allowVolumeExpansion") else "false",
        _age(tree, now),
    ]


def _autoscaler(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = _spec(tree), _status(tree)
    target: Tree = spec.get("scaleTargetRef") or {}
    return [
        _name(tree),
        f"{target.get('kind')}/{target.get('name')}",
        UNKNOWN if spec.get("metrics") else NONE,
        str(spec.get("minReplicas", 1)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(tree, now),
    ]


def _definition(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), tree["metadata"].get("creationTimestamp", "")]


def _role_binding(tree: Tree, now: datetime.datetime) -> Cells:
    role: Tree = tree.get("roleRef") or {}
    subjects: list[Tree] = tree.get("subjects") or []
    names = [
        ", ".join(_subject(subject) for subject in subjects if subject.get("kind") == kind)
        for kind in ("User", "Group", "ServiceAccount")
    ]
    return [_name(tree), f"{role.get('kind')}/{role.get('name')}", _age(tree, now), *names]


def _subject(subject: Tree) -> str:
    namespace = subject.get("namespace")
    return f"{namespace}/{subject.get('name')}" if namespace else str(subject.get("name"))


def _role(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), tree["metadata"].get("creationTimestamp", "")]


def _plain(tree: Tree, now: datetime.datetime) -> Cells:
    return [_name(tree), _age(tree, now)]


_TEMPLATE: Final = ("Containers", "Images", "Selector")
_BINDING: Final = _columns("Role", "Age", wide=("Users", "Groups", "ServiceAccounts"))
_EVENT: Final = (
    Definition("Last Seen"),
    Definition("Type"),
    Definition("Reason"),
    Definition("Object"),
    Definition("Subobject", priority=WIDE),
    Definition("Source", priority=WIDE),
    Definition("Message"),
    Definition("First Seen", priority=WIDE),
    Definition("Count", priority=WIDE),
    Definition("Name", priority=WIDE, format="name"),
)
_COUNTS: Final = ("Desired:integer", "Current:integer", "Ready:integer")

PLAIN: Final = Printer((NAME, AGE), _plain)
PRINTERS: Final[dict[TableKey, Printer]] = {
    ("", "pods"): Printer(
        _columns(
            "Ready",
            "Status",
            "Restarts",
            "Age",
            wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
        _pod,
    ),
    ("", "nodes"): Printer(
        _columns(
            "Status",
            "Roles",
            "Age",
            "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    ("apps", "deployments"): Printer(
        _columns("Ready", "Up-to-date", "Available", "Age", wide=_TEMPLATE), _deployment
    ),
    ("apps", "replicasets"): Printer(_columns(*_COUNTS, "Age", wide=_TEMPLATE), _replica_set),
    ("", "replicationcontrollers"): Printer(
        _columns(*_COUNTS, "Age", wide=_TEMPLATE), _replication_controller
    ),
    ("apps", "statefulsets"): Printer(
        _columns("Ready", "Age", wide=("Containers", "Images")), _stateful_set
    ),
    ("apps", "daemonsets"): Printer(
        _columns(
            *_COUNTS,
            "Up-to-date:integer",
            "Available:integer",
            "Node Selector",
            "Age",
            wide=_TEMPLATE,
        ),
        _daemon_set,
    ),
    ("batch", "jobs"): Printer(
        _columns("Status", "Completions", "Duration", "Age", wide=_TEMPLATE), _job
    ),
    ("batch", "cronjobs"): Printer(
        _columns(
            "Schedule",
            "Timezone",
            "Suspend",
            "Active:integer",
            "Last Schedule",
            "Age",
            wide=_TEMPLATE,
        ),
        _cron_job,
    ),
    ("", "services"): Printer(
        _columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)),
        _service,
    ),
    ("events.k8s.io", "events"): Printer(_EVENT, _event),
    ("", "namespaces"): Printer(_columns("Status", "Age"), _namespace),
    ("", "configmaps"): Printer(_columns("Data", "Age"), _config_map),
    ("", "secrets"): Printer(_columns("Type", "Data", "Age"), _secret),
    ("", "persistentvolumeclaims"): Printer(
        _columns(
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            wide=("VolumeMode",),
        ),
        _volume_claim,
    ),
    ("", "persistentvolumes"): Printer(
        _columns(
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            wide=("VolumeMode",),
        ),
        _volume,
    ),
    ("resource.k8s.io", "resourceclaims"): Printer(_columns("State", "Age"), _claim),
    ("resource.k8s.io", "resourceslices"): Printer(
        _columns("Node", "Driver", "Pool", "Age"), _slice
    ),
    ("coordination.k8s.io", "leases"): Printer(_columns("Holder", "Age"), _lease),
    ("policy", "poddisruptionbudgets"): Printer(
        _columns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _budget
    ),
    ("scheduling.k8s.io", "priorityclasses"): Printer(
        _columns("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
        _priority_class,
    ),
    ("storage.k8s.io", "storageclasses"): Printer(
        _columns(
            "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"
        ),
        _storage_class,
    ),
    ("autoscaling", "horizontalpodautoscalers"): Printer(
        _columns("Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), _autoscaler
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Printer(
        _columns("Created At"), _definition
    ),
    ("rbac.authorization.k8s.io", "rolebindings"): Printer(_BINDING, _role_binding),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): Printer(_BINDING, _role_binding),
    ("rbac.authorization.k8s.io", "roles"): Printer(_columns("Created At"), _role),
    ("rbac.authorization.k8s.io", "clusterroles"): Printer(_columns("Created At"), _role),
}
