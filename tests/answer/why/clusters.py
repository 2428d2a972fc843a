"""Builders for stories about pods that wait: nodes, devices and pods from a few words, and the question."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.answer.replica.patches import ObjectRef
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import why
from dovetail.answer.why.why_answer import Why
from dovetail.kubetypes import codec, object_set, registry
from dovetail.model import policy

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
GPU = "nvidia.com/gpu"
DRIVER = "gpu.example.com"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'
Tree = dict[str, Any]


def node(name: str, gpus: int = 0, *, labels: Tree | None = None, **spec: Any) -> Tree:
    """A node of 64 cpus and 256Gi, with so many GPUs of a device plugin."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"} | spec.pop("amounts", {})
    if gpus:
        amounts[GPU] = str(gpus)
    capacity = {**amounts, **spec.pop("capacity", {})}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    status = {"allocatable": amounts, "capacity": capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Tree:
    return {"key": key, "value": value, "effect": effect}


def pod(name: str, gpus: int = 0, *, cpu: str = "1", on: str = "", **spec: Any) -> Tree:
    """A pod that waits, or runs on a node."""
    limits = {GPU: str(gpus)} if gpus else {}
    limits |= spec.pop("limits", {})
    resources = {"requests": {"cpu": cpu, **spec.pop("requests", {})}, "limits": limits}
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}"} | spec.pop("metadata", {})
    uses = spec.pop("uses", ())
    whole: Tree = {"containers": [{"name": "main", "resources": resources}], **spec}
    if uses:
        whole["resourceClaims"] = [{"name": use, "resourceClaimName": use} for use in uses]
    if on:
        whole["nodeName"] = on
    status: Tree = {"phase": "Running" if on else "Pending"}
    if on:
        status["startTime"] = "2026-11-17T11:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": whole,
        "status": status,
    }


def member(name: str, gpus: int, *, minimum: int = 4, **annotations: str) -> Tree:
    """A pod of a gang."""
    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": str(minimum)}
    tree = pod(name, gpus)
    tree["metadata"] |= {"labels": labels, "annotations": annotations}
    return tree


def device_class(name: str = "gpu", when: str = f'device.driver == "{DRIVER}"') -> Tree:
    spec = {"selectors": [{"cel": {"expression": when}}]}
    return resource("DeviceClass", {"name": name}, spec=spec)


def gpus(name: str, count: int = 4, **changes: Any) -> Tree:
    """The devices of a node: Hopper, 80Gi, two behind each PCIe root."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "architecture": {"string": "Hopper"},
                "root": {"string": f"{name}-{index // 2}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            **changes.get("device", {}),
        }
        for index in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": changes.get("slices", 1)}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return resource("ResourceSlice", {"name": f"{name}-gpus"}, spec=spec)


def claim(
    name: str, count: int = 1, *, when: str = "", held: tuple[str, ...] = (), **more: Any
) -> Tree:
    """A claim for GPUs; `held` are the devices it holds, as pool/device."""
    exactly = {"deviceClassName": more.get("class_", "gpu"), "allocationMode": "ExactCount"}
    exactly |= {"count": count, **more.get("exactly", {})}
    if when:
        exactly["selectors"] = [{"cel": {"expression": when}}]
    devices: Tree = {"requests": [{"name": "gpus", "exactly": exactly}]}
    if "constraints" in more:
        devices["constraints"] = more["constraints"]
    status: Tree = {}
    if held:
        results = []
        for place in held:
            pool, _, device = place.partition("/")
            results.append({"request": "gpus", "driver": DRIVER, "pool": pool, "device": device})
        user = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    metadata = {"namespace": "team", "name": name, "uid": f"uid-claim-{name}"}
    return resource("ResourceClaim", metadata, spec={"devices": devices}, status=status)


def holding(name: str, on: str, *devices: str) -> list[Tree]:
    """A pod that runs with these devices of its node."""
    held = tuple(f"{on}/{device}" for device in devices)
    return [claim(name, len(devices), held=held), pod(name, on=on, uses=(name,))]


def queue(name: str, **spec: Any) -> Tree:
    metadata = {"name": name, "uid": f"uid-queue-{name}"}
    return {
        "apiVersion": registry.QUEUE.api_version,
        "kind": "Queue",
        "metadata": metadata,
        "spec": spec,
    }


def resource(kind: str, metadata: Tree, **parts: Any) -> Tree:
    return {"apiVersion": registry.RESOURCE_V1, "kind": kind, "metadata": metadata, **parts}


def replica_of(*trees: Tree, **options: Any) -> Replica:
    stored = [codec.decode(tree) for tree in trees]
    return Replica(object_set.of("test", stored), options.get("policy_", policy.DEFAULT), NOW)


def ask(*trees: Tree, name: str = "waits", kind: str = "Pod", **options: Any) -> Why:
    """Why the pod of that name does not start."""
    version = {"Pod": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    subject = ObjectRef(api_version=version, kind=kind, namespace="team", name=name)
    return why.why(replica_of(*trees, **options), subject)
