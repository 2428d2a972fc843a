"""Clusters for stories about the parts of the GPU stack: our agents, NVIDIA's parts, slices."""

from __future__ import annotations

from typing import Any

from dovetail.answer.stack_parts import part_report
from dovetail.answer.stack_parts.part_answer import NodeParts, PartReport
from dovetail.kubetypes import codec, object_set
from tests.answer.stack import fleets

Tree = dict[str, Any]
AGENT = {"app.kubernetes.io/name": "dovetail", "app.kubernetes.io/component": "node-agent"}
BARE = None  # a node of which no label says that it has GPUs
EVERYWHERE = ({"operator": "Exists"},)


def agents(
    name: str = "agents",
    *,
    mode: str = "dra",
    tolerations: tuple[Tree, ...] = EVERYWHERE,
    **selector: str,
) -> Tree:
    """A DaemonSet of our agents, as the chart makes it."""
    container = {"name": "node-agent", "image": "x:1", "args": ["node-agent", f"--mode={mode}"]}
    spec = {
        "nodeSelector": {key.replace("_", "-"): value for key, value in selector.items()},
        "tolerations": list(tolerations),
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "dovetail-system"},
        "spec": {"template": {"metadata": {"labels": AGENT}, "spec": spec}},
    }


def part_pod(node: str, labels: dict[str, str], *, name: str = "part", problem: str = "") -> Tree:
    """A pod of a part; with a problem it crashes again and again."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    last = {"terminated": {"message": problem, "exitCode": 1}}
    state = {"name": "main", "ready": False, "restartCount": 3, "state": waiting, "lastState": last}
    condition = {"type": "Ready", "status": "False" if problem else "True"}
    status: Tree = {"phase": "Running", "conditions": [condition]}
    if problem:
        status["containerStatuses"] = [state]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-{node}", "namespace": "dovetail-system", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x:1"}]},
        "status": status,
    }


def agent(node: str, *, problem: str = "") -> Tree:
    return part_pod(node, AGENT, name="agent", problem=problem)


def gpu_slice(node: str, *, gpus: int = 8, of: int = 1) -> Tree:
    """The slice of a node's GPUs, of a pool that has `of` slices."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "driverVersion": {"version": "580.95.5"},
            },
        }
        for index in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": of}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices},
    }


def counting(tree: Tree, **amounts: int) -> Tree:
    """The node with GPUs that its kubelet counts."""
    resources = {f"nvidia.com/{name}": str(number) for name, number in amounts.items()}
    status = tree["status"] | {"allocatable": resources, "capacity": resources}
    return tree | {"status": status}


def tainted(tree: Tree, key: str) -> Tree:
    return tree | {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}


def device_class(name: str = "gpu.nvidia.com") -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {},
    }


def unlabelled(name: str) -> Tree:
    """A node of which only the hardware is known, by node-feature-discovery."""
    label = "feature.node.kubernetes.io/pci-10de.present"
    tree = fleets.node(name, None)
    return tree | {"metadata": {"name": name, "labels": {label: "true"}}}


def report(*trees: Tree) -> PartReport:
    objects = object_set.of("test", [codec.decode(tree) for tree in trees])
    return part_report.report(objects)


def only_node(*trees: Tree) -> NodeParts:
    (node,) = report(*trees).nodes
    return node


def codes(*trees: Tree) -> list[str]:
    return [gap.code for gap in report(*trees).gaps]
