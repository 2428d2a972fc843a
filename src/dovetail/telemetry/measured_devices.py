"""Joins series of measurements to devices: what is measured of each GPU and MIG device, in total and per holder.

Given series of devices. Figures that an exporter copies onto every holder of a GPU are counted once; those that it has
per process are added up. A GPU that two targets measure is two measurements, of which a caller uses one. Counters may
start again from zero, and readings may stand still: both are found here. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.model import dcgm_fields
from dovetail.model.dcgm_fields import Field
from dovetail.model.idle import Device
from dovetail.telemetry.dcgm_series import DeviceSeries, Holding, Source
from dovetail.telemetry.prometheus_api import Point

Points = tuple[Point, ...]

DRIVER: Final = "gpu.nvidia.com"
FROZEN_SECONDS: Final = 90.0  # an exporter that reads every 30 s repeats itself for shorter times
_PERCENT: Final = 100.0


class MeasuredDevice(NamedTuple):
    """One GPU or MIG device, as one target measured it."""

    uuid: str  # of the GPU, also for its MIG devices
    instance_id: str
    profile: str
    node: str
    source: Source
    names: frozenset[Device]  # as slices publish it, as far as labels say so
    whole: Mapping[Field, Points]
    holders: Mapping[Holding, Mapping[Field, Points]]

    @property
    def point_count(self) -> int:
        """Samples of all fields."""
        return sum(len(points) for points in self.whole.values())


def measured(series: Iterable[DeviceSeries]) -> list[MeasuredDevice]:
    """One for each device and target, in a fixed order."""
    groups: dict[tuple[str, str, Source], list[DeviceSeries]] = {}
    for each in series:
        groups.setdefault((each.uuid, each.instance_id, each.source), []).append(each)
    return [_measured(group) for _, group in sorted(groups.items())]


def one_source_each(devices: Iterable[MeasuredDevice]) -> list[MeasuredDevice]:
    """Each device once: of several targets the one with the most samples, then the first by name."""
    best: dict[tuple[str, str], MeasuredDevice] = {}
    for device in devices:
        key = (device.uuid, device.instance_id)
        if key not in best or _preference(device) < _preference(best[key]):
            best[key] = device
    return list(best.values())


def busiest(device: MeasuredDevice) -> Points:
    """Percentages by the measurement that shows the most use at each time: for finding devices that do nothing."""
    highest: dict[float, float] = {}
    for field, factor in (
        (Field.GPU_UTIL, 1.0),
        (Field.GR_ENGINE_ACTIVE, _PERCENT),
        (Field.SM_ACTIVE, _PERCENT),
    ):
        for at, value in device.whole.get(field, ()):
            highest[at] = max(value * factor, highest.get(at, 0.0))
    return tuple(sorted(highest.items()))


def since_reset(points: Points) -> float | None:
    """When a counter last went back, which is when its device or driver was started again; None if it never did."""
    resets = [later[0] for earlier, later in itertools.pairwise(points) if later[1] < earlier[1]]
    return resets[-1] if resets else None


def is_frozen(device: MeasuredDevice, *, after_seconds: float = FROZEN_SECONDS) -> bool:
    """Whether the target repeats an old reading: a GPU that draws power uses energy, so its counter must run."""
    energy = device.whole.get(Field.ENERGY, ())
    power = device.whole.get(Field.POWER_USAGE, ())
    if len(energy) < 2 or not any(watts > 0 for _, watts in power):
        return False
    last_change = energy[0][0]
    for earlier, later in itertools.pairwise(energy):
        if later[1] != earlier[1]:
            last_change = later[0]
    return energy[-1][0] - last_change >= after_seconds


def increase(points: Points, *, start: float, end: float, max_gap_seconds: float) -> float | None:
    """How much a counter grew in (start, end]; what it lost by starting again is not known and not counted."""
    grown = 0.0
    is_known = False
    for (earlier_at, earlier), (at, value) in itertools.pairwise(points):
        if at <= start or at > end or at - earlier_at > max_gap_seconds:
            continue
        # An interval belongs to the window in which it ends, so that windows add up.
        grown += value - earlier if value >= earlier else value
        is_known = True
    return grown if is_known else None


def mean(points: Points, *, start: float, end: float, max_gap_seconds: float) -> float | None:
    """The mean over (start, end]; each sample stands for the time since the one before, or for the longest gap."""
    total = weight_sum = 0.0
    before = start
    for at, value in points:
        if at <= start:
            before = start
            continue
        if at > end:
            break
        weight = min(at - before, max_gap_seconds)
        total += value * weight
        weight_sum += weight
        before = at
    return total / weight_sum if weight_sum > 0 else None


def within(points: Points, *, start: float, end: float) -> Points:
    """The samples in (start, end]."""
    return tuple(point for point in points if start < point[0] <= end)


def _measured(group: Sequence[DeviceSeries]) -> MeasuredDevice:
    first = group[0]
    by_field: dict[Field, list[DeviceSeries]] = {}
    for each in group:
        by_field.setdefault(each.field, []).append(each)
    whole = {field: _of_device(field, listed) for field, listed in by_field.items()}

    holders: dict[Holding, dict[Field, Points]] = {}
    for each in group:
        if not each.holding.is_empty:
            figures = holders.setdefault(each.holding, {})
            if each.field in dcgm_fields.PER_PROCESS:
                figures[each.field] = each.points
    return MeasuredDevice(
        uuid=first.uuid,
        instance_id=first.instance_id,
        profile=next((each.profile for each in group if each.profile), ""),
        node=next((each.node for each in group if each.node), ""),
        source=first.source,
        names=_names(group),
        whole=whole,
        holders=holders,
    )


def _of_device(field: Field, series: Sequence[DeviceSeries]) -> Points:
    """The figure of the device: parts of processes are added, copies are not."""
    is_split = field in dcgm_fields.PER_PROCESS and any(each.holding.vgpu for each in series)
    by_time: dict[float, float] = {}
    for each in series:
        for at, value in each.points:
            before = by_time.get(at)
            if before is None:
                by_time[at] = value
            else:
                by_time[at] = before + value if is_split else max(before, value)
    if field is Field.GPU_UTIL:
        by_time = {at: min(value, _PERCENT) for at, value in by_time.items()}
    return tuple(sorted(by_time.items()))


def _names(group: Sequence[DeviceSeries]) -> frozenset[Device]:
    named = {
        Device(each.holding.driver, each.holding.pool, each.holding.device)
        for each in group
        if each.holding.driver and each.holding.pool and each.holding.device
    }
    if named:
        return frozenset(named)
    first = group[0]
    # An exporter that knows nothing of claims still says which GPU of which node it is.
    if first.node and first.minor.isdecimal() and not first.instance_id:
        return frozenset({Device(DRIVER, first.node, f"gpu-{first.minor}")})
    return frozenset()


def _preference(device: MeasuredDevice) -> tuple[int, Source]:
    return (-device.point_count, device.source)
