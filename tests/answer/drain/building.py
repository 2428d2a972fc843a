"""Pods, budgets and DaemonSets of small stories about drains."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import disruption_budgets, pods
from tests.answer.what_if import building

Tree = dict[str, Any]


def pod(name: str, *, node: str = "n1", is_ready: bool = True, gpus: int = 1, **spec: Any) -> Tree:
    """A running pod of job `train` with label app=web."""
    tree = building.pod(name, gpus=gpus, node=node, job="train")
    tree["metadata"]["labels"] = {"app": "web"}
    ready = "True" if is_ready else "False"
    tree["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    tree["spec"] |= spec
    return tree


def budget(name: str = "web", *, status: Tree | None = None, **spec: Any) -> Tree:
    """A budget over pods with label app=web."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default", "name": name, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}} | spec,
        "status": status or {},
    }


def pod_of(tree: Tree) -> pods.Pod:
    struct = codec.decode(tree).struct
    assert isinstance(struct, pods.Pod)
    return struct


def budget_of(tree: Tree) -> disruption_budgets.PodDisruptionBudget:
    document = codec.encode_tree(tree)
    return codec.decode_struct(disruption_budgets.PodDisruptionBudget, document)
