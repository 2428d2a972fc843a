"""Samples for the idle watch, from measured devices, whichever source measured them.

Given measured devices and the devices that the watch asks about. A device whose readings stand still, or whose counters
have just started again, has no evidence of being unused. Pure, but for the gauges it reports to a meter.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dovetail.model.dcgm_fields import Field
from dovetail.model.idle import Device, Sample
from dovetail.ports import meter
from dovetail.telemetry import measured_devices
from dovetail.telemetry.measured_devices import MeasuredDevice

FIELDS: Final = (
    Field.GPU_UTIL,
    Field.GR_ENGINE_ACTIVE,
    Field.SM_ACTIVE,
    Field.ENERGY,
    Field.POWER_USAGE,
)
LOOK_BACK_SECONDS: Final = 150  # several scrapes, and longer than a frozen reading may last


class IdleSamples(NamedTuple):
    """Samples by device, and the devices whose readings stand still."""

    measured: dict[Device, list[Sample]]
    frozen: frozenset[Device]


def idle_samples(
    measured: Iterable[MeasuredDevice],
    devices: Collection[Device],
    *,
    skew_seconds: float = 0.0,
    frozen_seconds: float = measured_devices.FROZEN_SECONDS,
) -> IdleSamples:
    """What is known of these devices, in percent. `skew_seconds`: the clock of the samples minus ours."""
    asked = set(devices)
    samples: dict[Device, list[Sample]] = {}
    frozen: set[Device] = set()
    for device in measured:
        names = device.names & asked
        if not names:
            continue
        if measured_devices.is_frozen(device, after_seconds=frozen_seconds):
            frozen |= names
            continue
        for name in names:
            samples.setdefault(name, []).extend(_samples(device, skew_seconds))
    # One source that stands still makes the others doubtful, too: they may measure through it.
    known = {name: each for name, each in samples.items() if name not in frozen and each}
    return IdleSamples(known, frozenset(frozen))


def report(meter_: meter.Meter, devices: Collection[Device], samples: IdleSamples) -> None:
    """How many devices are measured, frozen and missing, as gauges."""
    counts = {"measured": len(samples.measured), "frozen": len(samples.frozen)}
    counts["missing"] = max(0, len(devices) - sum(counts.values()))
    for state, count in counts.items():
        meter_.gauge("dovetail_device_metrics_devices", count, state=state)


def _samples(device: MeasuredDevice, skew_seconds: float) -> list[Sample]:
    """What came before the last restart of the GPU or its driver is no evidence about the work of now."""
    restarted = measured_devices.since_reset(device.whole.get(Field.ENERGY, ()))
    samples: list[Sample] = []
    for at, percent in measured_devices.busiest(device):
        if restarted is None or at >= restarted:
            moment = datetime.datetime.fromtimestamp(at - skew_seconds, datetime.UTC)
            samples.append(Sample(moment, percent))
    return samples
