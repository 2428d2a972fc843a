"""The work that uses GPUs: which containers of which workload, on which nodes, and the CUDA their images need.

Given the objects of a cluster. A container counts if it requests GPUs, uses a claim for them, or runs under the nvidia
runtime class outside a DaemonSet. Pods of one owner with the same image and needs are one workload. Judges no node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.answer.stack import image_needs
from dovetail.answer.stack.compatibility_rows import Rows
from dovetail.answer.stack.image_needs import ImageNeed
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import node_pools, workload_annotations

RUNTIME_CLASS: Final = "nvidia"
NVIDIA_CLASSES: Final = "nvidia.com"  # how the names of NVIDIA's device classes end
TEMPLATE_HASH: Final = "pod-template-hash"  # of a Deployment's ReplicaSets
POD: Final = "Pod"


class GpuWorkload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Containers of one workload that need the same."""

    namespace: str
    kind: str
    name: str
    container: str
    need: ImageNeed
    pods: int
    nodes: dict[str, int]  # pods by node; the empty name is that of pods without a node

    @property
    def id(self) -> str:
        """As messages name it."""
        return f"{self.kind.lower()}/{self.name}"


class _Variable(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    env: tuple[_Variable, ...] = ()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    spec: _Spec = _Spec()


class _Key(NamedTuple):
    namespace: str
    kind: str
    name: str
    container: str
    need: ImageNeed


def workloads(objects: object_set.ObjectSet, rows: Rows) -> tuple[GpuWorkload, ...]:
    """All work that uses GPUs and has not ended, by namespace and name. Linear in pods."""
    gpu_claims = _gpu_claims(objects)
    needs: dict[tuple[object, ...], ImageNeed] = {}
    nodes_of: dict[_Key, dict[str, int]] = {}
    for stored in objects.listed(registry.POD.name):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        names = _gpu_containers(pod, gpu_claims)
        if not names:
            continue
        kind, owner = _owner(pod)
        environments = _environments(stored)
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            if container.name not in names:
                continue
            need = _need(pod, container, environments.get(container.name, {}), rows, needs)
            key = _Key(pod.metadata.namespace, kind, owner, container.name, need)
            by_node = nodes_of.setdefault(key, {})
            by_node[pod.spec.node_name] = by_node.get(pod.spec.node_name, 0) + 1
    ordered = sorted(nodes_of.items(), key=lambda item: (*item[0][:4], item[0].need.image))
    return tuple(
        GpuWorkload(
            namespace=key.namespace,
            kind=key.kind,
            name=key.name,
            container=key.container,
            need=key.need,
            pods=sum(by_node.values()),
            nodes=dict(sorted(by_node.items())),
        )
        for key, by_node in ordered
    )


def _need(
    pod: pods.Pod,
    container: pods.Container,
    environment: Mapping[str, str],
    rows: Rows,
    needs: dict[tuple[object, ...], ImageNeed],
) -> ImageNeed:
    """What a container needs; pods of one template share the answer."""
    annotation = pod.metadata.annotations.get(workload_annotations.CUDA, "")
    key = (container.image, annotation, tuple(sorted(environment.items())))
    need = needs.get(key)
    if need is None:
        need = image_needs.of_container(
            container.image,
            annotations=pod.metadata.annotations,
            environment=environment,
            rows=rows,
        )
        needs[key] = need
    return need


def _gpu_containers(pod: pods.Pod, gpu_claims: frozenset[tuple[str, str]]) -> set[str]:
    """The containers that get a GPU."""
    claimed = _claimed(pod, gpu_claims)
    named = {
        container.name
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if _uses_gpu(container.resources, claimed)
    }
    if named:
        return named
    is_of_daemon_set = any(
        owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references
    )
    if pod.spec.runtime_class_name == RUNTIME_CLASS and not is_of_daemon_set:
        return {container.name for container in pod.spec.containers}
    return set()


def _uses_gpu(resources: pods.ResourceRequirements, claimed: set[str]) -> bool:
    if any(claim.name in claimed for claim in resources.claims):
        return True
    return any(
        node_pools.is_gpu_resource(name) and name.startswith("nvidia.com/")
        for name in (*resources.limits, *resources.requests)
    )


def _claimed(pod: pods.Pod, gpu_claims: frozenset[tuple[str, str]]) -> set[str]:
    """The entries of the pod's resourceClaims that are for GPUs."""
    created = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    entries = set()
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or created.get(entry.name)
        template = entry.resource_claim_template_name
        namespace = pod.metadata.namespace
        if (namespace, name) in gpu_claims or (namespace, f"template:{template}") in gpu_claims:
            entries.add(entry.name)
    return entries


def _gpu_claims(objects: object_set.ObjectSet) -> frozenset[tuple[str, str]]:
    """Claims and templates for NVIDIA's GPUs: by the class that they request, or by the driver that served them."""
    names = set()
    for stored in objects.listed(registry.CLAIM.name):
        claim = stored.struct
        if not isinstance(claim, claims.ResourceClaim):
            continue
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        is_served = any(result.driver == node_pools.GPU_DRIVER for result in results)
        if is_served or _requests_gpu(claim.spec):
            names.add((claim.metadata.namespace, claim.metadata.name))
    for stored in objects.listed(registry.TEMPLATE.name):
        template = stored.struct
        if isinstance(template, claims.ResourceClaimTemplate) and _requests_gpu(template.spec.spec):
            names.add((template.metadata.namespace, f"template:{template.metadata.name}"))
    return frozenset(names)


def _requests_gpu(spec: claims.ResourceClaimSpec) -> bool:
    return any(name.endswith(NVIDIA_CLASSES) for name in _classes(spec))


def _classes(spec: claims.ResourceClaimSpec) -> Iterator[str]:
    for request in spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        for alternative in request.first_available:
            yield alternative.device_class_name


def _environments(stored: codec.Stored) -> dict[str, dict[str, str]]:
    """The variables that the pod itself sets, by container; those of the image are not visible."""
    try:
        spec = codec.decode_struct(_Head, stored.document).spec
    except errors.InputError:
        return {}
    return {
        container.name: {variable.name: variable.value for variable in container.env}
        for container in (*spec.containers, *spec.init_containers)
        if container.env
    }


def _owner(pod: pods.Pod) -> tuple[str, str]:
    """Kind and name of what created the pod; a Deployment instead of its ReplicaSet."""
    for owner in pod.metadata.owner_references:
        if not owner.controller:
            continue
        suffix = f"-{pod.metadata.labels.get(TEMPLATE_HASH, '')}"
        if owner.kind == "ReplicaSet" and suffix != "-" and owner.name.endswith(suffix):
            return "Deployment", owner.name.removesuffix(suffix)
        return owner.kind, owner.name
    return POD, pod.metadata.name
