"""Builders for worlds in tests: nodes with GPUs, claims, pods."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.world.events import Changed
from dovetail.world.world import World

DRIVER = "gpu.example.com"


def struct(tree: dict[str, Any]) -> Any:
    return codec.decode(tree).struct


def node(
    name: str, *, cpu: str = "64", memory: str = "512Gi", labels: dict[str, str] | None = None
) -> nodes.Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    return struct(tree)


def gpu_slice(
    name: str,
    *,
    gpus: int = 8,
    generation: int = 1,
    slice_name: str | None = None,
    product: str = "H100",
) -> slices.ResourceSlice:
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "uuid": {"string": f"GPU-{name}-{i}"},
                "model": {"string": product},
                "numa": {"int": i * 2 // max(gpus, 1)},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(gpus)
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": name,
        "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
        "devices": devices,
    }
    meta = {"name": slice_name or f"{name}-gpus"}
    return struct(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": meta,
            "spec": spec,
        }
    )


def slice_of(name: str, devices: list[dict[str, Any]]) -> slices.ResourceSlice:
    """A slice that is all of a node's pool."""
    [made] = slices_of(name, {"devices": devices})
    return made


def slices_of(name: str, *parts: dict[str, Any]) -> list[slices.ResourceSlice]:
    """The slices of a node's pool."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts)}
    trees = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-gpus" if place == 0 else f"{name}-{place}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for place, part in enumerate(parts)
    ]
    return [struct(tree) for tree in trees]


def condition(tree: dict[str, str]) -> nodes.NodeCondition:
    return msgspec.convert(tree, nodes.NodeCondition)


def replaced(result: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(result, **changes)


def claim(
    name: str, *, devices: tuple[tuple[str, str], ...] = (), namespace: str = "default"
) -> claims.ResourceClaim:
    """A claim; with devices (pool, name) it is allocated."""
    tree: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    if devices:
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
            for pool, device in devices
        ]
        tree["status"] = {"allocation": {"devices": {"results": results}}}
    return struct(tree)


def pod(
    name: str,
    *,
    cpu: str = "1",
    node_name: str = "",
    phase: str = "",
    namespace: str = "default",
    claims: tuple[dict[str, str], ...] = (),
    resources: dict[str, str] | None = None,
) -> pods.Pod:
    requests = {"cpu": cpu, "memory": "1Gi", **(resources or {})}
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"pod-{name}"},
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "resourceClaims": list(claims),
        },
        "status": {"phase": phase},
    }
    return struct(tree)


def world(*result: Any) -> World:
    made = World()
    for item in result:
        made.apply(Changed(item))
    return made


def cluster(count: int, *, gpus: int = 8) -> World:
    names = [f"node-{i}" for i in range(count)]
    return world(*(node(name) for name in names), *(gpu_slice(name, gpus=gpus) for name in names))
