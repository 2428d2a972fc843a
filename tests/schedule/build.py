"""Builders for stories about scheduling: a world from a few words, pods from a few more, verbs to check a plan."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model import claims, classes, nodes, objects, plan, pods, slices
from dovetail.schedule import cycle
from dovetail.world.events import Changed, Object
from dovetail.world.world import World

DRIVER = "gpu.example.com"
TREE = dict[str, Any]
KINDS: dict[str, type] = {
    "Pod": pods.Pod,
    "Node": nodes.Node,
    "ResourceClaim": claims.ResourceClaim,
    "DeviceClass": classes.DeviceClass,
    "ResourceSlice": slices.ResourceSlice,
}


def struct(kind: str, tree: TREE) -> Any:
    """An object as the API would decode it."""
    version = "v1" if kind in ("Pod", "Node") else objects.RESOURCE_V1
    return objects.decode({"apiVersion": version, "kind": kind, **tree}).struct


def node(name: str, **facts: Any) -> nodes.Node:
    """A node of 64 cpus and 256Gi, unless told otherwise."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"} | facts.pop("allocatable", {})
    labels = {"kubernetes.io/hostname": name} | facts.pop("labels", {})
    tree = {"metadata": {"name": name, "labels": labels}, "spec": facts, "status": {"allocatable": allocatable}}
    return struct("Node", tree)  # type: ignore[no-any-return]


def gpu_slice(name: str, count: int, **attributes: Any) -> slices.ResourceSlice:
    """A node's whole GPUs, each with a uuid of its own and a PCIe root for every two."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "uuid": {"string": f"{name}-{index}"},
                "model": {"string": "H100"},
                "root": {"string": f"{name}-root-{index // 2}"},
                **attributes,
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(count)
    ]
    return gpu_pool(name, devices)


def gpu_pool(name: str, devices: list[TREE], **more: Any) -> slices.ResourceSlice:
    """A slice that is a whole pool of one node."""
    spec = {"driver": DRIVER, "nodeName": name, "devices": devices} | more
    spec["pool"] = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return struct("ResourceSlice", {"metadata": {"name": f"{name}-slice"}, "spec": spec})  # type: ignore[no-any-return]


def gpu_class() -> classes.DeviceClass:
    """The class of all GPUs."""
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    return struct("DeviceClass", {"metadata": {"name": "gpu"}, "spec": spec})  # type: ignore[no-any-return]


def claim(name: str, count: int = 1, *, when: str = "", **facts: Any) -> claims.ResourceClaim:
    """A claim for GPUs, `when` being a selector over the device."""
    exactly: TREE = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if when:
        exactly["selectors"] = [{"cel": {"expression": when}}]
    devices: TREE = {"requests": facts.pop("requests", [{"name": "gpus", "exactly": exactly}])}
    if "constraints" in facts:
        devices["constraints"] = facts.pop("constraints")
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-claim-{name}"} | facts.pop("metadata", {})
    tree = {"metadata": metadata, "spec": {"devices": devices}, **facts}
    return struct("ResourceClaim", tree)  # type: ignore[no-any-return]


def pod(name: str, *, uses: tuple[str, ...] = (), cpu: str = "1", priority: int = 0, **spec: Any) -> pods.Pod:
    """A pod with one container, and the claims it uses by name."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "creationTimestamp": spec.pop("created", "2026-01-01T00:00:00Z"),
    } | spec.pop("metadata", {})
    status = spec.pop("status", {})
    whole = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        "resourceClaims": [{"name": one, "resourceClaimName": one} for one in uses],
        "priority": priority,
    } | spec
    return struct("Pod", {"metadata": metadata, "spec": whole, "status": status})  # type: ignore[no-any-return]


def world(*given: Object, nodes: int = 0, gpus: int = 8) -> World:
    """A world of so many GPU nodes, and whatever else is given."""
    made = World()
    put(made, gpu_class())
    for index in range(nodes):
        put(made, node(f"n{index}"))
        if gpus:
            put(made, gpu_slice(f"n{index}", gpus))
    put(made, *given)
    return made


def put(made: World, *given: Object) -> World:
    """Applies events, one object each."""
    for one in given:
        made.apply(Changed(one))
    return made


def carried_out(made: World, done: plan.Plan) -> World:
    """The world after somebody wrote the plan to the API: claims first, then bindings."""
    for placement in done.placements:
        for allocation in placement.allocations:
            key = (allocation.claim.namespace, allocation.claim.name)
            status = msgspec.structs.replace(made.claims[key].status, allocation=allocation.result)
            made.apply(Changed(msgspec.structs.replace(made.claims[key], status=status)))
        found = next(one for one in made.pods.values() if one.metadata.uid == placement.pod.uid)
        spec = msgspec.structs.replace(found.spec, node_name=placement.node)
        made.apply(Changed(msgspec.structs.replace(found, spec=spec)))
    return made


def decided(made: World, **options: Any) -> plan.Plan:
    """The plan."""
    return cycle.decide(made, **options)


def nodes_of(done: plan.Plan) -> dict[str, str]:
    """Pod name -> node."""
    return {placement.pod.name: placement.node for placement in done.placements}


def devices_of(done: plan.Plan, pod_name: str) -> list[str]:
    """The devices allocated for a pod, as pool/device."""
    placement = next(one for one in done.placements if one.pod.name == pod_name)
    results = [result for one in placement.allocations for result in one.result.devices.results]
    return [f"{result.pool}/{result.device}" for result in results]


def summary_of(done: plan.Plan, pod_name: str) -> str:
    """Why a pod waits."""
    return next(one.summary for one in done.refusals if one.pod.name == pod_name)
