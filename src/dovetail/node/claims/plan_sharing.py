"""Decides how the devices of a claim are shared: which config each gets, what MPS may use, what cannot be combined.

Given devices and configs, returns groups of devices with one kind of sharing each, and the steps for them. Raises
InputError for a combination that the hardware or MPS does not offer. Never starts a daemon.

A share of a device by consumable capacity is accounting unless it uses MPS: then its memory (and its part of
`dovetail.dev/share`) become limits that the daemon of its claim enforces on every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.node.claims import checkpoint, configs, device_names, instructions, silicon
from dovetail.node.inventory import ComputeMode
from dovetail.quantity import quantity

_MULTI_USER_SINCE: Final = 7  # Volta; earlier GPUs run MPS for one user only


class Member(NamedTuple):
    """A device of the claim, and what its name stands for."""

    held: checkpoint.HeldDevice
    device: device_names.Device


class Grouped(msgspec.Struct, frozen=True, gc=False):
    """The devices with the index of their group, and the groups."""

    devices: tuple[checkpoint.HeldDevice, ...]
    sharing: tuple[checkpoint.Sharing, ...]


def with_sharing(members: Sequence[Member], scoped: Sequence[configs.ScopedConfig]) -> Grouped:
    """Gives every device its config. Devices under the same config form a group."""
    choices = [_choice(member, scoped) for member in members]
    wanted = sorted({index for index in choices if index is not None})
    group_of: dict[int, int] = {}
    sharing: list[checkpoint.Sharing] = []
    for index in wanted:
        chosen = [
            member for member, choice in zip(members, choices, strict=True) if choice == index
        ]
        group = _group(scoped[index].config, chosen)
        if group is not None:
            group_of[index] = len(sharing)
            sharing.append(group)
    devices = tuple(
        msgspec.structs.replace(member.held, group=None if choice is None else group_of.get(choice))
        for member, choice in zip(members, choices, strict=True)
    )
    return Grouped(devices, tuple(sharing))


def disagreement(grouped: Grouped, others: Iterable[checkpoint.Claim]) -> str | None:
    """Why the claim cannot share a device with claims that share it in another way."""
    wanted = {device.device: _manner(device, grouped.sharing) for device in grouped.devices}
    for other in others:
        for held in other.devices:
            if held.device not in wanted or held.is_admin:
                continue
            theirs = _manner(held, other.sharing)
            if wanted[held.device] != theirs:
                return (
                    f"device {held.device}: the claim with uid {other.uid} shares it with {theirs}, this claim wants "
                    f"{wanted[held.device]}; claims on one device must agree"
                )
    return None


def steps(claim: checkpoint.Claim) -> tuple[instructions.Instruction, ...]:
    """What makes the devices shared as recorded."""
    steps: list[instructions.Instruction] = []
    for group, sharing in enumerate(claim.sharing):
        minors = whole_gpus(claim, group)
        if sharing.strategy == checkpoint.TIME_SLICING and sharing.interval is not None:
            for minor in minors:
                steps.append(instructions.SetComputeMode(minor, ComputeMode.DEFAULT))
                steps.append(instructions.SetTimeSlice(minor, sharing.interval))
        if sharing.strategy == checkpoint.MPS:
            # Only one MPS server may run on a GPU in exclusive mode, so shares of several claims use the default mode.
            mode = ComputeMode.EXCLUSIVE_PROCESS if sharing.is_exclusive else ComputeMode.DEFAULT
            for minor in minors:
                steps.append(instructions.SetComputeMode(minor, mode))
            steps.append(instructions.StartMps(group))
    return tuple(steps)


def whole_gpus(claim: checkpoint.Claim, group: int) -> tuple[int, ...]:
    """The minor numbers of a group's GPUs that are no partitions."""
    minors = [
        device.gpu_minor
        for device in claim.devices
        if device.group == group and not device.slice_count
    ]
    return tuple(dict.fromkeys(minors))


def _choice(member: Member, scoped: Sequence[configs.ScopedConfig]) -> int | None:
    held = member.held
    if held.is_admin:
        for config in scoped:
            if not config.requests or config.names(held.request):
                raise errors.InputError(
                    f"request {held.request}: admin access takes no device config"
                )
        return None
    is_whole = isinstance(member.device, device_names.WholeGpu)
    device_type = configs.DeviceType.GPU if is_whole else configs.DeviceType.MIG
    return configs.chosen(scoped, request=held.request, device=held.device, device_type=device_type)


