"""Reads a GPU's sensors and counters.

Given an opening and a handle. Never judges what it reads; that is `node/health`. Raises NVML's errors for a lost GPU.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.node.health_reading import ClocksEvent, FabricState, HealthReading, RecoveryAction
from dovetail.node.nvml import topology
from dovetail.node.nvml.answers import optional, text
from dovetail.node.nvml.session import Opened

# NVML_GPU_RECOVERY_ACTION_*
_ACTIONS: Final = (
    RecoveryAction.NONE,
    RecoveryAction.GPU_RESET,
    RecoveryAction.NODE_REBOOT,
    RecoveryAction.DRAIN_P2P,
    RecoveryAction.DRAIN_AND_RESET,
    RecoveryAction.RECOVER_IMEX_DOMAIN,
    RecoveryAction.BUS_RESET,
    RecoveryAction.SYSTEM_REBOOT,
)
# nvmlClocksEventReason*, from the lowest bit up.
_CLOCKS_EVENTS: Final = (
    ClocksEvent.IDLE,
    ClocksEvent.CLOCKS_SETTING,
    ClocksEvent.POWER_CAP,
    ClocksEvent.HARDWARE_SLOWDOWN,
    ClocksEvent.SYNC_BOOST,
    ClocksEvent.THERMAL_SLOWDOWN,
    ClocksEvent.HARDWARE_THERMAL_SLOWDOWN,
    ClocksEvent.POWER_BRAKE,
    ClocksEvent.DISPLAY_CLOCK_SETTING,
)
# NVML_GPU_FABRIC_STATE_*
_FABRIC_STATES: Final = (
    FabricState.NOT_SUPPORTED,
    FabricState.NOT_STARTED,
    FabricState.IN_PROGRESS,
    FabricState.COMPLETED,
)


def read(opened: Opened, handle: Any, minor: int) -> HealthReading:
    """One GPU now."""
    nvml = opened.nvml
    rows = optional(opened, nvml.nvmlDeviceGetRemappedRows, handle)
    correctable, uncorrectable, is_pending, has_failed = rows or (None, None, None, None)
    fabric = topology.fabric_state(opened, handle)
    pending_pages = optional(opened, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    reading = HealthReading(
        minor=minor,
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        volatile_uncorrectable_errors=_ecc(opened, handle, corrected=False, is_aggregate=False),
        aggregate_uncorrectable_errors=_ecc(opened, handle, corrected=False, is_aggregate=True),
        volatile_correctable_errors=_ecc(opened, handle, corrected=True, is_aggregate=False),
        remapped_rows_correctable=correctable,
        remapped_rows_uncorrectable=uncorrectable,
        is_row_remap_pending=None if is_pending is None else bool(is_pending),
        has_row_remap_failed=None if has_failed is None else bool(has_failed),
        retired_pages=_retired_pages(opened, handle),
        is_page_retirement_pending=None if pending_pages is None else bool(pending_pages),
        recovery_action=_recovery_action(opened, handle),
        fabric_state=None if fabric is None else _named(_FABRIC_STATES, fabric[0]),
        fabric_health_mask=None if fabric is None else fabric[1],
        is_fabric_healthy=None if fabric is None else topology.is_healthy(fabric[1]),
        clocks_events=_clocks_events(opened, handle),
        temperature_celsius=optional(
            opened, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
        ),
        power_milliwatts=optional(opened, nvml.nvmlDeviceGetPowerUsage, handle),
    )
    # A handle that went stale on the way makes figures look absent. It has no uuid either.
    nvml.nvmlDeviceGetUUID(handle)
    return reading


def _ecc(opened: Opened, handle: Any, *, corrected: bool, is_aggregate: bool) -> int | None:
    nvml = opened.nvml
    kind = (
        nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        if corrected
        else nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    )
    span = nvml.NVML_AGGREGATE_ECC if is_aggregate else nvml.NVML_VOLATILE_ECC
    return optional(opened, nvml.nvmlDeviceGetTotalEccErrors, handle, kind, span)


def _retired_pages(opened: Opened, handle: Any) -> int | None:
    nvml = opened.nvml
    causes = (
        nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    pages = [optional(opened, nvml.nvmlDeviceGetRetiredPages, handle, cause) for cause in causes]
    known = [len(each) for each in pages if each is not None]
    return sum(known) if known else None


def _recovery_action(opened: Opened, handle: Any) -> RecoveryAction | None:
    nvml = opened.nvml
    field = nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = optional(opened, nvml.nvmlDeviceGetFieldValues, handle, [field])
    if values is None or values[0].nvmlReturn != 0:
        return None
    number = int(values[0].value.uiVal)
    return _ACTIONS[number] if number < len(_ACTIONS) else RecoveryAction.UNKNOWN


def _clocks_events(opened: Opened, handle: Any) -> tuple[ClocksEvent, ...] | None:
    nvml = opened.nvml
    bits = optional(opened, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:  # drivers before 535 have it under another name
        bits = optional(opened, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if bits is None:
        return None
    events = [event for bit, event in enumerate(_CLOCKS_EVENTS) if bits >> bit & 1]
    return tuple(events)


def _named(states: tuple[FabricState, ...], number: int) -> FabricState | None:
    return states[number] if number < len(states) else None
