"""Clusters for stories about the GPU stack: nodes as feature discovery labels them, pods, the operator's objects."""

from __future__ import annotations

import datetime
from typing import Any, Final

from dovetail.answer.stack import stack_check, stack_inventory, target_versions
from dovetail.answer.stack.compatibility_rows import Rows
from dovetail.answer.stack.stack_check import StackCheck
from dovetail.answer.stack.stack_inventory import Inventory
from dovetail.ask.lifecycle import stack_asked
from dovetail.kubetypes import codec, object_set

Tree = dict[str, Any]

TODAY: Final = datetime.date(2026, 11, 17)
SHIPPED: Final = stack_asked.rows()
H100: Final = ("NVIDIA-H100-80GB-HBM3", "hopper", "9.0")
V100: Final = ("Tesla-V100-SXM2-32GB", "volta", "7.0")
A100: Final = ("NVIDIA-A100-SXM4-80GB", "ampere", "8.0")
GEFORCE: Final = ("NVIDIA-GeForce-RTX-4090", "ada-lovelace", "8.9")


def node(
    name: str,
    board: tuple[str, str, str] | None = H100,
    *,
    driver: str = "570.211.01",
    cuda: str = "12.8",
    containerd: str = "1.7.28",
    kubelet: str = "v1.34.3",
    **labels: str,
) -> Tree:
    """A node with eight GPUs, or without any."""
    known = {"dovetail.dev/pool": name.rpartition("-")[0]}
    if board is not None:
        product, family, compute = board
        major, _, minor = compute.partition(".")
        known |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.family": family,
            "nvidia.com/gpu.compute.major": major,
            "nvidia.com/gpu.compute.minor": minor,
            "nvidia.com/mig.capable": "true",
        }
        if driver:
            known["nvidia.com/cuda.driver-version.full"] = driver
        if cuda:
            known["nvidia.com/cuda.runtime-version.full"] = cuda
    info = {
        "kernelVersion": "6.8.0-60-generic",
        "osImage": "Ubuntu 24.04.2 LTS",
        "containerRuntimeVersion": f"containerd://{containerd}",
        "kubeletVersion": kubelet,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": known | labels},
        "status": {"nodeInfo": info},
    }


def pod(
    name: str,
    image: str,
    on: str = "",
    *,
    env: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
) -> Tree:
    """A pod that requests one GPU."""
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container: Tree = {
        "name": "main",
        "image": image,
        "env": variables,
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    metadata: Tree = {"name": name, "namespace": "team", "annotations": annotations or {}}
    if owner is not None:
        kind, owner_name = owner
        reference = {"apiVersion": "batch/v1", "kind": kind, "name": owner_name, "uid": owner_name}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    spec: Tree = {"containers": [container]}
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def daemon_set(app: str, image: str, **selector: str) -> Tree:
    """A DaemonSet of the operator."""
    template = {
        "metadata": {"labels": {"app": app}},
        "spec": {"nodeSelector": selector, "containers": [{"name": "main", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": app, "namespace": "gpu-operator"},
        "spec": {"template": template},
    }


def policy(version: str, driver: str) -> Tree:
    """The operator's ClusterPolicy."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy", "labels": {"app.kubernetes.io/version": f"v{version}"}},
        "spec": {"driver": {"enabled": True, "version": driver}},
        "status": {"state": "ready"},
    }


def inventory(*trees: Tree, rows: Rows = SHIPPED, server: str = "v1.34.3") -> Inventory:
    """The stack of these objects."""
    objects = object_set.of("test", [codec.decode(tree) for tree in trees])
    return stack_inventory.read(objects, rows, server_version=server)


def check(*trees: Tree, to: str = "", rows: Rows = SHIPPED, server: str = "v1.34.3") -> StackCheck:
    """The check of an upgrade of these objects."""
    target = target_versions.parse([to])
    target_versions.check_known(target, rows)
    return stack_check.check(inventory(*trees, rows=rows, server=server), target, rows, TODAY)
