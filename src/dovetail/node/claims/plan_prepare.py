"""Decides what preparing a claim takes: its devices, how they are shared, and the steps on the hardware.

Given the claim, the node's inventory, what its GPUs are right now and the checkpoint; returns a plan or a refusal with
the reason. Pure: the same input gives the same plan. Never touches the hardware or the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dovetail import errors
from dovetail.kubetypes.resource import claims
from dovetail.node.claims import (
    checkpoint,
    configs,
    device_names,
    instructions,
    plan_sharing,
    silicon,
)
from dovetail.node.claims.instructions import Instruction, LiveGpu
from dovetail.node.inventory import Inventory, MigDevice
from dovetail.quantity import quantity

SHARES: Final = "shares"  # NVIDIA's capacity for a fixed number of shares

_POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"  # resource.k8s.io/v1


class MigPolicy(StrEnum):
    """Who makes MIG devices."""

    DYNAMIC = "dynamic"  # the agent, for a claim
    STATIC = "static"  # an administrator; the agent uses what is there
    OFF = "off"


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How this node is run."""

    pool: str  # the node's name
    mig: MigPolicy = MigPolicy.DYNAMIC
    share_count: int | None = None  # shares per device where their number is fixed


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The claim cannot be prepared now, and why."""

    reason: str


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What to record before the first step, and the steps."""

    claim: checkpoint.Claim
    steps: tuple[Instruction, ...]


