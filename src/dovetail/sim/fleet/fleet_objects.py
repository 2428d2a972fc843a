"""Turns a fleet into the Kubernetes objects a real one shows: labelled nodes, slices, device classes.

Given a fleet without problems, returns plain trees, the same ones each time. Never stores or validates them.
"""

from typing import Any, Final

from dovetail.model import node_pools
from dovetail.sim.fleet import device_publisher, fleet_spec, machines

MIB: Final = 1024**2
CLIQUE_LABEL: Final = node_pools.CLIQUE
RACK_LABEL: Final = node_pools.RACK
POOL_LABEL: Final = node_pools.OWN_POOL
PODS_PER_NODE: Final = "110"  # kubelet's default

Tree = dict[str, Any]


def objects_of(fleet: fleet_spec.Fleet) -> list[Tree]:
    """Namespaces, classes, then node by node the node and its slices."""
    trees = [
        _namespace(name) for name in ("default", "kube-system")
    ] + device_publisher.device_classes()
    for machine in machines.machines_of(fleet):
        trees.append(_node(machine, fleet))
        trees.extend(device_publisher.slices_of(machine, fleet))
    return trees


def _namespace(name: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    }


def _node(machine: machines.Machine, fleet: fleet_spec.Fleet) -> Tree:
    resources = {"cpu": machine.pool.cpu, "memory": machine.pool.memory, "pods": PODS_PER_NODE}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": _labels(machine, fleet)},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _labels(machine: machines.Machine, fleet: fleet_spec.Fleet) -> dict[str, str]:
    is_superchip = machine.gpu.form_factor.value == "superchip"
    labels = {
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if is_superchip else "amd64",
        POOL_LABEL: machine.pool.name,
        **_discovery_labels(machine, fleet),
    }
    if machine.rack:
        labels[RACK_LABEL] = machine.rack
    if machine.clique:
        labels[CLIQUE_LABEL] = machine.clique
    return labels | machine.pool.labels


def _discovery_labels(machine: machines.Machine, fleet: fleet_spec.Fleet) -> dict[str, str]:
    """What NVIDIA's GPU feature discovery writes."""
    gpu = machine.gpu
    assert gpu.memory_bytes is not None, "an unchecked fleet"
    major, minor = gpu.compute_capability.value.split(".")
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(machine.boards)),
        "nvidia.com/gpu.product": fleet_spec.label_value(gpu.product.value),
        "nvidia.com/gpu.memory": str(gpu.memory_bytes.value // MIB),
        "nvidia.com/gpu.family": fleet_spec.label_value(gpu.architecture.value.lower()),
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true" if gpu.mig else "false",
        "nvidia.com/mig.strategy": "mixed" if machine.pool.mig else "single",
        **_version_labels(
            "nvidia.com/cuda.driver-version", fleet.driver_version, with_revision=True
        ),
        **_version_labels(
            "nvidia.com/cuda.runtime-version", fleet.cuda_version, with_revision=False
        ),
    }
    if machine.pool.machine:
        labels["nvidia.com/gpu.machine"] = fleet_spec.label_value(machine.pool.machine)
    return labels


def _version_labels(prefix: str, version: str, *, with_revision: bool) -> dict[str, str]:
    parts = version.split(".")
    names = ("major", "minor", "revision") if with_revision else ("major", "minor")
    labelled_parts = zip(names, [*parts, ""], strict=False)  # a revision may be missing
    return {f"{prefix}.full": version} | {f"{prefix}.{name}": part for name, part in labelled_parts}
