"""Builds the claims of a scenario's pods: whole GPUs, parts of GPUs, a part of a NUMA zone.

Given the pods' requests; a claim belongs to its pod as if created from a template. The claims that a scenario names are
built too. Never says which devices a claim is allocated.
"""

from __future__ import annotations

import decimal
from typing import Final

from dovetail import errors
from dovetail.kubetypes import meta
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.model import gangs
from dovetail.quantity import quantity
from dovetail.replay.scenarios import scenario_format, scenario_nodes

NAMESPACE: Final = "default"
GPU: Final = "gpu"
NUMA: Final = "numa"
REQUEST: Final = "devices"
GUARANTEED: Final = scenario_nodes.GUARANTEED
FRACTION: Final = "dovetail.dev/gpu-fraction"  # requested of each GPU; the claim has it as memory


def own(
    pod: scenario_format.Pod, scenario: scenario_format.Scenario
) -> dict[str, claims.ResourceClaim]:
    """The pod's own claims without an allocation, by role."""
    claims_by_role: dict[str, claims.ResourceClaim] = {}
    if pod.request.gpu or pod.request.is_share:
        claims_by_role[GPU] = _claim(pod, GPU, _gpu_request(pod.request, scenario))
    if pod.qos == GUARANTEED and scenario_nodes.has_zones(scenario):
        claims_by_role[NUMA] = _claim(pod, NUMA, _zone_request(pod.request))
    return claims_by_role


def shared(claim: scenario_format.Claim) -> claims.ResourceClaim:
    """A claim that pods share, without an allocation."""
    request = claims.DeviceRequest(
        name=REQUEST,
        exactly=claims.ExactDeviceRequest(
            device_class_name=scenario_nodes.class_name(claim.device_class),
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=claim.count,
        ),
    )
    name = shared_name(claim.name)
    labels = {} if claim.queue is None else {gangs.QUEUE_LABEL: claim.queue}
    return claims.ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=meta.ObjectMeta(
            namespace=NAMESPACE, name=name, uid=f"claim/{name}", labels=labels
        ),
        spec=claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=(request,))),
    )


def own_name(pod: str, role: str) -> str:
    """The name of a pod's own claim."""
    return f"own.{pod}.{role}"


def shared_name(claim: str) -> str:
    """The name of a shared claim, distinct from any pod's own."""
    return f"shared.{claim}"


def uid(pod: str) -> str:
    """The UID of a pod."""
    return f"pod/{pod}"


def share_mib(request: scenario_format.Request, memory_mib: int) -> int:
    """The memory of the requested part of a GPU of this size."""
    if request.gpu_memory_mib is not None:
        return request.gpu_memory_mib
    return int(decimal.Decimal(repr(request.gpu_fraction)) * memory_mib)


def _claim(
    pod: scenario_format.Pod, role: str, request: claims.DeviceRequest
) -> claims.ResourceClaim:
    name = own_name(pod.name, role)
    owner = meta.OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=uid(pod.name), controller=True
    )
    constraints: tuple[claims.DeviceConstraint, ...] = ()
    if role == GPU and pod.request.is_share and pod.request.gpu_devices > 1:
        constraints = (claims.DeviceConstraint(distinct_attribute=scenario_nodes.INDEX),)
    fraction = pod.request.gpu_fraction if role == GPU else None
    return claims.ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=meta.ObjectMeta(
            namespace=NAMESPACE,
            name=name,
            uid=f"claim/{name}",
            annotations={} if fraction is None else {FRACTION: repr(fraction)},
            owner_references=(owner,),
        ),
        spec=claims.ResourceClaimSpec(
            devices=claims.DeviceClaim(requests=(request,), constraints=constraints)
        ),
    )


def _gpu_request(
    request: scenario_format.Request, scenario: scenario_format.Scenario
) -> claims.DeviceRequest:
    if not request.is_share:
        return _exactly(request.gpu, _selector(scenario_nodes.USABLE), {})
    if request.gpu_memory_mib is not None:
        capacity = {scenario_nodes.MEMORY: scenario_nodes.mebibytes(request.gpu_memory_mib)}
        return _exactly(request.gpu_devices, _selector(scenario_nodes.SHAREABLE), capacity)
    sizes = sorted({node.gpu.memory_mib for node in scenario.nodes if node.gpu.count}) or [100]
    if len(sizes) == 1:
        capacity = {scenario_nodes.MEMORY: scenario_nodes.mebibytes(share_mib(request, sizes[0]))}
        return _exactly(request.gpu_devices, _selector(scenario_nodes.SHAREABLE), capacity)
    if len(sizes) > claims.MAX_FIRST_AVAILABLE:
        limit = claims.MAX_FIRST_AVAILABLE
        raise errors.InputError(
            f"nodes: gpu_fraction with GPUs of {len(sizes)} sizes; at most {limit} are supported"
        )
    # A fraction is a different amount on each GPU size, and exactly one of these subrequests matches a device.
    return claims.DeviceRequest(
        name=REQUEST, first_available=tuple(_sized(request, size) for size in sizes)
    )


def _sized(request: scenario_format.Request, memory_mib: int) -> claims.DeviceSubRequest:
    whole = f'quantity("{memory_mib}Mi")'
    is_this_size = f'device.capacity["{scenario_nodes.GPU_DRIVER}"].{scenario_nodes.MEMORY}.compareTo({whole}) == 0'
    capacity = {scenario_nodes.MEMORY: scenario_nodes.mebibytes(share_mib(request, memory_mib))}
    return claims.DeviceSubRequest(
        name=f"of-{memory_mib}-mib",
        device_class_name=scenario_nodes.GPU_CLASS,
        selectors=(*_selector(scenario_nodes.SHAREABLE), *_selector(is_this_size)),
        allocation_mode=claims.MODE_EXACT_COUNT,
        count=request.gpu_devices,
        capacity=claims.CapacityRequirements(requests=capacity),
    )


def _zone_request(request: scenario_format.Request) -> claims.DeviceRequest:
    capacity = {
        "cpu": scenario_nodes.exact(request.cpu),
        scenario_nodes.MEMORY: scenario_nodes.exact(request.memory),
    }
    return _exactly(1, (), capacity, device_class=scenario_nodes.NUMA_CLASS)


def _exactly(
    count: int,
    selectors: tuple[device_classes.DeviceSelector, ...],
    capacity: dict[str, quantity.Quantity],
    *,
    device_class: str = scenario_nodes.GPU_CLASS,
) -> claims.DeviceRequest:
    return claims.DeviceRequest(
        name=REQUEST,
        exactly=claims.ExactDeviceRequest(
            device_class_name=device_class,
            selectors=selectors,
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=count,
            capacity=claims.CapacityRequirements(requests=capacity) if capacity else None,
        ),
    )


def _selector(expression: str) -> tuple[device_classes.DeviceSelector, ...]:
    return (
        device_classes.DeviceSelector(cel=device_classes.CELDeviceSelector(expression=expression)),
    )
