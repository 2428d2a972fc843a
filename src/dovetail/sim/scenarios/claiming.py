"""The claims pods of a scenario bring along: whole GPUs, parts of GPUs, a part of a NUMA zone.

Given what pods ask for; a claim belongs to its pod as if made from a template. Claims that a scenario names itself are
made too. Never says which devices serve a claim.
"""

from __future__ import annotations

import decimal
from typing import Final

from dovetail import errors
from dovetail.model import claims, classes, gangs, meta, quantity
from dovetail.sim.scenarios import machines, reading

NAMESPACE: Final = "default"
GPU: Final = "gpu"
NUMA: Final = "numa"
REQUEST: Final = "devices"
GUARANTEED: Final = machines.GUARANTEED
FRACTION: Final = "dovetail.dev/gpu-fraction"  # what was asked of each GPU, before it became an amount of memory


def own(pod: reading.Pod, scenario: reading.Scenario) -> dict[str, claims.ResourceClaim]:
    """The pod's own claims without devices, by the name the pod gives them."""
    found: dict[str, claims.ResourceClaim] = {}
    if pod.request.gpu or pod.request.is_share:
        found[GPU] = _claim(pod, GPU, _gpu_request(pod.request, scenario))
    if pod.qos == GUARANTEED and machines.has_zones(scenario):
        found[NUMA] = _claim(pod, NUMA, _zone_request(pod.request))
    return found


def shared(claim: reading.Claim) -> claims.ResourceClaim:
    """A claim pods name, without devices."""
    request = claims.DeviceRequest(
        name=REQUEST,
        exactly=claims.ExactDeviceRequest(
            device_class_name=machines.class_name(claim.device_class),
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=claim.count,
        ),
    )
    name = shared_name(claim.name)
    labels = {} if claim.queue is None else {gangs.QUEUE_LABEL: claim.queue}
    return claims.ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=meta.ObjectMeta(namespace=NAMESPACE, name=name, uid=f"claim/{name}", labels=labels),
        spec=claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=(request,))),
    )


def own_name(pod: str, role: str) -> str:
    """The name of a claim a pod brings along."""
    return f"own.{pod}.{role}"


def shared_name(claim: str) -> str:
    """The name of a claim the scenario names: never that of a pod's own."""
    return f"shared.{claim}"


def uid(pod: str) -> str:
    """The identity of a pod."""
    return f"pod/{pod}"


def share_mib(request: reading.Request, memory_mib: int) -> int:
    """What a part of a GPU of this size comes to."""
    if request.gpu_memory_mib is not None:
        return request.gpu_memory_mib
    return int(decimal.Decimal(repr(request.gpu_fraction)) * memory_mib)


def _claim(pod: reading.Pod, role: str, request: claims.DeviceRequest) -> claims.ResourceClaim:
    name = own_name(pod.name, role)
    owner = meta.OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=uid(pod.name), controller=True)
    constraints: tuple[claims.DeviceConstraint, ...] = ()
    if role == GPU and pod.request.is_share and pod.request.gpu_devices > 1:
        constraints = (claims.DeviceConstraint(distinct_attribute=machines.INDEX),)
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
        spec=claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=(request,), constraints=constraints)),
    )


def _gpu_request(request: reading.Request, scenario: reading.Scenario) -> claims.DeviceRequest:
    if not request.is_share:
        return _exactly(request.gpu, _selector(machines.USABLE), {})
    if request.gpu_memory_mib is not None:
        wanted = {machines.MEMORY: machines.mebibytes(request.gpu_memory_mib)}
        return _exactly(request.gpu_devices, _selector(machines.SHAREABLE), wanted)
    sizes = sorted({node.gpu.memory_mib for node in scenario.nodes if node.gpu.count}) or [100]
    if len(sizes) == 1:
        wanted = {machines.MEMORY: machines.mebibytes(share_mib(request, sizes[0]))}
        return _exactly(request.gpu_devices, _selector(machines.SHAREABLE), wanted)
    if len(sizes) > claims.MAX_FIRST_AVAILABLE:
        limit = claims.MAX_FIRST_AVAILABLE
        raise errors.InputError(f"nodes: gpu_fraction with GPUs of {len(sizes)} sizes; at most {limit} are understood")
    # A fraction is another amount on each size of GPU, and exactly one of these suits any device.
    return claims.DeviceRequest(name=REQUEST, first_available=tuple(_sized(request, size) for size in sizes))


def _sized(request: reading.Request, memory_mib: int) -> claims.DeviceSubRequest:
    whole = f'quantity("{memory_mib}Mi")'
    is_this_size = f'device.capacity["{machines.GPU_DRIVER}"].{machines.MEMORY}.compareTo({whole}) == 0'
    wanted = {machines.MEMORY: machines.mebibytes(share_mib(request, memory_mib))}
    return claims.DeviceSubRequest(
        name=f"of-{memory_mib}-mib",
        device_class_name=machines.GPU_CLASS,
        selectors=(*_selector(machines.SHAREABLE), *_selector(is_this_size)),
        allocation_mode=claims.MODE_EXACT_COUNT,
        count=request.gpu_devices,
        capacity=claims.CapacityRequirements(requests=wanted),
    )


def _zone_request(request: reading.Request) -> claims.DeviceRequest:
    wanted = {"cpu": machines.exact(request.cpu), machines.MEMORY: machines.exact(request.memory)}
    return _exactly(1, (), wanted, device_class=machines.NUMA_CLASS)


def _exactly(
    count: int,
    selectors: tuple[classes.DeviceSelector, ...],
    wanted: dict[str, quantity.Quantity],
    *,
    device_class: str = machines.GPU_CLASS,
) -> claims.DeviceRequest:
    return claims.DeviceRequest(
        name=REQUEST,
        exactly=claims.ExactDeviceRequest(
            device_class_name=device_class,
            selectors=selectors,
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=count,
            capacity=claims.CapacityRequirements(requests=wanted) if wanted else None,
        ),
    )


def _selector(expression: str) -> tuple[classes.DeviceSelector, ...]:
    return (classes.DeviceSelector(cel=classes.CELDeviceSelector(expression=expression)),)
