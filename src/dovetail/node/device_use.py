"""How much of a GPU is in use, without judgement: figures for the metrics of devices.

Structs only. What a GPU or its driver does not report is None. Percentages are those of NVML, ratios are from 0 to 1.
"""

from __future__ import annotations

import msgspec


class MemoryUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Bytes of memory. `used_bytes` leaves out what the driver reserves, where the driver tells them apart."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None


class ProcessUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one process uses of a GPU that is not partitioned."""

    pid: int
    memory_bytes: int | None = None
    busy_percent: int = 0


class Activity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Ratios over the time since the reading before, from GPM."""

    engine: float | None = None
    multiprocessors: float | None = None


class SliceUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One MIG device."""

    uuid: str
    gi_id: int
    memory: MemoryUse | None = None
    activity: Activity = Activity()


class GpuUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One GPU."""

    minor: int
    uuid: str
    busy_percent: int | None = None
    memory_busy_percent: int | None = None
    memory: MemoryUse | None = None
    power_milliwatts: int | None = None
    energy_millijoules: int | None = None
    temperature_celsius: int | None = None
    sm_clock_mhz: int | None = None
    activity: Activity = Activity()
    processes: tuple[ProcessUse, ...] = ()
    slices: tuple[SliceUse, ...] = ()
