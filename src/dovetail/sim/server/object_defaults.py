"""Fills in the defaults an API server gives new objects, as far as kubectl and controllers read them.

Given a kind and a tree, returns a tree with more fields; fields that are set stay. Defaults of resource.k8s.io are
those of `admission`, of pods those of `write_rules`. Never refuses anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from dovetail.kubetypes.registry import Kind
from dovetail.sim.server import limit_ranges
from dovetail.sim.server.served_kinds import TableKey, table_key

Tree = dict[str, Any]
NAME_LABEL: Final = "kubernetes.io/metadata.name"  # core/v1 LabelMetadataName
_SERVICE_NETWORK: Final = "10.96"  # kubeadm's default service subnet is 10.96.0.0/12

_SPECS: Final[dict[TableKey, Tree]] = {
    ("apps", "deployments"): {
        "replicas": 1,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    ("apps", "replicasets"): {"replicas": 1},
    ("apps", "statefulsets"): {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    ("apps", "daemonsets"): {
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
        },
        "revisionHistoryLimit": 10,
    },
    ("", "replicationcontrollers"): {"replicas": 1},
    ("batch", "jobs"): {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
    ("batch", "cronjobs"): {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    ("", "services"): {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    },
    ("autoscaling", "horizontalpodautoscalers"): {"minReplicas": 1},
}


def filled(kind: Kind, tree: Tree, old: Tree | None = None) -> Tree:
    """The object with its defaults; `old` is what it replaces."""
    table = table_key(kind)
    spec_defaults = _SPECS.get(table)
    if spec_defaults is not None:
        spec: Tree = tree.get("spec") or {}
        tree = tree | {"spec": spec | _absent(spec_defaults, spec)}
    fill = _FILLERS.get(table)
    return tree if fill is None else fill(tree, old)


def _absent(defaults: Tree, spec: Tree) -> Tree:
    """The defaults of fields that are not set, inside structs too."""
    additions: Tree = {}
    for name, value in defaults.items():
        current = spec.get(name)
        if current is None:
            additions[name] = value
        elif isinstance(value, dict) and isinstance(current, dict) and _same_type(value, current):
            additions[name] = current | _absent(value, current)
    return additions


def _same_type(default: Tree, current: Tree) -> bool:
    """Whether a strategy is of the type whose parameters the defaults describe."""
    return current.get("type") in (None, default.get("type"))


def _filled_namespace(tree: Tree, old: Tree | None) -> Tree:
    name = tree["metadata"]["name"]
    metadata = tree["metadata"]
    labels = (metadata.get("labels") or {}) | {NAME_LABEL: name}
    tree = tree | {"metadata": metadata | {"labels": labels}}
    if old is not None:
        return tree | {"spec": old.get("spec", {})}
    return tree | {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def _filled_job(tree: Tree, old: Tree | None) -> Tree:
    """Parallelism and completions are 1, unless only the parallelism is set: then workers share a queue."""
    spec = dict(tree["spec"])
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if old is not None and "selector" in old.get("spec", {}):
        spec.setdefault("selector", old["spec"]["selector"])
    return tree | {"spec": spec}


def _filled_service(tree: Tree, old: Tree | None) -> Tree:
    spec = dict(tree["spec"])
    if spec["type"] == "ExternalName":
        return tree
    if not spec.get("clusterIP"):
        before = (old or {}).get("spec", {}).get("clusterIP")
        spec["clusterIP"] = before or _cluster_address(tree["metadata"])
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec["ports"] = [_filled_port(port) for port in spec.get("ports") or ()]
    return tree | {"spec": spec}


def _filled_port(port: Tree) -> Tree:
    defaults = {"protocol": "TCP", "targetPort": port.get("port")}
    return port | {name: value for name, value in defaults.items() if not port.get(name)}


def _cluster_address(metadata: Tree) -> str:
    """An address of the service network, from the name: nothing routes it."""
    digest = hashlib.sha256(f"{metadata.get('namespace')}/{metadata['name']}".encode()).digest()
    return f"{_SERVICE_NETWORK}.{digest[0]}.{1 + digest[1] % 254}"


def _filled_secret(tree: Tree, old: Tree | None) -> Tree:
    """The type, and text of stringData as data."""
    import base64  # only secrets need it

    tree = dict(tree)
    texts: Tree = tree.pop("stringData", None) or {}
    if texts:
        encoded = {
            name: base64.b64encode(str(text).encode()).decode() for name, text in texts.items()
        }
        tree["data"] = (tree.get("data") or {}) | encoded
    tree.setdefault("type", "Opaque")
    return tree


def _filled_priority_class(tree: Tree, old: Tree | None) -> Tree:
    return {"preemptionPolicy": "PreemptLowerPriority"} | tree


def _filled_definition(tree: Tree, old: Tree | None) -> Tree:
    """A definition with its list kind, and with the conditions under which kubectl considers it served."""
    spec = dict(tree.get("spec") or {})
    names = dict(spec.get("names") or {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
    ]
    status = {"acceptedNames": names, "storedVersions": stored, "conditions": conditions}
    return tree | {"spec": spec, "status": status}


def _filled_limit_range(tree: Tree, old: Tree | None) -> Tree:
    return limit_ranges.filled_range(tree)


_FILLERS: Final[dict[TableKey, Callable[[Tree, Tree | None], Tree]]] = {
    ("", "namespaces"): _filled_namespace,
    ("batch", "jobs"): _filled_job,
    ("", "services"): _filled_service,
    ("", "secrets"): _filled_secret,
    ("", "limitranges"): _filled_limit_range,
    ("scheduling.k8s.io", "priorityclasses"): _filled_priority_class,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _filled_definition,
}
