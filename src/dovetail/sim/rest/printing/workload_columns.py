"""The columns of nodes, pods and what creates or protects pods, with the cells of one object.

Names, order and priorities are those of the API server's printers. Given a tree and the time. Never reads a store.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.sim.rest.printing import pod_status
from dovetail.sim.rest.printing.column_definitions import (
    Cells,
    Printer,
    Tree,
    age_of,
    columns,
    name_of,
    spec_of,
    status_of,
)
from dovetail.sim.rest.printing.printed_values import (
    NONE,
    UNKNOWN,
    age,
    between,
    containers,
    label_selector,
    labels,
)
from dovetail.sim.server.served_kinds import TableKey


def _template_cells(spec: Tree) -> Cells:
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return [*containers(pod_spec), label_selector(spec.get("selector"))]


def _pod(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    shown = pod_status.shown(tree, now)
    gates = spec.get("readinessGates") or ()
    met = {
        condition.get("type")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    passed = sum(gate.get("conditionType") in met for gate in gates)
    return [
        name_of(tree),
        *shown,
        age_of(tree, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _node(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
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
        name_of(tree),
        ",".join(words),
        _roles(tree),
        age_of(tree, now),
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
    spec, status = spec_of(tree), status_of(tree)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return [name_of(tree), ready, updated, available, age_of(tree, now), *_template_cells(spec)]


def _replica_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(tree), *counts, age_of(tree, now), *_template_cells(spec)]


def _replication_controller(tree: Tree, now: datetime.datetime) -> Cells:
    cells = _replica_set(tree, now)
    return [*cells[:-1], labels(spec_of(tree).get("selector"))]


def _stateful_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(tree), ready, age_of(tree, now), *_template_cells(spec)[:2]]


def _daemon_set(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
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
    return [name_of(tree), *counts, chosen, age_of(tree, now), *_template_cells(spec)]


def _job(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    succeeded = status.get("succeeded", 0)
    parallelism = spec.get("parallelism") or 0
    completions = f"{succeeded}/{spec.get('completions') or 1}"
    if spec.get("completions") is None and parallelism > 1:
        completions = f"{succeeded}/1 of {parallelism}"
    start, end = status.get("startTime"), status.get("completionTime")
    lasted = "" if not start else between(start, end) if end else age(start, now)
    return [
        name_of(tree),
        _job_status(tree, status),
        completions,
        lasted,
        age_of(tree, now),
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
    spec, status = spec_of(tree), status_of(tree)
    last = status.get("lastScheduleTime")
    job_spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        name_of(tree),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(tree, now),
        *_template_cells(job_spec),
    ]


def _budget(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        name_of(tree),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        status.get("disruptionsAllowed", 0),
        age_of(tree, now),
    ]


def _autoscaler(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    target: Tree = spec.get("scaleTargetRef") or {}
    return [
        name_of(tree),
        f"{target.get('kind')}/{target.get('name')}",
        UNKNOWN if spec.get("metrics") else NONE,
        str(spec.get("minReplicas", 1)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(tree, now),
    ]


_TEMPLATE: Final = ("Containers", "Images", "Selector")
_COUNTS: Final = ("Desired:integer", "Current:integer", "Ready:integer")

PRINTERS: Final[dict[TableKey, Printer]] = {
    ("", "pods"): Printer(
        columns(
            "Ready",
            "Status",
            "Restarts",
            "Age",
            wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
        _pod,
    ),
    ("", "nodes"): Printer(
        columns(
            "Status",
            "Roles",
            "Age",
            "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    ("apps", "deployments"): Printer(
        columns("Ready", "Up-to-date", "Available", "Age", wide=_TEMPLATE), _deployment
    ),
    ("apps", "replicasets"): Printer(columns(*_COUNTS, "Age", wide=_TEMPLATE), _replica_set),
    ("", "replicationcontrollers"): Printer(
        columns(*_COUNTS, "Age", wide=_TEMPLATE), _replication_controller
    ),
    ("apps", "statefulsets"): Printer(
        columns("Ready", "Age", wide=("Containers", "Images")), _stateful_set
    ),
    ("apps", "daemonsets"): Printer(
        columns(
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
        columns("Status", "Completions", "Duration", "Age", wide=_TEMPLATE), _job
    ),
    ("batch", "cronjobs"): Printer(
        columns(
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
    ("policy", "poddisruptionbudgets"): Printer(
        columns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _budget
    ),
    ("autoscaling", "horizontalpodautoscalers"): Printer(
        columns("Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), _autoscaler
    ),
}