def results_of(claim: claims.ResourceClaim) -> tuple[claims.DeviceRequestAllocationResult, ...]:
    """The devices of our driver that were allocated."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(result for result in results if result.driver == configs.DRIVER)


def plan_prepare(
    claim: claims.ResourceClaim,
    *,
    settings: Settings,
    inventory: Inventory,
    live: Mapping[int, LiveGpu],
    known: checkpoint.Checkpoint,
) -> Plan | Refused:
    """How to prepare a claim that is not in the checkpoint. `live` has every GPU its devices name."""
    try:
        return _plan(claim, settings=settings, inventory=inventory, live=live, known=known)
    except errors.InputError as error:
        return Refused(str(error))


def _plan(
    claim: claims.ResourceClaim,
    *,
    settings: Settings,
    inventory: Inventory,
    live: Mapping[int, LiveGpu],
    known: checkpoint.Checkpoint,
) -> Plan | Refused:
    allocation = claim.status.allocation
    assert allocation is not None, "an allocated claim was expected"
    scoped = configs.of_allocation(allocation.devices.config)
    others = [other for uid, other in known.claims.items() if uid != claim.metadata.uid]
    held: list[plan_sharing.Member] = []
    capacities: dict[str, silicon.Capacity] = {}
    for result in results_of(claim):
        device = device_names.device_of(result.device, inventory)
        if isinstance(device, device_names.Unknown):
            return Refused(device.reason)
        refusal = _refusal(result, device, settings=settings, live=live)
        if refusal is not None:
            return Refused(refusal)
        capacities[result.device] = _capacity(device, settings)
        facts = _held(result, device, settings=settings, live=live, others=others)
        held.append(plan_sharing.Member(facts, device))
    grouped = plan_sharing.with_sharing(held, scoped)

    conflict = _conflict(grouped.devices, others=others, live=live, capacities=capacities)
    conflict = conflict or plan_sharing.disagreement(grouped, others)
    if conflict is not None:
        return Refused(conflict)
    record = checkpoint.Claim(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state=checkpoint.State.STARTED,
        devices=grouped.devices,
        sharing=grouped.sharing,
        pod_claim_name=claim.metadata.annotations.get(_POD_CLAIM_NAME, ""),
    )
    return Plan(record, _steps(record, live, settings))


def _refusal(
    result: claims.DeviceRequestAllocationResult,
    device: device_names.Device,
    *,
    settings: Settings,
    live: Mapping[int, LiveGpu],
) -> str | None:
    """What forbids this device, apart from other claims."""
    name = result.device
    if result.pool != settings.pool:
        return (
            f"device {name} is allocated from pool {result.pool}; this node serves {settings.pool}"
        )
    is_partition = isinstance(device, device_names.Partition)
    if is_partition and result.admin_access:
        return f"device {name}: admin access is for whole GPUs, not for MIG devices"
    if is_partition and settings.mig is MigPolicy.OFF:
        return f"device {name}: MIG devices are switched off on this node (--mig off)"
    gpu = live[device.gpu.minor]
    is_exclusive = not is_partition and not result.admin_access
    if is_exclusive and gpu.is_mig_enabled and settings.mig is not MigPolicy.DYNAMIC:
        return (
            f"device {name}: MIG mode is on, so the whole GPU cannot be used; switch it off first"
        )
    return None


def _held(
    result: claims.DeviceRequestAllocationResult,
    device: device_names.Device,
    *,
    settings: Settings,
    live: Mapping[int, LiveGpu],
    others: list[checkpoint.Claim],
) -> checkpoint.HeldDevice:
    consumed = {
        silicon.unqualified(name): amount.text for name, amount in result.consumed_capacity.items()
    }
    facts = checkpoint.HeldDevice(
        request=result.request,
        pool=result.pool,
        device=result.device,
        gpu_uuid=device.gpu.uuid,
        gpu_minor=device.gpu.minor,
        pci_bus_id=device.gpu.pci_bus_id,
        share_id=result.share_id,
        is_admin=bool(result.admin_access),
        consumed=consumed,
    )
    if isinstance(device, device_names.WholeGpu):
        return facts
    instances = live[device.gpu.minor].instances
    is_made_here = settings.mig is MigPolicy.DYNAMIC
    return msgspec.structs.replace(
        facts,
        first_slice=device.placement.start,
        slice_count=device.placement.size,
        gi_profile_id=device.profile.gi_profile_id,
        profile=device.profile.name,
        is_made_here=is_made_here,
        instance=_shared_instance(result, others) if is_made_here else _static(device, instances),
    )


def _shared_instance(
    result: claims.DeviceRequestAllocationResult, others: list[checkpoint.Claim]
) -> checkpoint.Instance | None:
    """The instance that an earlier share of the same MIG device made."""
    if result.share_id is None:
        return None
    for other in others:
        for held in other.devices:
            if held.device == result.device and held.share_id is not None and held.instance:
                return held.instance
    return None


def _static(
    device: device_names.Partition, instances: tuple[MigDevice, ...]
) -> checkpoint.Instance:
    for instance in instances:
        fits = instance.gi_profile_id == device.profile.gi_profile_id
        if fits and instance.placement.start == device.placement.start and instance.uuid:
            assert instance.ci_id is not None, "an instance with a uuid has a compute instance"
            return checkpoint.Instance(
                uuid=instance.uuid, gi_id=instance.gi_id, ci_id=instance.ci_id
            )
    raise errors.InputError(
        f"{device.gpu.name} has no MIG device {device.profile.name} at memory slice {device.placement.start} now; "
        "on this node an administrator makes them (--mig static)"
    )


def _conflict(
    devices: tuple[checkpoint.HeldDevice, ...],
    *,
    others: list[checkpoint.Claim],
    live: Mapping[int, LiveGpu],
    capacities: Mapping[str, silicon.Capacity],
) -> str | None:
    """What else uses the silicon."""
    conflict = silicon.conflict_among(devices)
    if conflict is not None:
        return conflict
    claimed = {
        held.instance.uuid
        for other in others
        for held in other.devices
        if held.instance is not None
    }
    for device in devices:
        if device.instance is not None:
            claimed.add(device.instance.uuid)
    for device in devices:
        gpu = live[device.gpu_minor]
        foreign = [instance for instance in gpu.instances if instance.uuid not in claimed]
        conflict = silicon.conflict_with_claims(device, others)
        conflict = conflict or silicon.conflict_with_instances(device, foreign)
        if conflict is not None:
            return conflict
    names = {device.device for device in devices}
    shared = [held for other in others for held in other.devices if held.device in names]
    return silicon.overcommitment(devices, shared, capacities)


def _steps(
    record: checkpoint.Claim, live: Mapping[int, LiveGpu], settings: Settings
) -> tuple[Instruction, ...]:
    steps: list[Instruction] = []
    is_dynamic = settings.mig is MigPolicy.DYNAMIC
    for index, device in enumerate(record.devices):
        gpu = live[device.gpu_minor]
        if device.slice_count and device.is_made_here and device.instance is None:
            enable = instructions.EnableMig(gpu.minor, gpu.gpu_uuid)
            if not gpu.is_mig_enabled and enable not in steps:
                steps.append(enable)
            assert device.gi_profile_id is not None, "a partition has a profile"
            create = instructions.CreateInstance(
                index, gpu.minor, device.gi_profile_id, device.first_slice
            )
            steps.append(create)
        elif not device.slice_count and gpu.is_mig_enabled and is_dynamic and not device.is_admin:
            steps.append(instructions.DisableMig(gpu.minor, gpu.gpu_uuid))
    steps.extend(plan_sharing.steps(record))
    return tuple(dict.fromkeys(steps))


def _capacity(device: device_names.Device, settings: Settings) -> silicon.Capacity:
    memory_bytes = device_names.memory_bytes(device)
    capacity = {
        silicon.MEMORY: quantity.Quantity.from_int(memory_bytes, quantity.Format.BINARY_SI),
        silicon.SHARE: quantity.Quantity.from_int(1),
    }
    if settings.share_count is not None:
        capacity[SHARES] = quantity.Quantity.from_int(settings.share_count)
    return capacity
