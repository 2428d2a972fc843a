"""Builders for stories about scheduling: a world from a few words, pods from a few more, verbs to check a plan."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, device_classes, slices, taint_rules
from dovetail.model import plan
from dovetail.schedule import decide
from dovetail.world.events import Changed, Object
from dovetail.world.world import World

DRIVER = "gpu.example.com"
TREE = dict[str, Any]
KINDS: dict[str, type] = {
    "Pod": pods.Pod,
    "Node": nodes.Node,
    "ResourceClaim": claims.ResourceClaim,
    "DeviceClass": device_classes.DeviceClass,
    "ResourceSlice": slices.ResourceSlice,
}


def struct(kind: str, tree: TREE) -> Any:
    """An object as the API would decode it."""
    version = "v1" if kind in ("Pod", "Node", "Namespace") else registry.RESOURCE_V1
    return codec.decode({"apiVersion": version, "kind": kind, **tree}).struct


def node(name: str, **facts: Any) -> nodes.Node:
    """A node of 64 cpus and 256Gi, by default."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"} | facts.pop("allocatable", {})
    labels = {"kubernetes.io/hostname": name} | facts.pop("labels", {})
    tree = {
        "metadata": {"name": name, "labels": labels},
        "spec": facts,
        "status": {"allocatable": allocatable},
    }
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


def gpu_class(
    name: str = "gpu", *, when: str = f'device.driver == "{DRIVER}"', **spec: Any
) -> device_classes.DeviceClass:
    """The class of all GPUs."""
    metadata = {"name": name} | spec.pop("metadata", {})
    spec = {"selectors": [{"cel": {"expression": when}}]} | spec
    return struct("DeviceClass", {"metadata": metadata, "spec": spec})  # type: ignore[no-any-return]


def taint_rule(
    name: str, *, effect: str = "NoSchedule", **selector: str
) -> taint_rules.DeviceTaintRule:
    """A rule that taints devices of ours; without a selector, all of them."""
    chosen = {"driver": DRIVER, **selector}
    spec = {"deviceSelector": chosen, "taint": {"key": f"{name}.example.com", "effect": effect}}
    return struct("DeviceTaintRule", {"metadata": {"name": name}, "spec": spec})  # type: ignore[no-any-return]


def claim(name: str, count: int = 1, *, when: str = "", **facts: Any) -> claims.ResourceClaim:
    """A claim for GPUs, `when` being a selector over the device."""
    exactly: TREE = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if when:
        exactly["selectors"] = [{"cel": {"expression": when}}]
    devices: TREE = {"requests": facts.pop("requests", [{"name": "gpus", "exactly": exactly}])}
    if "constraints" in facts:
        devices["constraints"] = facts.pop("constraints")
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-claim-{name}"} | facts.pop(
        "metadata", {}
    )
    tree = {"metadata": metadata, "spec": {"devices": devices}, **facts}
    return struct("ResourceClaim", tree)  # type: ignore[no-any-return]


def template(name: str) -> claims.ResourceClaimTemplate:
    """A template for claims of one GPU."""
    metadata = {"name": name, "namespace": "default"}
    spec = codec.tree_of(claim(name).spec)
    return struct("ResourceClaimTemplate", {"metadata": metadata, "spec": {"spec": spec}})  # type: ignore[no-any-return]


def pod(
    name: str, *, uses: tuple[str, ...] = (), cpu: str = "1", priority: int = 0, **spec: Any
) -> pods.Pod:
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
        "resourceClaims": [{"name": use, "resourceClaimName": use} for use in uses],
        "priority": priority,
    } | spec
    return struct("Pod", {"metadata": metadata, "spec": whole, "status": status})  # type: ignore[no-any-return]


def world(*given: Object, nodes: int = 0, gpus: int = 8) -> World:
    """A world of so many GPU nodes, and whatever else is given."""
    cluster = World()
    put(cluster, gpu_class())
    for index in range(nodes):
        put(cluster, node(f"n{index}"))
        if gpus:
            put(cluster, gpu_slice(f"n{index}", gpus))
    put(cluster, *given)
    return cluster


