"""Decides what undoing a claim takes, whether it was prepared completely or only begun.

Given its record, the checkpoint and what its GPUs are right now; returns the steps that leave nothing of it, and touch
nothing that another claim uses. A GPU that is gone needs no steps: its partitions and modes went with it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.node.claims import checkpoint, instructions
from dovetail.node.claims.instructions import Instruction, LiveGpu
from dovetail.node.inventory import ComputeMode, TimeSlice


def plan_undo(
    claim: checkpoint.Claim,
    *,
    live: Mapping[str, LiveGpu],
    known: checkpoint.Checkpoint,
    unmade: frozenset[int] = frozenset(),
) -> tuple[Instruction, ...]:
    """The steps, in order. `live` is by GPU uuid; `unmade` are devices whose instance certainly was not made."""
    others = [other for uid, other in known.claims.items() if uid != claim.uid]
    steps: list[Instruction] = []
    for group, sharing in enumerate(claim.sharing):
        if sharing.strategy == checkpoint.MPS:
            steps.append(instructions.StopMps(group))
    steps.extend(_destructions(claim, live=live, others=others, unmade=unmade))
    steps.extend(_resets(claim, live=live, others=others))
    steps.extend(_mode_switches(claim, live=live, others=others, known=known, destroyed=steps))
    return tuple(dict.fromkeys(steps))


def _destructions(
    claim: checkpoint.Claim,
    *,
    live: Mapping[str, LiveGpu],
    others: list[checkpoint.Claim],
    unmade: frozenset[int],
) -> list[Instruction]:
    in_use = {held.instance.uuid for other in others for held in other.devices if held.instance}
    steps: list[Instruction] = []
    for index, device in enumerate(claim.devices):
        gpu = live.get(device.gpu_uuid)
        if gpu is None or not device.is_made_here or index in unmade:
            continue
        for instance in gpu.instances:
            place = instance.placement.start
            is_of = _is_of(device, instance.uuid, instance.gi_profile_id, place)
            if is_of and instance.uuid not in in_use:
                destroy = instructions.DestroyInstance(gpu.minor, instance.gi_id, instance.uuid)
                steps.append(destroy)
    return steps


def _is_of(device: checkpoint.HeldDevice, uuid: str, gi_profile_id: int, start: int) -> bool:
    """Whether an instance is the one made for the device.

    Without a recorded uuid the agent ended between making and recording it. Nothing overlapped the place when the claim
    was planned, so an instance of exactly this profile at exactly this place is taken for ours.
    """
    if device.instance is not None:
        return device.instance.uuid == uuid
    return device.gi_profile_id == gi_profile_id and device.first_slice == start


def _resets(
    claim: checkpoint.Claim, *, live: Mapping[str, LiveGpu], others: list[checkpoint.Claim]
) -> list[Instruction]:
    """Time slices and compute modes go back to their defaults with the last claim that shares the GPU."""
    shared = {
        held.gpu_uuid
        for other in others
        for held in other.devices
        if held.group is not None and not held.slice_count
    }
    steps: list[Instruction] = []
    for device in claim.devices:
        gpu = live.get(device.gpu_uuid)
        if gpu is None or device.group is None or device.slice_count or device.gpu_uuid in shared:
            continue
        sharing = claim.sharing[device.group]
        if sharing.interval is not None:
            steps.append(instructions.SetTimeSlice(gpu.minor, TimeSlice.DEFAULT))
        if sharing.is_exclusive:
            steps.append(instructions.SetComputeMode(gpu.minor, ComputeMode.DEFAULT))
    return steps


def _mode_switches(
    claim: checkpoint.Claim,
    *,
    live: Mapping[str, LiveGpu],
    others: list[checkpoint.Claim],
    known: checkpoint.Checkpoint,
    destroyed: list[Instruction],
) -> list[Instruction]:
    """MIG mode goes off with the last partition, if the agent switched it on."""
    in_use = {held.gpu_uuid for other in others for held in other.devices if not held.is_admin}
    steps: list[Instruction] = []
    for device in claim.devices:
        gpu = live.get(device.gpu_uuid)
        if gpu is None or not device.is_made_here or device.gpu_uuid in in_use:
            continue
        going = {
            (step.minor, step.gi_id)
            for step in destroyed
            if isinstance(step, instructions.DestroyInstance)
        }
        staying = [
            instance for instance in gpu.instances if (gpu.minor, instance.gi_id) not in going
        ]
        if not staying and gpu.gpu_uuid in known.mig_enabled_here:
            steps.append(instructions.DisableMig(gpu.minor, gpu.gpu_uuid))
    return steps
