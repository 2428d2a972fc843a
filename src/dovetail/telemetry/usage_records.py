"""Measurements of devices as records of use: per allocation, and per GPU as a whole.

Given measured devices, the allocations and assets that accounting knows, and a window of time. An allocation of a whole
GPU has the GPU's figures, one of a MIG slice the slice's, one of a share those of its pod's processes, in proportion to
what is allocated. What cannot be matched has no record, and times without samples are gaps: neither is ever counted
as unused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.model.accounting.records import (
    MICRO_GPU,
    Allocation,
    Form,
    Millis,
    Usage,
)
from dovetail.model.dcgm_fields import Field
from dovetail.telemetry import measured_devices
from dovetail.telemetry.dcgm_series import Holding
from dovetail.telemetry.measured_devices import MeasuredDevice, Points

MAX_GAP_SECONDS: Final = 180.0
MIB: Final = 1 << 20
COMPUTE_SLICES: Final = 7  # of a GPU that can be partitioned
_PROFILE: Final = re.compile(r"(?:\d+c\.)?(\d)g\.")


class Window(NamedTuple):
    """From start, exclusive, to end, inclusive."""

    start: Millis
    end: Millis

    @property
    def start_seconds(self) -> float:
        """In seconds."""
        return self.start / 1000

    @property
    def end_seconds(self) -> float:
        """In seconds."""
        return self.end / 1000

    def cut(self, start: Millis, end: Millis | None) -> Window:
        """The part within another span of time."""
        return Window(max(self.start, start), self.end if end is None else min(self.end, end))


class Joined(NamedTuple):
    """What the measurements of a window say."""

    usage: tuple[Usage, ...]
    unmatched: int  # allocations for which there was no measurement


class _Fleet(NamedTuple):
    """Measured devices by the asset they belong to."""

    gpus: Mapping[str, MeasuredDevice]
    slices: Mapping[str, Sequence[MeasuredDevice]]
    by_pod: Mapping[tuple[str, str], Sequence[tuple[MeasuredDevice, Holding]]]


def joined(
    devices: Iterable[MeasuredDevice],
    *,
    allocations: Sequence[Allocation],
    assets: Collection[str],
    start: Millis,
    end: Millis,
    max_gap_seconds: float = MAX_GAP_SECONDS,
) -> Joined:
    """Records of the window. `assets` are ids as accounting has them: uuids, or driver/pool/device."""
    window = Window(start, end)
    fleet = _fleet(measured_devices.one_source_each(devices), assets)
    records: list[Usage] = []
    for asset in sorted(assets):
        record = _asset_usage(asset, fleet, window, max_gap_seconds)
        if record is not None:
            records.append(record)

    unmatched = 0
    slices_left = {asset: list(slices) for asset, slices in fleet.slices.items()}
    for allocation in sorted(allocations, key=lambda each: (each.asset, each.allocation)):
        own = window.cut(allocation.start, allocation.end)
        if own.end <= own.start:
            continue
        usage = _allocation_usage(allocation, fleet, slices_left, own, max_gap_seconds)
        if usage is None:
            unmatched += 1
        else:
            records.append(usage)
    return Joined(tuple(records), unmatched)


# ---- devices by asset


def _fleet(devices: Iterable[MeasuredDevice], assets: Collection[str]) -> _Fleet:
    gpus: dict[str, MeasuredDevice] = {}
    slices: dict[str, list[MeasuredDevice]] = {}
    by_pod: dict[tuple[str, str], list[tuple[MeasuredDevice, Holding]]] = {}
    for device in sorted(devices, key=lambda each: (each.uuid, each.instance_id)):
        asset = _asset_of(device, assets)
        if device.instance_id:
            slices.setdefault(asset, []).append(device)
        else:
            gpus[asset] = device
        for holding in device.holders:
            if holding.pod:
                key = (holding.namespace, holding.pod)
                by_pod.setdefault(key, []).append((device, holding))
    return _Fleet(gpus, slices, by_pod)


def _asset_of(device: MeasuredDevice, assets: Collection[str]) -> str:
    if device.uuid in assets:
        return device.uuid
    names = [f"{name.driver}/{name.pool}/{name.name}" for name in sorted(device.names)]
    return next((name for name in names if name in assets), device.uuid)


# ---- a GPU as a whole


def _asset_usage(asset: str, fleet: _Fleet, window: Window, max_gap: float) -> Usage | None:
    gpu = fleet.gpus.get(asset)
    slices = fleet.slices.get(asset, ())
    if gpu is None and not slices:
        return None
    energy_from = gpu if gpu is not None and Field.ENERGY in gpu.whole else None
    if energy_from is None and slices:
        energy_from = slices[0]  # exporters copy the GPU's counter onto every slice
    busy, samples, memory = _whole_figures(gpu, slices, window, max_gap)
    energy = None if energy_from is None else _energy(energy_from, window, max_gap)
    if busy is None and memory is None and energy is None:
        return None
    tensor, dram = (None, None) if gpu is None else _pipes(gpu, window, max_gap)
    return Usage(
        asset=asset,
        allocation="",
        start=window.start,
        end=window.end,
        busy_micro=_micro(busy),
        memory_bytes=memory,
        energy_millijoules=energy,
        samples=samples,
        tensor_micro=tensor,
        dram_micro=dram,
    )


def _whole_figures(
    gpu: MeasuredDevice | None, slices: Sequence[MeasuredDevice], window: Window, max_gap: float
) -> tuple[float | None, int, int | None]:
    """Busy share of the GPU, samples, largest memory; of a partitioned GPU the sum over its slices."""
    if gpu is not None and (_busy_points(gpu) or not slices):
        points = _busy_points(gpu)
        return _mean(points, window, max_gap), _count(points, window), _memory(gpu.whole, window)
    busy: float | None = None
    memory: int | None = None
    samples = 0
    for each in slices:
        points = _busy_points(each)
        share = _mean(points, window, max_gap)
        samples = max(samples, _count(points, window))
        if share is not None:
            busy = (busy or 0.0) + share * _compute_share(each.profile)
        used = _memory(each.whole, window)
        if used is not None:
            memory = (memory or 0) + used
    return busy, samples, memory


def _compute_share(profile: str) -> float:
    match = _PROFILE.match(profile)
    return int(match[1]) / COMPUTE_SLICES if match else 0.0


# ---- an allocation


def _allocation_usage(
    allocation: Allocation,
    fleet: _Fleet,
    slices_left: dict[str, list[MeasuredDevice]],
    window: Window,
    max_gap: float,
) -> Usage | None:
    match allocation.form:
        case Form.WHOLE:
            gpu = fleet.gpus.get(allocation.asset)
            if gpu is None:
                return None
            # Pods that share a claim for a whole GPU are told apart by their processes.
            is_shared = any(holding.vgpu for holding in gpu.holders)
            measure = _share_usage if is_shared else _device_usage
            return measure(allocation, gpu, window, max_gap)
        case Form.MIG:
            piece = _slice_of(allocation, slices_left.get(allocation.asset, []))
            return None if piece is None else _device_usage(allocation, piece, window, max_gap)
        case Form.SHARE | Form.REPLICA:
            gpu = fleet.gpus.get(allocation.asset)
            return None if gpu is None else _share_usage(allocation, gpu, window, max_gap)
        case Form.COUNTED:
            return _counted_usage(allocation, fleet, window, max_gap)


def _device_usage(
    allocation: Allocation, device: MeasuredDevice, window: Window, max_gap: float
) -> Usage | None:
    """Of an allocation that has the device alone."""
    points = _busy_points(device)
    busy = _mean(points, window, max_gap)
    memory = _memory(device.whole, window)
    if busy is None and memory is None:
        return None
    # The energy counter is the GPU's; a slice has none of its own.
    energy = None if device.instance_id else _energy(device, window, max_gap)
    tensor, dram = _pipes(device, window, max_gap)
    usage = _usage(allocation, window, busy, memory, energy, _count(points, window))
    return msgspec.structs.replace(usage, tensor_micro=tensor, dram_micro=dram)


def _share_usage(
    allocation: Allocation, gpu: MeasuredDevice, window: Window, max_gap: float
) -> Usage | None:
    """Of a share: what its pod's processes use, in proportion to the share."""
    own = [figures for holding, figures in gpu.holders.items() if _holds(holding, allocation)]
    if not own:
        return None
    busy: float | None = None
    memory: int | None = None
    samples = 0
    for figures in own:
        points = figures.get(Field.GPU_UTIL, ())
        percent = _mean(points, window, max_gap)
        samples = max(samples, _count(points, window))
        if percent is not None:
            busy = (busy or 0.0) + percent / 100
        used = _memory(figures, window)
        if used is not None:
            memory = (memory or 0) + used
    if busy is None and memory is None:
        return None
    if busy is not None:
        busy = busy * MICRO_GPU / allocation.micro_gpu if allocation.micro_gpu else None
    return _usage(allocation, window, busy, memory, None, samples)


