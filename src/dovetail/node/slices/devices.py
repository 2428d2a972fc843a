"""Which devices a GPU offers, and under which names: itself, its MIG devices, or all it could be cut into.

Given the facts of one GPU, returns devices. Offers nothing that needs a reset of the GPU first. Never allocates.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dovetail.kubetypes.resource import slices
from dovetail.node.inventory import Gpu, Inventory, MigDevice, MigProfile, Placement
from dovetail.node.slices import attributes, capacities
from dovetail.node.slices.options import ShareMode, SliceOptions

# MIG mode of these changes without a reset; on Ampere it does not.
RESETLESS_ARCHITECTURES: Final = frozenset({"Hopper", "Blackwell", "Rubin"})

_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9-]")


def mig_name(minor: int, profile: MigProfile, start: int) -> str:
    """Such as gpu-0-mig-1g10gb-me-20-3."""
    plain = profile.name.lower().replace(".", "")
    label = _NOT_IN_NAMES.sub("-", plain).strip("-")
    return f"gpu-{minor}-mig-{label}-{profile.gi_profile_id}-{start}"


def counter_set_name(gpu: Gpu) -> str:
    """The set that the GPU and its partitions draw on."""
    return f"{gpu.name}-counter-set"


def switches_mig_mode(gpu: Gpu) -> bool:
    """Whether MIG mode can be switched while the GPU is idle, without a reset."""
    return gpu.is_mig_capable and not gpu.is_vgpu and gpu.architecture in RESETLESS_ARCHITECTURES


def is_partitioned_on_demand(gpu: Gpu) -> bool:
    """Whether MIG devices can be made for a claim: MIG mode is on, or can be switched on."""
    if not gpu.is_mig_capable or gpu.is_vgpu or not gpu.mig_profiles:
        return False
    return gpu.is_mig_enabled or switches_mig_mode(gpu)


def offered(gpu: Gpu, inventory: Inventory, options: SliceOptions) -> list[slices.Device]:
    """The devices of one GPU, sorted by name as text: the order in which a scheduler tries them."""
    if options.is_mig_dynamic and is_partitioned_on_demand(gpu):
        devices = _candidates(gpu, inventory, options)
    elif gpu.is_mig_enabled:
        devices = _existing(gpu, inventory)
    else:
        amounts = capacities.of_whole_gpu(gpu)
        devices = [_whole(gpu, inventory, options, amounts=amounts)]
    if options.shares.mode is not ShareMode.DISABLED:
        devices = [_shared(device, options) for device in devices]
    return sorted(devices, key=lambda device: device.name)


def counter_sets(gpu: Gpu, options: SliceOptions) -> list[slices.CounterSet]:
    """What the GPU's candidates draw on; none where there are no candidates."""
    if not (options.is_mig_dynamic and is_partitioned_on_demand(gpu)):
        return []
    return [slices.CounterSet(name=counter_set_name(gpu), counters=_all_counters(gpu))]


def _candidates(gpu: Gpu, inventory: Inventory, options: SliceOptions) -> list[slices.Device]:
    """All partitions that could be made, and the whole GPU where its MIG mode is off or can be switched off."""
    devices = [
        _candidate(gpu, profile, place, inventory)
        for profile in gpu.mig_profiles
        for place in profile.placements
    ]
    if switches_mig_mode(gpu) or not gpu.is_mig_enabled:
        whole = _whole(gpu, inventory, options, amounts=capacities.largest(gpu))
        consumption = _consumption(gpu, _all_counters(gpu))
        devices.append(msgspec.structs.replace(whole, consumes_counters=consumption))
    return devices


def _candidate(
    gpu: Gpu, profile: MigProfile, place: Placement, inventory: Inventory
) -> slices.Device:
    """Has no uuid: the MIG device does not exist yet."""
    amounts = capacities.of_profile(profile)
    return slices.Device(
        name=mig_name(gpu.minor, profile, place.start),
        attributes=attributes.of_mig(gpu, profile, inventory),
        capacity=capacities.capacities(amounts),
        consumes_counters=_consumption(gpu, capacities.counters(amounts, place)),
    )


def _existing(gpu: Gpu, inventory: Inventory) -> list[slices.Device]:
    """The MIG devices an administrator made, as far as one compute instance fills the GPU instance."""
    profiles = {profile.gi_profile_id: profile for profile in gpu.mig_profiles}
    whole = [mig for mig in gpu.mig_devices if mig.uuid and mig.is_whole]
    usable = [mig for mig in whole if mig.gi_profile_id in profiles]
    return [_made(gpu, mig, profiles[mig.gi_profile_id], inventory) for mig in usable]


def _made(gpu: Gpu, mig: MigDevice, profile: MigProfile, inventory: Inventory) -> slices.Device:
    amounts = capacities.of_profile(profile) | capacities.memory_slices(mig.placement)
    uuid = {"uuid": slices.DeviceAttribute(string_value=mig.uuid)}
    return slices.Device(
        name=mig_name(gpu.minor, profile, mig.placement.start),
        attributes=attributes.of_mig(gpu, profile, inventory) | uuid,
        capacity=capacities.capacities(amounts),
    )


def _whole(
    gpu: Gpu, inventory: Inventory, options: SliceOptions, *, amounts: capacities.Amounts
) -> slices.Device:
    published = attributes.of_gpu(gpu, inventory)
    if options.has_own_attributes:
        published |= attributes.own_of_gpu(gpu, inventory)
    return slices.Device(
        name=gpu.name, attributes=published, capacity=capacities.capacities(amounts)
    )


def _shared(device: slices.Device, options: SliceOptions) -> slices.Device:
    parts = capacities.shared(device.capacity, options.shares)
    is_whole = device.attributes["type"].string_value == "gpu"
    is_by_memory = options.shares.mode is ShareMode.MEMORY
    if options.has_own_attributes and is_whole and is_by_memory:
        parts |= capacities.share_of_gpu()
    return msgspec.structs.replace(device, capacity=parts, allow_multiple_allocations=True)


def _consumption(
    gpu: Gpu, counters: capacities.Counters
) -> tuple[slices.DeviceCounterConsumption, ...]:
    name = counter_set_name(gpu)
    return (slices.DeviceCounterConsumption(counter_set=name, counters=counters),)


def _all_counters(gpu: Gpu) -> capacities.Counters:
    return capacities.counters(capacities.largest(gpu), capacities.all_memory_slices(gpu))
