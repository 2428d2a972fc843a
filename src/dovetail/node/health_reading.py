"""What a GPU's sensors and counters say, without judgement: facts for the health policy.

Structs only. What a GPU does not report is None. Counters count since the driver was loaded unless they say otherwise.
"""

from enum import StrEnum

import msgspec


class RecoveryAction(StrEnum):
    """What the driver itself recommends for a GPU."""

    NONE = "None"
    GPU_RESET = "GpuReset"
    NODE_REBOOT = "NodeReboot"
    DRAIN_P2P = "DrainP2P"
    DRAIN_AND_RESET = "DrainAndReset"
    RECOVER_IMEX_DOMAIN = "RecoverImexDomain"
    BUS_RESET = "BusReset"
    SYSTEM_REBOOT = "SystemReboot"
    UNKNOWN = "Unknown"  # a newer driver's


class ClocksEvent(StrEnum):
    """Why a GPU does not run at full clocks."""

    IDLE = "Idle"
    CLOCKS_SETTING = "ClocksSetting"
    POWER_CAP = "PowerCap"
    HARDWARE_SLOWDOWN = "HardwareSlowdown"
    SYNC_BOOST = "SyncBoost"
    THERMAL_SLOWDOWN = "ThermalSlowdown"
    HARDWARE_THERMAL_SLOWDOWN = "HardwareThermalSlowdown"
    POWER_BRAKE = "PowerBrake"
    DISPLAY_CLOCK_SETTING = "DisplayClockSetting"


class FabricState(StrEnum):
    """How far a GPU got with its NVLink fabric."""

    NOT_SUPPORTED = "NotSupported"
    NOT_STARTED = "NotStarted"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"


class HealthReading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One GPU at one time."""

    minor: int
    uuid: str
    volatile_uncorrectable_errors: int | None = None  # ECC
    aggregate_uncorrectable_errors: int | None = None  # ECC, of the board's whole life
    volatile_correctable_errors: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_correctable: int | None = None
    is_row_remap_pending: bool | None = None
    has_row_remap_failed: bool | None = None
    retired_pages: int | None = None  # boards before Ampere
    is_page_retirement_pending: bool | None = None
    recovery_action: RecoveryAction | None = None
    fabric_state: FabricState | None = None
    fabric_health_mask: int | None = None
    is_fabric_healthy: bool | None = None
    clocks_events: tuple[ClocksEvent, ...] | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None


class GpuEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something the driver reported by itself."""

    uuid: str  # empty if the driver did not say which GPU, which means all
    xid: int | None = None
    is_double_bit_error: bool = False
    gi_id: int | None = None
    ci_id: int | None = None