def _group(config: configs.Config, members: Sequence[Member]) -> checkpoint.Sharing | None:
    match config.sharing:
        case None:
            return None
        case configs.TimeSlicing(interval):
            return checkpoint.Sharing(strategy=checkpoint.TIME_SLICING, interval=interval)
        case configs.Mps():
            return _mps_group(config.sharing, members)


def _mps_group(mps: configs.Mps, members: Sequence[Member]) -> checkpoint.Sharing:
    names = tuple(dict.fromkeys(member.held.device for member in members))
    is_whole = all(isinstance(member.device, device_names.WholeGpu) for member in members)
    if not is_whole and len(names) > 1:
        raise errors.InputError(
            f"MPS: a daemon serves one MIG device, the config covers {len(names)} ({', '.join(names)}); "
            "give each request a config of its own"
        )
    if mps.is_multi_user:
        _require_volta(members)
    shares = [_share_percentage(member.held) for member in members]
    percentages = [share for share in shares if share is not None]
    if mps.active_thread_percentage is not None:
        percentages.append(mps.active_thread_percentage)
    return checkpoint.Sharing(
        strategy=checkpoint.MPS,
        active_thread_percentage=min(percentages, default=None),
        memory_limits=_limits(mps, names, members),
        is_multi_user=mps.is_multi_user,
        is_exclusive=is_whole and all(member.held.share_id is None for member in members),
    )


def _limits(mps: configs.Mps, names: Sequence[str], members: Sequence[Member]) -> dict[str, int]:
    """The memory limit of each device, in bytes. A share's own memory is the upper bound."""
    limits: dict[str, int | None] = dict.fromkeys(names, mps.memory_limit_bytes)
    uuids = {member.held.gpu_uuid: member.held.device for member in members}
    for key, limit in mps.device_limits_bytes.items():
        limits[_device_for(key, names, uuids)] = limit
    for member in members:
        share = _share_bytes(member)
        configured = limits[member.held.device]
        if share is not None:
            bound = share if configured is None else min(configured, share)
            limits[member.held.device] = bound
    return {name: limit for name, limit in limits.items() if limit is not None}


def _device_for(key: str, names: Sequence[str], uuids: dict[str, str]) -> str:
    if key in uuids:
        return uuids[key]
    if key.isascii() and key.isdigit() and int(key) < len(names):
        return names[int(key)]
    known = ", ".join(f"{index} ({name})" for index, name in enumerate(names))
    raise errors.InputError(
        f"mpsConfig.defaultPerDevicePinnedMemoryLimit: {key!r} is none of the devices; "
        f"devices: {known}, or their GPU's uuid"
    )


def _share_bytes(member: Member) -> int | None:
    """The memory of a share: what it consumes, else its part of the device. None without either."""
    held = member.held
    if held.share_id is None:
        return None
    memory = quantity.parse(held.consumed.get(silicon.MEMORY, "0")).value()
    if memory:
        return memory
    share = quantity.parse(held.consumed.get(silicon.SHARE, "0")).milli_value()
    if not share:
        return None
    return device_names.memory_bytes(member.device) * min(share, 1000) // 1000


def _share_percentage(held: checkpoint.HeldDevice) -> int | None:
    if held.share_id is None or silicon.SHARE not in held.consumed:
        return None
    share = quantity.parse(held.consumed[silicon.SHARE]).milli_value()
    return max(1, min(100, share // 10)) if share else None


def _require_volta(members: Sequence[Member]) -> None:
    for member in members:
        capability = member.device.gpu.cuda_compute_capability
        if int(capability.partition(".")[0]) < _MULTI_USER_SINCE:
            raise errors.InputError(
                f"mpsConfig.multiUser: {member.held.device} has compute capability {capability}; "
                f"it needs {_MULTI_USER_SINCE}.0 or later"
            )


def _manner(device: checkpoint.HeldDevice, sharing: Sequence[checkpoint.Sharing]) -> str:
    """How a device is shared, as people would say it; equal texts can share a device."""
    if device.group is None:
        return "no config"
    group = sharing[device.group]
    interval = f" ({group.interval})" if group.interval is not None else ""
    return f"{group.strategy}{interval}"
