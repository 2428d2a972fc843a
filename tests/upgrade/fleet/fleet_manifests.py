"""Manifests of a fleet's work and of its upgrades, as trees. Given names and numbers; creates nothing."""

from __future__ import annotations

from typing import Any

from tests.upgrade.fleet.upgrade_history import STAYS, WORK

Tree = dict[str, Any]


def pod_spec(gpus: int, *, has_volume: bool = False) -> Tree:
    """A pod of one container, with GPUs of a device plugin or without."""
    container: Tree = {"name": "main", "image": "test/work:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: Tree = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    if has_volume:
        spec["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return spec


def replica_set(name: str, labels: dict[str, str], *, count: int, has_volume: bool) -> Tree:
    """Pods that are created again when they are gone."""
    pod = {"metadata": {"labels": labels}, "spec": pod_spec(1, has_volume=has_volume)}
    selector = {"matchLabels": {WORK: name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": count, "selector": selector, "template": pod},
    }


def daemon_set(name: str, labels: dict[str, str], nodes: dict[str, str], *, gpus: int) -> Tree:
    """A pod on every node with these labels."""
    spec = pod_spec(gpus) | {"nodeSelector": nodes, "tolerations": [{"operator": "Exists"}]}
    pod = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {STAYS: name}}, "template": pod},
    }


def budget(work: str, spec: Tree) -> Tree:
    """A disruption budget over the pods of some work."""
    selector = {"matchLabels": {WORK: work}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": work},
        "spec": {"selector": selector} | spec,
    }


def upgrade(name: str, spec: Tree) -> Tree:
    """An upgrade."""
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "StackUpgrade",
        "metadata": {"name": name},
        "spec": spec,
    }
