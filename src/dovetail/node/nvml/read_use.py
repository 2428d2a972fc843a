"""Reads how much of each GPU is in use.

Given a session and the GPUs of an inventory. One thread asks about all of them; each is asked in its own lane only
while one fails or hangs, and those that do not answer are named. Keeps what makes the next reading a difference:
samples of GPM, and the time of the last process samples. Calls block; one at a time. Never changes a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail.node import gpu_control
from dovetail.node.device_use import Activity, GpuUse, MemoryUse, ProcessUse, SliceUse
from dovetail.node.inventory import Gpu
from dovetail.node.nvml import gpm, nvml_errors
from dovetail.node.nvml.answers import existing, optional, text
from dovetail.node.nvml.session import Opened, Session, side_by_side

_SWEEP_LANE: Final = "use of all GPUs"
_SWEEP_SECONDS: Final = 2.0
_GPU_SECONDS: Final = 4.0  # Prometheus gives a scrape ten
NO_ACTIVITY: Final = Activity()
_MOST_PERCENT: Final = 100  # drivers were seen to report 2**32 - 1


class UseReading(NamedTuple):
    """All GPUs that answered, and the minor numbers of those that did not."""

    gpus: tuple[GpuUse, ...]
    unread: tuple[int, ...] = ()


class NvmlUse:
    """The GPUs of one node."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gpm = gpm.Gpm()
        self._last_samples: dict[str, int] = {}  # microseconds, by uuid

    def read(self, gpus: Sequence[Gpu]) -> UseReading:
        """All of them now."""
        keys: set[gpm.Key] = set()
        for gpu in gpus:
            keys.add((gpu.uuid, None))
            keys.update((gpu.uuid, device.gi_id) for device in gpu.mig_devices)

        def sweep(opened: Opened) -> list[GpuUse]:
            self._gpm.keep_only(keys)
            return [self._use(opened, gpu) for gpu in gpus]

        try:
            uses = self._session.read(
                _SWEEP_LANE, sweep, doing="read the use of all GPUs", seconds=_SWEEP_SECONDS
            )
            return UseReading(tuple(uses))
        except gpu_control.GpuFailure:
            return self._read_apart(gpus)

    def _read_apart(self, gpus: Sequence[Gpu]) -> UseReading:
        """Without GPM, whose samples belong to one thread: a sweep that hangs may still hold them."""
        readings = side_by_side(self._read_one, gpus)
        uses = tuple(use for use in readings if use is not None)
        answered = {use.minor for use in uses}
        unread = tuple(gpu.minor for gpu in gpus if gpu.minor not in answered)
        return UseReading(uses, unread)

    def _read_one(self, gpu: Gpu) -> GpuUse | None:
        try:
            return self._session.read(
                f"use of GPU {gpu.minor}",
                lambda opened: self._use(opened, gpu, has_gpm=False),
                doing=f"GPU {gpu.minor}: read its use",
                seconds=_GPU_SECONDS,
            )
        except gpu_control.GpuFailure:
            return None

    def _use(self, opened: Opened, gpu: Gpu, *, has_gpm: bool = True) -> GpuUse:
        nvml = opened.nvml
        handle = opened.handle(gpu.minor)
        rates = optional(opened, nvml.nvmlDeviceGetUtilizationRates, handle)
        is_whole = not gpu.is_mig_enabled
        use = GpuUse(
            minor=gpu.minor,
            uuid=gpu.uuid,
            busy_percent=None if rates is None else int(rates.gpu),
            memory_busy_percent=None if rates is None else int(rates.memory),
            memory=_memory(opened, handle) if is_whole else None,
            power_milliwatts=optional(opened, nvml.nvmlDeviceGetPowerUsage, handle),
            energy_millijoules=optional(opened, nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            temperature_celsius=optional(
                opened, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            sm_clock_mhz=optional(opened, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            activity=self._gpm.activity(opened, handle, gpu.uuid)
            if has_gpm and is_whole
            else NO_ACTIVITY,
            processes=self._processes(opened, handle, gpu.uuid) if is_whole else (),
            slices=() if is_whole else self._slices(opened, handle, gpu, has_gpm=has_gpm),
        )
        # A handle that went stale on the way makes figures look absent. It has another uuid, or none.
        if text(nvml.nvmlDeviceGetUUID(handle)) != gpu.uuid:
            opened.forget(gpu.minor)
            raise gpu_control.GpuGone(f"GPU {gpu.minor}: another one has its place now")
        return use

    def _processes(self, opened: Opened, handle: Any, uuid: str) -> tuple[ProcessUse, ...]:
        nvml = opened.nvml
        memory: dict[int, int | None] = {}
        for call in (
            nvml.nvmlDeviceGetComputeRunningProcesses,
            nvml.nvmlDeviceGetMPSComputeRunningProcesses,
            nvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in optional(opened, call, handle) or ():
                # A process that both computes and draws is listed twice, with the same memory.
                memory.setdefault(int(process.pid), process.usedGpuMemory)
        busy = self._busy_percents(opened, handle, uuid) if memory else {}
        return tuple(
            ProcessUse(pid=pid, memory_bytes=used, busy_percent=busy.get(pid, 0))
            for pid, used in sorted(memory.items())
        )

    def _busy_percents(self, opened: Opened, handle: Any, uuid: str) -> dict[int, int]:
        """Of processes that were busy since the reading before. NVML has one sample for each of them."""
        nvml = opened.nvml
        since = self._last_samples.get(uuid, 0)
        try:
            samples = optional(opened, nvml.nvmlDeviceGetProcessUtilization, handle, since)
        except nvml.NVMLError as error:
            if nvml_errors.code_of(error) != nvml_errors.NOT_FOUND:  # none was busy
                raise
            samples = None
        busy: dict[int, tuple[int, int]] = {}
        for sample in samples or ():
            at, percent = int(sample.timeStamp), int(sample.smUtil)
            if percent <= _MOST_PERCENT and at >= busy.get(int(sample.pid), (0, 0))[0]:
                busy[int(sample.pid)] = (at, percent)
        if busy:
            self._last_samples[uuid] = max(at for at, _ in busy.values())
        return {pid: percent for pid, (_, percent) in busy.items()}

    def _slices(
        self, opened: Opened, handle: Any, gpu: Gpu, *, has_gpm: bool
    ) -> tuple[SliceUse, ...]:
        uses: list[SliceUse] = []
        for device in gpu.mig_devices:
            if not device.uuid:
                continue
            slice_handle = existing(
                opened, opened.nvml.nvmlDeviceGetHandleByUUID, device.uuid.encode()
            )
            if slice_handle is None:  # destroyed since the inventory was read
                continue
            activity = NO_ACTIVITY
            if has_gpm:
                activity = self._gpm.activity(opened, handle, gpu.uuid, gi_id=device.gi_id)
            memory = _memory(opened, slice_handle)
            use = SliceUse(uuid=device.uuid, gi_id=device.gi_id, memory=memory, activity=activity)
            uses.append(use)
        return tuple(uses)


def _memory(opened: Opened, handle: Any) -> MemoryUse | None:
    nvml = opened.nvml
    newer = optional(opened, nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    if newer is not None:
        return MemoryUse(
            total_bytes=newer.total,
            used_bytes=newer.used,
            free_bytes=newer.free,
            reserved_bytes=newer.reserved,
        )
    older = optional(opened, nvml.nvmlDeviceGetMemoryInfo, handle)
    if older is None:
        return None
    return MemoryUse(total_bytes=older.total, used_bytes=older.used, free_bytes=older.free)