def _counted_usage(
    allocation: Allocation, fleet: _Fleet, window: Window, max_gap: float
) -> Usage | None:
    """Of GPUs that the API only counts: all that the exporter names the pod for."""
    busy_gpus: float | None = None
    memory: int | None = None
    energy: int | None = None
    samples = 0
    for device, holding in fleet.by_pod.get((allocation.owner.namespace, allocation.owner.pod), ()):
        if holding.claim or not _is_same_pod(holding, allocation):
            continue
        figures = device.holders[holding]
        is_shared = bool(holding.vgpu)
        points = figures.get(Field.GPU_UTIL, ()) if is_shared else _busy_points(device)
        value = _mean(points, window, max_gap)
        samples = max(samples, _count(points, window))
        if value is not None:
            size = _compute_share(device.profile) if device.instance_id else 1.0
            busy_gpus = (busy_gpus or 0.0) + (value / 100 if is_shared else value * size)
        used = _memory(figures if is_shared else device.whole, window)
        if used is not None:
            memory = (memory or 0) + used
        if not is_shared and not device.instance_id:
            own_energy = _energy(device, window, max_gap)
            if own_energy is not None:
                energy = (energy or 0) + own_energy
    if busy_gpus is None and memory is None:
        return None
    busy = None
    if busy_gpus is not None and allocation.micro_gpu:
        busy = busy_gpus * MICRO_GPU / allocation.micro_gpu
    return _usage(allocation, window, busy, memory, energy, samples)


