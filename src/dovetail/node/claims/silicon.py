"""Whether two devices can be in use at the same time: by the silicon they stand for, not by their names.

Given devices of claims, returns the reason why one cannot be used beside the others, or None. Whole GPUs and partitions
overlap where they have memory slices of one GPU in common; the GPU is known by its uuid, since minor numbers can move.
Shares of one device fit while their consumed capacity does. Admin access uses no silicon. This is the last line against
double use, whoever allocated; it trusts no scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dovetail.node.claims import checkpoint
from dovetail.node.inventory import MigDevice
from dovetail.quantity import quantity

MEMORY: Final = "memory"
SHARE: Final = "dovetail.dev/share"  # a shareable device offers 1 of it

Capacity = Mapping[str, quantity.Quantity]  # of one device, by name


def overlap(first: checkpoint.HeldDevice, second: checkpoint.HeldDevice) -> bool:
    """Whether they have silicon in common."""
    if first.gpu_uuid != second.gpu_uuid:
        return False
    if not first.slice_count or not second.slice_count:
        return True  # a whole GPU has all slices
    first_end = first.first_slice + first.slice_count
    second_end = second.first_slice + second.slice_count
    return first.first_slice < second_end and second.first_slice < first_end


def conflict_among(devices: Sequence[checkpoint.HeldDevice]) -> str | None:
    """Why the devices of one claim cannot be used together."""
    for index, device in enumerate(devices):
        for earlier in devices[:index]:
            if _excludes(earlier, device):
                return (
                    f"its devices {earlier.device} and {device.device} are the same silicon of "
                    f"{device.gpu_uuid}"
                )
    return None


def conflict_with_claims(
    device: checkpoint.HeldDevice, claims: Iterable[checkpoint.Claim]
) -> str | None:
    """Why a device cannot be used beside those of other claims."""
    for claim in claims:
        for held in claim.devices:
            if _excludes(held, device):
                return (
                    f"device {device.device} is in use: the claim with uid {claim.uid} has {held.device}, the same "
                    f"silicon of {held.gpu_uuid}; it becomes free when that claim is unprepared"
                )
    return None


def conflict_with_instances(
    device: checkpoint.HeldDevice, foreign: Iterable[MigDevice]
) -> str | None:
    """Why a device cannot be used beside GPU instances of its GPU that the agent did not make."""
    if device.is_admin:
        return None
    for instance in foreign:
        first, size = instance.placement.start, instance.placement.size
        end = device.first_slice + device.slice_count
        if not device.slice_count or (device.first_slice < first + size and first < end):
            return (
                f"device {device.device}: GPU instance {instance.gi_id} (profile {instance.gi_profile_id}, memory "
                f"slices {first} to {first + size - 1}) on gpu-{instance.gpu_minor} was not made by the agent and is "
                f"left alone; destroy it with nvidia-smi mig -dgi to free its place"
            )
    return None


def overcommitment(
    devices: Iterable[checkpoint.HeldDevice],
    others: Iterable[checkpoint.HeldDevice],
    capacities: Mapping[str, Capacity],
) -> str | None:
    """Why the shares of a claim do not fit beside the shares others hold of the same devices."""
    taken: dict[tuple[str, str], quantity.Quantity] = {}
    for held in others:
        _add(taken, held)
    for device in devices:
        _add(taken, device)
        for name, capacity in capacities.get(device.device, {}).items():
            total = taken.get((device.device, name), quantity.ZERO)
            if total > capacity:
                return (
                    f"device {device.device}: the shares in use would take {total} of {name}, "
                    f"the device has {capacity}"
                )
    return None


def unqualified(name: str) -> str:
    """A capacity's name without the driver's own domain, which may be left out."""
    return name.removeprefix("gpu.nvidia.com/")


def _excludes(first: checkpoint.HeldDevice, second: checkpoint.HeldDevice) -> bool:
    if first.is_admin or second.is_admin or not overlap(first, second):
        return False
    are_shares = first.share_id is not None and second.share_id is not None
    return not (are_shares and first.device == second.device)


def _add(taken: dict[tuple[str, str], quantity.Quantity], device: checkpoint.HeldDevice) -> None:
    for name, amount in device.consumed.items():
        key = (device.device, unqualified(name))
        taken[key] = taken.get(key, quantity.ZERO).add(quantity.parse(amount))