def put(cluster: World, *given: Object) -> World:
    """Applies events, one object each."""
    for item in given:
        cluster.apply(Changed(item))
    return cluster


def carried_out(cluster: World, done: plan.Plan) -> World:
    """The world after the plan is written to the API: claims first, then bindings."""
    for placement in done.placements:
        carry_out(cluster, placement)
    return cluster


def carry_out(cluster: World, placement: plan.Placement) -> None:
    """Writes one placement to the API."""
    claim = write_claims(cluster, placement)
    result = cluster.pods[placement.pod.uid]
    status = result.status
    if placement.made is not None:
        pod_extended_resource_claim_status = pods.PodExtendedResourceClaimStatus(
            request_mappings=placement.made.mappings, resource_claim_name=claim
        )
        status = msgspec.structs.replace(
            status, extended_resource_claim_status=pod_extended_resource_claim_status
        )
    spec = msgspec.structs.replace(result.spec, node_name=placement.node)
    cluster.apply(Changed(msgspec.structs.replace(result, spec=spec, status=status)))


def write_claims(cluster: World, placement: plan.Placement) -> str:
    """Writes the claims of a placement, but not its binding; the name of the one for extended resources."""
    results = {
        (allocation.claim.namespace, allocation.claim.name): allocation.result
        for allocation in placement.allocations
    }
    name = ""
    if placement.made is not None:
        name = create_claim(cluster, placement.made)
        results[placement.pod.namespace, name] = placement.made.result
    for key, result in results.items():
        status = replaced(cluster.claims[key].status, allocation=result)
        cluster.apply(Changed(msgspec.structs.replace(cluster.claims[key], status=status)))
    return name


def create_claim(cluster: World, wanted: plan.ExtendedResourceClaim) -> str:
    """Writes the claim for a pod's extended resources, as yet without devices, unless it is there; its name."""
    name = made_name(wanted)
    if wanted.existing is None:
        cluster.apply(
            Changed(replaced(wanted.claim, metadata=replaced(wanted.claim.metadata, name=name)))
        )
    return name


def made_name(wanted: plan.ExtendedResourceClaim) -> str:
    """The name of a claim for extended resources: the same for the same pod and requests."""
    asked = zlib.crc32(codec.encode_struct(wanted.claim.spec))
    return wanted.claim.metadata.name or f"{wanted.claim.metadata.generate_name}{asked:08x}"


def replaced(struct: Any, **changes: Any) -> Any:
    """The struct with other values in some fields."""
    return msgspec.structs.replace(struct, **changes)


def assume(cluster: World, placement: plan.Placement) -> None:
    """What a loop does before it writes a placement."""
    results = {
        (allocation.claim.namespace, allocation.claim.name): allocation.result
        for allocation in placement.allocations
    }
    if placement.made is not None:
        results[placement.pod.namespace, made_name(placement.made)] = placement.made.result
    cluster.assume(cluster.pods[placement.pod.uid], placement.node, results)


def decided(cluster: World, **options: Any) -> plan.Plan:
    """The plan."""
    return decide.decide(cluster, **options)


def nodes_of(done: plan.Plan) -> dict[str, str]:
    """Pod name -> node."""
    return {placement.pod.name: placement.node for placement in done.placements}


def devices_of(done: plan.Plan, pod_name: str) -> list[str]:
    """The devices allocated for a pod, as pool/device."""
    placement = next(item for item in done.placements if item.pod.name == pod_name)
    results = [
        result
        for allocation in placement.allocations
        for result in allocation.result.devices.results
    ]
    return [f"{result.pool}/{result.device}" for result in results]


def summary_of(done: plan.Plan, pod_name: str) -> str:
    """Why a pod waits."""
    return next(refusal.summary for refusal in done.refusals if refusal.pod.name == pod_name)
