"""Which part of which GPU a device of an allocation names: the names NVIDIA's driver publishes, read backwards.

Given a name and the inventory, returns the device or the reason why this node has no such device. A name says what
was allocated; the inventory has the last word on whether it exists. Never reads the hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.node.inventory import Gpu, Inventory, MigProfile, Placement

_WHOLE: Final = re.compile(r"gpu-([0-9]{1,4})")
# Minor number, profile, GPU instance profile id, first memory slice.
_PARTITION: Final = re.compile(r"gpu-([0-9]{1,4})-mig-(.+)-([0-9]{1,4})-([0-9]{1,4})")
_PASSTHROUGH: Final = re.compile(r"gpu-vfio-[0-9]+")


class WholeGpu(msgspec.Struct, frozen=True, gc=False):
    """A GPU with all of its memory slices."""

    gpu: Gpu


class Partition(msgspec.Struct, frozen=True, gc=False):
    """A MIG device at one placement of a GPU, whether or not it exists now."""

    gpu: Gpu
    profile: MigProfile
    placement: Placement


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A name without a device on this node, and why."""

    reason: str


Device = WholeGpu | Partition


def device_of(name: str, inventory: Inventory) -> Device | Unknown:
    """The device of this name."""
    if whole := _WHOLE.fullmatch(name):
        gpu = inventory.gpu(int(whole[1]))
        return WholeGpu(gpu) if gpu is not None else _without_gpu(name, inventory)
    if partition := _PARTITION.fullmatch(name):
        gpu = inventory.gpu(int(partition[1]))
        if gpu is None:
            return _without_gpu(name, inventory)
        return _partition(name, gpu, gi_profile_id=int(partition[3]), start=int(partition[4]))
    if _PASSTHROUGH.fullmatch(name):
        return Unknown(f"device {name}: passing GPUs through to virtual machines is not supported")
    return Unknown(f"device {name}: no device of this node is named like that")


def memory_bytes(device: Device) -> int:
    """The memory of a device."""
    return device.profile.memory_bytes if isinstance(device, Partition) else device.gpu.memory_bytes


def minors_of(names: Iterable[str], inventory: Inventory) -> set[int]:
    """The minor numbers in names, as far as they belong to GPUs of this node."""
    matches = [_PARTITION.fullmatch(name) or _WHOLE.fullmatch(name) for name in names]
    named = {int(match[1]) for match in matches if match}
    return named & {gpu.minor for gpu in inventory.gpus}


def partition_name(minor: int, profile: MigProfile, start: int) -> str:
    """Such as gpu-0-mig-1g10gb-me-20-3. Dots are dropped and a plus becomes a dash, as NVIDIA's driver does."""
    text = profile.name.replace(".", "").replace("+", "-")
    return f"gpu-{minor}-mig-{text}-{profile.gi_profile_id}-{start}"


def _partition(name: str, gpu: Gpu, *, gi_profile_id: int, start: int) -> Partition | Unknown:
    profiles = [profile for profile in gpu.mig_profiles if profile.gi_profile_id == gi_profile_id]
    if not profiles:
        known = ", ".join(str(profile.gi_profile_id) for profile in gpu.mig_profiles) or "none"
        return Unknown(
            f"device {name}: {gpu.name} ({gpu.product_name}) has no GPU instance profile {gi_profile_id}; "
            f"its profiles: {known}"
        )
    profile = profiles[0]
    expected = partition_name(gpu.minor, profile, start)
    if expected != name:
        return Unknown(
            f"device {name}: GPU instance profile {gi_profile_id} of {gpu.name} is {profile.name}, "
            f"so the device is named {expected}"
        )
    for placement in profile.placements:
        if placement.start == start:
            return Partition(gpu, profile, placement)
    starts = ", ".join(str(placement.start) for placement in profile.placements)
    return Unknown(
        f"device {name}: {profile.name} cannot start at memory slice {start}; it can at {starts}"
    )


def _without_gpu(name: str, inventory: Inventory) -> Unknown:
    names = ", ".join(gpu.name for gpu in inventory.gpus) or "no GPU"
    return Unknown(
        f"device {name}: the driver of this node does not report that GPU, it may be lost or removed; "
        f"it reports {names}"
    )
