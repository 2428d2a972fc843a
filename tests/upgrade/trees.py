"""Clusters for stories about adapters, as trees: nodes with the operator's labels, pods of the stack, its objects."""

from __future__ import annotations

from typing import Any, Final

from dovetail.kubetypes import codec, object_set
from dovetail.upgrade.adapters import adapter, node_facts
from dovetail.upgrade.adapters.node_facts import NodeFacts

Tree = dict[str, Any]
OLD: Final = "580.95.05"
NEW: Final = "595.91.07"
DISCOVERY: Final = {
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}


def node(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    is_ready: bool = True,
    is_cordoned: bool = False,
) -> Tree:
    """A GPU node."""
    marks = {"nvidia.com/gpu.present": "true", **DISCOVERY, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks, "annotations": annotations or {}},
        "spec": {"unschedulable": is_cordoned},
        "status": {"conditions": [{"type": "Ready", "status": str(is_ready)}]},
    }


def pod(app: str, image: str, on: str, *, is_ready: bool = True, is_going: bool = False) -> Tree:
    """A pod of the operator."""
    metadata: Tree = {
        "name": f"{app}-{on}",
        "namespace": "gpu-operator",
        "uid": f"uid-{app}-{on}-{image}",
        "labels": {"app": app},
    }
    if is_going:
        metadata["deletionTimestamp"] = "2026-11-17T10:00:00Z"
    state = {"running": {}} if is_ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"name": "main", "image": image, "ready": is_ready, "restartCount": 0, "state": state}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": on,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": image}],
        },
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def driver(version: str, on: str, *, is_ready: bool = True) -> Tree:
    """A driver's pod."""
    return pod(
        "nvidia-driver-daemonset", f"test/driver:{version}-ubuntu24.04", on, is_ready=is_ready
    )


def policy(version: str = OLD, *, crd: bool = False, **upgrade: Any) -> Tree:
    """A ClusterPolicy whose upgrade controller is on."""
    settings: Tree = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "25%"}
    part = {
        "enabled": True,
        "version": version,
        "useNvidiaDriverCRD": crd,
        "upgradePolicy": settings | upgrade,
    }
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {"driver": part},
    }


def nvidia_driver(name: str, version: str, selector: dict[str, str]) -> Tree:
    """An NVIDIADriver for the nodes with these labels."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": {"version": version, "nodeSelector": selector},
    }


def facts(name: str, *trees: Tree, seconds: int = 0) -> NodeFacts:
    """The facts of one node among these objects."""
    objects = object_set.of("test", [codec.decode(tree) for tree in trees])
    of_node = node_facts.read(objects).of(name, applying_seconds=seconds)
    assert of_node is not None
    return of_node


def written(tree: Tree, write: adapter.Write) -> Tree:
    """A node with a patch of ours applied; another object as it was."""
    if not isinstance(write, adapter.NodePatch) or tree["metadata"]["name"] != write.node:
        return tree
    metadata = dict(tree["metadata"])
    for field, changes in (("labels", write.labels), ("annotations", write.annotations)):
        merged = metadata[field] | changes
        metadata[field] = {key: value for key, value in merged.items() if value is not None}
    return tree | {"metadata": metadata}
