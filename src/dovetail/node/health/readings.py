"""What the driver says about the health of GPUs: events and readings, before anything is concluded from them.

Structs only, filled by `node/nvml`. What a driver or a board does not report stays at its default, which means well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec


class RecoveryAction(StrEnum):
    """What the driver itself asks for, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (R565 and later)."""

    NONE = "none"
    GPU_RESET = "gpu-reset"
    NODE_REBOOT = "node-reboot"
    DRAIN_P2P = "drain-p2p"
    DRAIN_AND_RESET = "drain-and-reset"
    RECOVER_IMEX_DOMAIN = "recover-imex-domain"
    BUS_RESET = "bus-reset"
    SYSTEM_REBOOT = "system-reboot"


class Throttle(StrEnum):
    """Why a GPU runs slower than it could, of NVML's clocks event reasons those that mean a fault."""

    HARDWARE_SLOWDOWN = "hw-slowdown"
    HARDWARE_THERMAL = "hw-thermal-slowdown"
    POWER_BRAKE = "hw-power-brake"
    SOFTWARE_THERMAL = "sw-thermal-slowdown"


class GpuReading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One look at one GPU."""

    minor: int
    is_lost: bool = False
    is_monitored: bool = True  # False where the driver offers no events for this GPU
    uncorrectable_ecc_errors: int = 0  # since the last reset
    is_row_remap_pending: bool = False
    has_row_remap_failed: bool = False
    are_pages_pending_retirement: bool = False
    recovery_action: RecoveryAction = RecoveryAction.NONE
    fabric_fault: str = ""  # empty while the NVLink fabric is well, or where there is none
    throttles: frozenset[Throttle] = frozenset()
    temperature_celsius: int | None = None


class XidEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An error the driver reported. Without a minor number it concerns every GPU of the node."""

    code: int
    minor: int | None = None


class GpuReset(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A GPU was reset, or its driver loaded again: earlier errors are over."""

    minor: int


Event = XidEvent | GpuReset


class HealthSource(Protocol):
    """Where readings and events come from. All calls block; they raise GpuFailure of `node/gpu_control`."""

    def readings(self) -> tuple[GpuReading, ...]:
        """A look at every GPU the agent knows, also at those that are lost."""
        ...

    def wait_for_events(self, seconds: float) -> tuple[Event, ...]:
        """What happened since the last call; waits at most this long for the first event."""
        ...
