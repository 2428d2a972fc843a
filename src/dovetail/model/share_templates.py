"""Builds the claim template for a share of a GPU: memory of a GPU that several claims may use at once.

A share is another part of each size of GPU, so it has one alternative per size, the smallest GPU first. Memory is the
measure: a claim for a whole GPU takes all of it, so no part is given away twice. Where a GPU also offers
`dovetail.dev/share`, its part of the whole, the share takes the same part of that. Given the kinds of shareable GPUs.
Never says which GPU a pod gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

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
SHARE: Final = "dovetail.dev/share"  # of Dovetail's node agent, in steps of hundredths; NVIDIA's driver has none
SHAREABLE: Final = "device.allowMultipleAllocations"
_HAS_SHARE: Final = "'share' in device.capacity['dovetail.dev']"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Kind(NamedTuple):
    """GPUs of which a share is the same amount."""

    memory_bytes: int
    share_thousandths: int = 0  # how much of SHARE it offers; 0: none

    @property
    def has_share(self) -> bool:
        """Whether it offers SHARE too."""
        return self.share_thousandths > 0


def kinds_for(gpus_by_kind: Mapping[Kind, int]) -> tuple[Kind, ...]:
    """The kinds that a template has alternatives for, smallest first: as many as a request may have.

    If there are more, those of which the fewest GPUs exist are left out.
    """
    common_first = sorted(gpus_by_kind, key=lambda kind: (-gpus_by_kind[kind], kind))
    return tuple(sorted(common_first[: claims.MAX_FIRST_AVAILABLE]))


def template_for(
    name: str, share: gpu_shares.Share, *, pod: pods.Pod, kinds: tuple[Kind, ...]
) -> claims.ResourceClaimTemplate:
    """The template in the pod's namespace. It goes with the pod: by then the pod's claim exists."""
    owner = meta.OwnerReference(
        api_version=registry.CORE_V1, kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
    )
    constraints: tuple[claims.DeviceConstraint, ...] = ()
    if share.devices > 1:  # otherwise one GPU could serve several of the shares
        constraints = (claims.DeviceConstraint(requests=(REQUEST,), distinct_attribute=UUID),)
    devices = claims.DeviceClaim(requests=(_request(share, kinds),), constraints=constraints)
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


def _request(share: gpu_shares.Share, kinds: tuple[Kind, ...]) -> claims.DeviceRequest:
    if not share.fraction and not any(kind.has_share for kind in kinds):
        # The amount is the same on every size, also on those that join later.
        exactly = claims.ExactDeviceRequest(
            device_class_name=DEVICE_CLASS,
            selectors=(_selector(f"{SHAREABLE} && !({_HAS_SHARE})"),),
            allocation_mode=claims.MODE_EXACT_COUNT,
            count=share.devices,
            capacity=claims.CapacityRequirements(requests={MEMORY: _mebibytes(share.memory_mib)}),
        )
        return claims.DeviceRequest(name=REQUEST, exactly=exactly)
    alternatives = tuple(_alternative(share, kind) for kind in kinds)
    return claims.DeviceRequest(name=REQUEST, first_available=alternatives)


def _alternative(share: gpu_shares.Share, kind: Kind) -> claims.DeviceSubRequest:
    size = kind.memory_bytes
    memory, whole = _quantity(size), quantity.Quantity.from_milli(kind.share_thousandths)
    amounts = {MEMORY: _mebibytes(share.memory_of(size))}
    name = f"of-{str(memory).lower()}"
    tests = [
        SHAREABLE,
        f"device.capacity['{DRIVER}'].{MEMORY}.compareTo(quantity('{memory}')) == 0",
        f"!({_HAS_SHARE})",
    ]
    if kind.has_share:
        amount = share.hundredths_of(size) * kind.share_thousandths // 100
        amounts[SHARE] = quantity.Quantity.from_milli(amount)
        name = f"{name}-{kind.share_thousandths}"
        is_whole = f"device.capacity['dovetail.dev'].share.compareTo(quantity('{whole}')) == 0"
        tests[2:] = [_HAS_SHARE, is_whole]
    return claims.DeviceSubRequest(
        name=name,
        device_class_name=DEVICE_CLASS,
        selectors=(_selector(" && ".join(tests)),),
        allocation_mode=claims.MODE_EXACT_COUNT,
        count=share.devices,
        capacity=claims.CapacityRequirements(requests=amounts),
    )


def _mebibytes(number: int) -> quantity.Quantity:
    return quantity.parse(f"{number}Mi")


def _quantity(size: int) -> quantity.Quantity:
    mebibytes, rest = divmod(size, gpu_shares.MIB)
    return quantity.parse(str(size) if rest else f"{mebibytes}Mi")


def _selector(expression: str) -> device_classes.DeviceSelector:
    return device_classes.DeviceSelector(
        cel=device_classes.CELDeviceSelector(expression=expression)
    )
