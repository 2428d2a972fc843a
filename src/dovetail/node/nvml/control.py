"""The node's GPUs through NVML: implements `gpu_control.GpuControl`.

Given a session and the root of sysfs. All methods block; each GPU has its own lane and deadline. A GPU found lost is
looked up again by the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from dovetail.node import gpu_control
from dovetail.node.health_reading import HealthReading
from dovetail.node.inventory import ComputeMode, Inventory, MigDevice, TimeSlice
from dovetail.node.nvml import discovery, health, mig_control, mig_facts, nvidia_smi
from dovetail.node.nvml.answers import optional, text
from dovetail.node.nvml.session import Opened, Session

T = TypeVar("T")

# NVML_COMPUTEMODE_*
_COMPUTE_MODES: Final = {
    0: ComputeMode.DEFAULT,
    2: ComputeMode.PROHIBITED,
    3: ComputeMode.EXCLUSIVE_PROCESS,
}
_NUMBERS: Final = {mode: number for number, mode in _COMPUTE_MODES.items()}
_SWEEP_SECONDS: Final = 2.0  # for all GPUs in one thread
_MIG_SECONDS: Final = 40.0  # destroying an instance takes seconds; the kubelet waits 45


class NvmlControl:
    """All operations on the GPUs of one node."""

    def __init__(self, session: Session, *, sysfs_root: Path = Path("/sys")) -> None:
        self._session = session
        self._sysfs_root = sysfs_root

    def inventory(self) -> Inventory:
        """Reads everything again."""
        return discovery.inventory(self._session, sysfs_root=self._sysfs_root)

    def mig_devices(self, minor: int) -> tuple[MigDevice, ...]:
        """The GPU instances that exist now, also those without a compute instance."""

        def job(opened: Opened, handle: Any) -> tuple[MigDevice, ...]:
            memory = opened.nvml.nvmlDeviceGetMemoryInfo(handle)
            profiles = mig_facts.profiles(opened, handle, memory_bytes=memory.total)
            return mig_facts.devices(opened, handle, minor, profiles)

        return self._read(minor, job, "list MIG devices")

    def is_mig_enabled(self, minor: int) -> bool:
        """Whether MIG mode is on now."""

        def job(opened: Opened, handle: Any) -> bool:
            mode = optional(opened, opened.nvml.nvmlDeviceGetMigMode, handle)
            return mode is not None and bool(mode[0])

        return self._read(minor, job, "read MIG mode")

    def set_mig_mode(self, minor: int, *, enabled: bool) -> None:
        """Switches MIG mode. GpuUnsupported where only a reset of the GPU would do it."""

        def job(opened: Opened, handle: Any) -> None:
            mig_control.set_mode(opened, handle, minor, enabled=enabled)

        self._change(minor, job, "switch MIG mode", seconds=_MIG_SECONDS)

    def create_mig_device(self, minor: int, *, gi_profile_id: int, start: int) -> MigDevice:
        """Makes a GPU instance at exactly this placement and fills it with one compute instance."""

        def job(opened: Opened, handle: Any) -> MigDevice:
            return mig_control.create(
                opened, handle, minor, gi_profile_id=gi_profile_id, start=start
            )

        doing = f"create MIG device of profile {gi_profile_id} at {start}"
        return self._change(minor, job, doing, seconds=_MIG_SECONDS)

    def destroy_mig_device(self, minor: int, *, gi_id: int) -> None:
        """Destroys the compute instances and the GPU instance. Nothing happens if it does not exist."""

        def job(opened: Opened, handle: Any) -> None:
            mig_control.destroy(opened, handle, gi_id=gi_id)

        self._change(minor, job, f"destroy GPU instance {gi_id}", seconds=_MIG_SECONDS)

    def compute_mode(self, minor: int) -> ComputeMode:
        """The compute mode now."""

        def job(opened: Opened, handle: Any) -> ComputeMode:
            number = opened.nvml.nvmlDeviceGetComputeMode(handle)
            # Exclusive to a thread, long removed, is the nearest to exclusive to a process.
            return _COMPUTE_MODES.get(number, ComputeMode.EXCLUSIVE_PROCESS)

        return self._read(minor, job, "read the compute mode")

    def set_compute_mode(self, minor: int, mode: ComputeMode) -> None:
        """Sets it; needs no reset."""

        def job(opened: Opened, handle: Any) -> None:
            opened.nvml.nvmlDeviceSetComputeMode(handle, _NUMBERS[mode])

        self._change(minor, job, f"set compute mode {mode}")

    def set_time_slice(self, minor: int, time_slice: TimeSlice) -> None:
        """Sets how long a process keeps the GPU."""

        def job(opened: Opened, handle: Any) -> str:
            return text(opened.nvml.nvmlDeviceGetUUID(handle))

        uuid = self._read(minor, job, "read the uuid")
        nvidia_smi.set_time_slice(self._session.driver_root, uuid, time_slice)

    def processes(self, minor: int) -> tuple[int, ...]:
        """The ids of processes that hold the GPU, or a part of it."""

        def job(opened: Opened, handle: Any) -> tuple[int, ...]:
            nvml = opened.nvml
            calls = (
                nvml.nvmlDeviceGetComputeRunningProcesses,
                nvml.nvmlDeviceGetMPSComputeRunningProcesses,
                nvml.nvmlDeviceGetGraphicsRunningProcesses,
            )
            listed = (optional(opened, call, handle) or () for call in calls)
            return tuple(sorted({int(process.pid) for each in listed for process in each}))

        return self._read(minor, job, "list its processes")

    def health(self, minor: int) -> HealthReading:
        """What the GPU's sensors and counters say now. Raises GpuGone for a lost GPU."""

        def job(opened: Opened, handle: Any) -> HealthReading:
            return health.read(opened, handle, minor)

        return self._read(minor, job, "read the health")

    def healths(self, minors: Sequence[int]) -> list[HealthReading]:
        """Of several GPUs from one thread. Raises GpuFailure if one of them fails: `health` says of each what it is."""

        def job(opened: Opened) -> list[HealthReading]:
            return [health.read(opened, opened.handle(minor), minor) for minor in minors]

        return self._session.read(
            "health of all GPUs", job, doing="read the health of all GPUs", seconds=_SWEEP_SECONDS
        )

    def _read(self, minor: int, job: Callable[[Opened, Any], T], doing: str) -> T:
        run = self._session.read
        again = _with_new_handle(_on_gpu(minor, job))
        return run(_lane(minor), again, doing=f"GPU {minor}: {doing}")

    def _change(
        self,
        minor: int,
        job: Callable[[Opened, Any], T],
        doing: str,
        *,
        seconds: float | None = None,
    ) -> T:
        run = self._session.change
        words = f"GPU {minor}: {doing}"
        return run(_lane(minor), _on_gpu(minor, job), doing=words, seconds=seconds)


def _lane(minor: int) -> str:
    return f"GPU {minor}"


def _on_gpu(minor: int, job: Callable[[Opened, Any], T]) -> Callable[[Opened], T]:
    def with_handle(opened: Opened) -> T:
        nvml = opened.nvml
        try:
            return job(opened, opened.handle(minor))
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_InvalidArgument):
            # A GPU that comes back has another handle, and the old one is no argument any more.
            opened.forget(minor)
            raise

    return with_handle


def _with_new_handle(job: Callable[[Opened], T]) -> Callable[[Opened], T]:
    """Reads again with a new handle if the driver does not take the old one."""

    def twice(opened: Opened) -> T:
        try:
            return job(opened)
        except opened.nvml.NVMLError_InvalidArgument:
            return job(opened)

    return twice


_IMPLEMENTS: Callable[..., gpu_control.GpuControl] = NvmlControl
