"""Builds the claim template for a share of a GPU: memory of a GPU that several claims may use at once.

A fraction is another amount on each size of GPU, so it has one alternative per size, the smallest GPU first. Memory is
the only measure: a claim for a whole GPU takes all of it, so no part is given away twice. Given the sizes that
shareable GPUs have. Never says which GPU a pod gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.model import gpu_shares
from dovetail.quantity import quantity

DEVICE_CLASS: Final = "gpu.nvidia.com"
DRIVER: Final = "gpu.nvidia.com"
MEMORY: Final = "memory"  # the capacity, as NVIDIA's driver publishes it
REQUEST: Final = "gpu"
UUID: Final = "gpu.nvidia.com/uuid"
SHAREABLE: Final = "device.allowMultipleAllocations"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def sizes_for(gpus_by_size: Mapping[int, int]) -> tuple[int, ...]:
    """The sizes in bytes that a template has alternatives for, smallest first: as many as a request may have.

    If there are more, those of which the fewest GPUs exist are left out.
    """
    common_first = sorted(gpus_by_size, key=lambda size: (-gpus_by_size[size], size))
    return tuple(sorted(common_first[: claims.MAX_FIRST_AVAILABLE]))


def template_for(
    name: str, share: gpu_shares.Share, *, pod: pods.Pod, sizes: tuple[int, ...]
) -> claims.ResourceClaimTemplate:
    """The template in the pod's namespace. It goes with the pod: by then the pod's claim exists."""
    owner = meta.OwnerReference(
        api_version=registry.CORE_V1, kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
    )
    constraints: tuple[claims.DeviceConstraint, ...] = ()
    if share.devices > 1:  # otherwise one GPU could serve several of the shares
        constraints = (claims.DeviceConstraint(requests=(REQUEST,), distinct_attribute=UUID),)
    devices = claims.DeviceClaim(requests=(_request(share, sizes),), constraints=constraints)
    return claims.ResourceClaimTemplate(
        api_version=registry.RESOURCE_V1,
        kind=registry.TEMPLATE.name,
        metadata=meta.ObjectMeta(
            namespace=pod.metadata.namespace,
            name=name,
            labels={MANAGED_BY: "dovetail"},
            owner_references=(owner,),
        ),
        spec=claims.ResourceClaimTemplateSpec(spec=claims.ResourceClaimSpec(devices=devices)),
    )


def _request(share: gpu_shares.Share, sizes: tuple[int, ...]) -> claims.DeviceRequest:
    if not share.fraction:
        exactly = claims.ExactDeviceRequest(
            device_class_name=DEVICE_CLASS,
            selectors=(_selector(SHAREABLE),),
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=share.devices,
            capacity=_memory(share.memory_mib),
        )
        return claims.DeviceRequest(name=REQUEST, exactly=exactly)
    alternatives = tuple(_alternative(share, size) for size in sizes)
    return claims.DeviceRequest(name=REQUEST, first_available=alternatives)


def _alternative(share: gpu_shares.Share, size: int) -> claims.DeviceSubRequest:
    whole = _quantity(size)
    has_size = f"device.capacity['{DRIVER}'].{MEMORY}.compareTo(quantity('{whole}')) == 0"
    return claims.DeviceSubRequest(
        name=f"of-{str(whole).lower()}",
        device_class_name=DEVICE_CLASS,
        selectors=(_selector(f"{SHAREABLE} && {has_size}"),),
        allocation_mode=claims.MODE_EXACT_COUNT,
        count=share.devices,
        capacity=_memory(share.memory_of(size)),
    )


def _memory(mebibytes: int) -> claims.CapacityRequirements:
    return claims.CapacityRequirements(requests={MEMORY: quantity.parse(f"{mebibytes}Mi")})


def _quantity(size: int) -> quantity.Quantity:
    mebibytes, rest = divmod(size, gpu_shares.MIB)
    return quantity.parse(str(size) if rest else f"{mebibytes}Mi")


def _selector(expression: str) -> device_classes.DeviceSelector:
    return device_classes.DeviceSelector(
        cel=device_classes.CELDeviceSelector(expression=expression)
    )