def _slice_of(allocation: Allocation, slices: list[MeasuredDevice]) -> MeasuredDevice | None:
    """The slice that the allocation has; it is taken from the list, so that two of a kind are not one."""
    same_profile = [
        piece for piece in slices if not allocation.profile or piece.profile == allocation.profile
    ]
    for piece in same_profile:
        holding = next((each for each in piece.holders if _holds(each, allocation)), None)
        if holding is not None:
            if holding.pod:  # else it is that of several pods, each with an allocation of its own
                slices.remove(piece)
            return piece
    # Only a device's own name is as good as a holder's; a profile alone is not.
    return None


def _holds(holding: Holding, allocation: Allocation) -> bool:
    owner = allocation.owner
    if holding.pod_uid and owner.pod_uid:
        return holding.pod_uid == owner.pod_uid and _may_be_claim(holding, allocation)
    if holding.pod:
        is_pod = (holding.namespace, holding.pod) == (owner.namespace, owner.pod)
        return is_pod and _may_be_claim(holding, allocation)
    if holding.claim and allocation.claim:
        return (holding.claim_namespace, holding.claim) == (owner.namespace, allocation.claim)
    return False


def _may_be_claim(holding: Holding, allocation: Allocation) -> bool:
    """A pod may hold several claims; where both sides name one, it is the same."""
    return not holding.claim or not allocation.claim or holding.claim == allocation.claim


def _is_same_pod(holding: Holding, allocation: Allocation) -> bool:
    uids = (holding.pod_uid, allocation.owner.pod_uid)
    return not all(uids) or uids[0] == uids[1]


# ---- figures


def _busy_points(device: MeasuredDevice) -> Points:
    """Ratios from 0 to 1, by the most telling field that the device has."""
    for field in (Field.SM_ACTIVE, Field.GR_ENGINE_ACTIVE):
        if points := device.whole.get(field, ()):
            return points
    return tuple((at, value / 100) for at, value in device.whole.get(Field.GPU_UTIL, ()))


def _pipes(device: MeasuredDevice, window: Window, max_gap: float) -> tuple[int | None, int | None]:
    """How busy the tensor pipe and the memory interface were; of shares of a GPU nothing measures that."""
    tensor = _mean(device.whole.get(Field.TENSOR_ACTIVE, ()), window, max_gap)
    dram = _mean(device.whole.get(Field.DRAM_ACTIVE, ()), window, max_gap)
    return _micro(tensor), _micro(dram)


def _mean(points: Points, window: Window, max_gap: float) -> float | None:
    return measured_devices.mean(
        points, start=window.start_seconds, end=window.end_seconds, max_gap_seconds=max_gap
    )


def _count(points: Points, window: Window) -> int:
    own = measured_devices.within(points, start=window.start_seconds, end=window.end_seconds)
    return len(own)


def _memory(figures: Mapping[Field, Points], window: Window) -> int | None:
    points = figures.get(Field.FB_USED, ())
    own = measured_devices.within(points, start=window.start_seconds, end=window.end_seconds)
    return round(max(value for _, value in own) * MIB) if own else None


def _energy(device: MeasuredDevice, window: Window, max_gap: float) -> int | None:
    grown = measured_devices.increase(
        device.whole.get(Field.ENERGY, ()),
        start=window.start_seconds,
        end=window.end_seconds,
        max_gap_seconds=max_gap,
    )
    return None if grown is None else round(grown)


def _usage(
    allocation: Allocation,
    window: Window,
    busy: float | None,
    memory: int | None,
    energy: int | None,
    samples: int,
) -> Usage:
    return Usage(
        asset=allocation.asset,
        allocation=allocation.allocation,
        start=window.start,
        end=window.end,
        busy_micro=_micro(busy),
        memory_bytes=memory,
        energy_millijoules=energy,
        samples=samples,
    )


def _micro(busy: float | None) -> int | None:
    """Never more than all of it: a process may use time that other shares leave, which is not the allocation's."""
    return None if busy is None else min(MICRO_GPU, max(0, round(busy * MICRO_GPU)))
