"""The columns of services, events, storage, claims, leases and access, with the cells of one object.

Names, order and priorities are those of the API server's printers. Given a tree and the time. Never reads a store.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.sim.rest.printing.column_definitions import (
    WIDE,
    Cells,
    Definition,
    Printer,
    Tree,
    age_of,
    columns,
    name_of,
    spec_of,
    status_of,
)
from dovetail.sim.rest.printing.printed_values import NONE, access_modes, age, labels
from dovetail.sim.server.served_kinds import TableKey


def _service(tree: Tree, now: datetime.datetime) -> Cells:
    spec = spec_of(tree)
    external = ",".join(spec.get("externalIPs") or ()) or spec.get("externalName") or NONE
    if spec.get("type") == "LoadBalancer" and external == NONE:
        external = "<pending>"
    ports = [_service_port(port) for port in spec.get("ports") or ()]
    return [
        name_of(tree),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        external,
        ",".join(ports) or NONE,
        age_of(tree, now),
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
        name_of(tree),
    ]


def _namespace(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), status_of(tree).get("phase", ""), age_of(tree, now)]


def _config_map(tree: Tree, now: datetime.datetime) -> Cells:
    entries = len(tree.get("data") or {}) + len(tree.get("binaryData") or {})
    return [name_of(tree), entries, age_of(tree, now)]


def _secret(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), tree.get("type", ""), len(tree.get("data") or {}), age_of(tree, now)]


def _volume_claim(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    phase = "Terminating" if tree["metadata"].get("deletionTimestamp") else status.get("phase", "")
    is_bound = bool(spec.get("volumeName"))
    capacity = (status.get("capacity") or {}).get("storage", "") if is_bound else ""
    modes = access_modes(status.get("accessModes")) if is_bound else ""
    return [
        name_of(tree),
        phase,
        spec.get("volumeName", ""),
        capacity,
        modes,
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(tree, now),
        spec.get("volumeMode") or "Filesystem",
    ]


def _volume(tree: Tree, now: datetime.datetime) -> Cells:
    spec, status = spec_of(tree), status_of(tree)
    reference: Tree = spec.get("claimRef") or {}
    claim = f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""
    phase = "Terminating" if tree["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [
        name_of(tree),
        (spec.get("capacity") or {}).get("storage", ""),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        phase,
        claim,
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason") or "",
        age_of(tree, now),
        spec.get("volumeMode") or "Filesystem",
    ]


def _claim(tree: Tree, now: datetime.datetime) -> Cells:
    status = status_of(tree)
    is_deleted = bool(tree["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if status.get("allocation"):
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not is_deleted:
        states.append("pending")
    return [name_of(tree), ",".join(states), age_of(tree, now)]


def _slice(tree: Tree, now: datetime.datetime) -> Cells:
    spec = spec_of(tree)
    pool = (spec.get("pool") or {}).get("name", "")
    return [
        name_of(tree),
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        pool,
        age_of(tree, now),
    ]


def _lease(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), spec_of(tree).get("holderIdentity") or "", age_of(tree, now)]


def _priority_class(tree: Tree, now: datetime.datetime) -> Cells:
    policy = tree.get("preemptionPolicy") or "PreemptLowerPriority"
    is_default = bool(tree.get("globalDefault"))
    return [name_of(tree), tree.get("value", 0), is_default, age_of(tree, now), policy]


def _storage_class(tree: Tree, now: datetime.datetime) -> Cells:
    annotations = tree["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{name_of(tree)} (default)" if is_default else name_of(tree),
        tree.get("provisioner", ""),
        tree.get("reclaimPolicy") or "Delete",
        tree.get("volumeBindingMode") or "Immediate",
        "true" if tree.get("allowVolumeExpansion") else "false",
        age_of(tree, now),
    ]


def _definition(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), tree["metadata"].get("creationTimestamp", "")]


def _role_binding(tree: Tree, now: datetime.datetime) -> Cells:
    role: Tree = tree.get("roleRef") or {}
    subjects: list[Tree] = tree.get("subjects") or []
    names = [
        ", ".join(_subject(subject) for subject in subjects if subject.get("kind") == kind)
        for kind in ("User", "Group", "ServiceAccount")
    ]
    return [name_of(tree), f"{role.get('kind')}/{role.get('name')}", age_of(tree, now), *names]


def _subject(subject: Tree) -> str:
    namespace = subject.get("namespace")
    return f"{namespace}/{subject.get('name')}" if namespace else str(subject.get("name"))


def _role(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), tree["metadata"].get("creationTimestamp", "")]


_BINDING: Final = columns("Role", "Age", wide=("Users", "Groups", "ServiceAccounts"))
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

PRINTERS: Final[dict[TableKey, Printer]] = {
    ("", "services"): Printer(
        columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)),
        _service,
    ),
    ("events.k8s.io", "events"): Printer(_EVENT, _event),
    ("", "namespaces"): Printer(columns("Status", "Age"), _namespace),
    ("", "configmaps"): Printer(columns("Data", "Age"), _config_map),
    ("", "secrets"): Printer(columns("Type", "Data", "Age"), _secret),
    ("", "persistentvolumeclaims"): Printer(
        columns(
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
        columns(
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
    ("resource.k8s.io", "resourceclaims"): Printer(columns("State", "Age"), _claim),
    ("resource.k8s.io", "resourceslices"): Printer(
        columns("Node", "Driver", "Pool", "Age"), _slice
    ),
    ("coordination.k8s.io", "leases"): Printer(columns("Holder", "Age"), _lease),
    ("scheduling.k8s.io", "priorityclasses"): Printer(
        columns("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
        _priority_class,
    ),
    ("storage.k8s.io", "storageclasses"): Printer(
        columns("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Printer(
        columns("Created At"), _definition
    ),
    ("rbac.authorization.k8s.io", "rolebindings"): Printer(_BINDING, _role_binding),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): Printer(_BINDING, _role_binding),
    ("rbac.authorization.k8s.io", "roles"): Printer(columns("Created At"), _role),
    ("rbac.authorization.k8s.io", "clusterroles"): Printer(columns("Created At"), _role),
}
