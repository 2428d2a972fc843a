"""What the agent asks of a node's GPUs: one Protocol, implemented over NVML in `node/nvml`.

All calls block and may take seconds; the caller runs them in threads and serialises them per GPU. They raise
GpuFailure and its kin, named by what the caller should do. Never decides which claim gets what.
"""

from __future__ import annotations

from typing import Protocol

from dovetail import errors
from dovetail.node.inventory import ComputeMode, Inventory, MigDevice, TimeSlice


class GpuFailure(errors.DovetailError):
    """The driver refused or failed; the message has the call, the GPU and the driver's own words."""


class GpuGone(GpuFailure):
    """The GPU is lost or was removed: prepare nothing on it."""


class GpuInUse(GpuFailure):
    """A process still uses what should change: repeat later."""


class GpuUnsupported(GpuFailure):
    """This GPU or driver cannot do it: refuse the claim with this reason."""


class GpuUnresponsive(GpuFailure):
    """The driver did not answer in time: repeat later; the call may still finish."""


class DriverPaused(GpuFailure):
    """The agent keeps away from the driver on purpose, while a GPU is reset: repeat later."""


class DriverUnavailable(GpuFailure):
    """No NVIDIA driver answers on this node now, or it was replaced meanwhile: repeat later."""


class GpuControl(Protocol):
    """The operations of a driver on one node. Every method names the GPU by its minor number."""

    def inventory(self) -> Inventory:
        """Reads everything again."""
        ...

    def mig_devices(self, minor: int) -> tuple[MigDevice, ...]:
        """The GPU instances that exist now, also those without a compute instance."""
        ...

    def is_mig_enabled(self, minor: int) -> bool:
        """Whether MIG mode is on now."""
        ...

    def set_mig_mode(self, minor: int, *, enabled: bool) -> None:
        """Switches MIG mode. GpuUnsupported where only a reset of the GPU would do it (Ampere)."""
        ...

    def create_mig_device(self, minor: int, *, gi_profile_id: int, start: int) -> MigDevice:
        """Makes a GPU instance at exactly this placement and fills it with one compute instance.

        Undoes the GPU instance if the compute instance fails. GpuInUse if the placement is occupied.
        """
        ...

    def destroy_mig_device(self, minor: int, *, gi_id: int) -> None:
        """Destroys the compute instances and the GPU instance. Nothing happens if it does not exist."""
        ...

    def compute_mode(self, minor: int) -> ComputeMode:
        """The compute mode now."""
        ...

    def set_compute_mode(self, minor: int, mode: ComputeMode) -> None:
        """Sets it; needs no reset."""
        ...

    def set_time_slice(self, minor: int, time_slice: TimeSlice) -> None:
        """Sets how long a process keeps the GPU."""
        ...
