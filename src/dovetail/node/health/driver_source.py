"""Readings and events for the health monitor, taken from the driver.

Given calls into NVML and the newest inventory. Translates what boards report into what the policy knows, and nothing
reported into well. A GPU that was there and cannot be found any more is lost; one that does not answer is unmonitored.
No driver reports that a GPU was reset: its readings do, which forget what only a reset clears. Calls block. Never
judges a reading.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dovetail.node import gpu_control, health_reading
from dovetail.node.health.readings import (
    Event,
    GpuReading,
    GpuReset,
    RecoveryAction,
    Throttle,
    XidEvent,
)
from dovetail.node.inventory import Gpu, Inventory

WAIT_SECONDS: Final = 2.0  # a process that ends waits for the threads that wait here

_ACTIONS: Final = {
    health_reading.RecoveryAction.GPU_RESET: RecoveryAction.GPU_RESET,
    health_reading.RecoveryAction.NODE_REBOOT: RecoveryAction.NODE_REBOOT,
    health_reading.RecoveryAction.DRAIN_P2P: RecoveryAction.DRAIN_P2P,
    health_reading.RecoveryAction.DRAIN_AND_RESET: RecoveryAction.DRAIN_AND_RESET,
    health_reading.RecoveryAction.RECOVER_IMEX_DOMAIN: RecoveryAction.RECOVER_IMEX_DOMAIN,
    health_reading.RecoveryAction.BUS_RESET: RecoveryAction.BUS_RESET,
    health_reading.RecoveryAction.SYSTEM_REBOOT: RecoveryAction.SYSTEM_REBOOT,
}
_RESET_ACTIONS: Final = (
    health_reading.RecoveryAction.GPU_RESET,
    health_reading.RecoveryAction.DRAIN_AND_RESET,
    health_reading.RecoveryAction.BUS_RESET,
)
_THROTTLES: Final = {
    health_reading.ClocksEvent.HARDWARE_SLOWDOWN: Throttle.HARDWARE_SLOWDOWN,
    health_reading.ClocksEvent.HARDWARE_THERMAL_SLOWDOWN: Throttle.HARDWARE_THERMAL,
    health_reading.ClocksEvent.POWER_BRAKE: Throttle.POWER_BRAKE,
    health_reading.ClocksEvent.THERMAL_SLOWDOWN: Throttle.SOFTWARE_THERMAL,
}


class DriverSource:
    """Implements HealthSource for one node."""

    def __init__(
        self,
        read: Callable[[int], health_reading.HealthReading],
        wait: Callable[[float], Sequence[health_reading.GpuEvent]],
        register_again: Callable[[], None],
        *,
        read_all: Callable[[Sequence[int]], Sequence[health_reading.HealthReading]] | None = None,
    ) -> None:
        self._read = read
        self._read_all = read_all
        self._wait = wait
        self._register_again = register_again
        self._gpus: dict[int, Gpu] = {}
        self._driver_version = ""
        self._has_seen_gpus = False
        self._lost: set[int] = set()
        self._last: dict[int, health_reading.HealthReading] = {}
        # Readings and events are taken in different threads.
        self._resets: queue.SimpleQueue[GpuReset] = queue.SimpleQueue()

    def update(self, inventory: Inventory) -> None:
        """These GPUs are there now. One that comes back, or whose driver was loaded again, was reset."""
        is_reloaded = self._has_seen_gpus and self._driver_version != inventory.driver_version
        present = {gpu.minor: gpu for gpu in inventory.gpus}
        for minor in present:
            if is_reloaded or minor in self._lost:
                self._resets.put(GpuReset(minor=minor))
        self._driver_version = inventory.driver_version
        self._has_seen_gpus = self._has_seen_gpus or bool(present)

        unread = {gpu.minor for gpu in inventory.unread}
        self._lost = {
            minor
            for minor in self._gpus
            if minor not in present and (minor in unread or None in unread)
        }
        self._gpus = {minor: self._gpus[minor] for minor in self._lost} | present
        self._register_again()

    def note_reset(self, minors: Iterable[int]) -> None:
        """The agent has had these GPUs reset: earlier errors are over, also those that no reading shows."""
        for minor in minors:
            self._resets.put(GpuReset(minor=minor))

    def readings(self) -> tuple[GpuReading, ...]:
        """A look at every GPU, also at those that are lost."""
        minors = sorted(self._gpus)
        if self._read_all is not None:
            try:
                return tuple(self._noted(reading) for reading in self._read_all(minors))
            except gpu_control.GpuFailure:
                pass  # asked one by one, each says whether it is lost, silent or well
        return tuple(self._reading(minor) for minor in minors)

    def wait_for_events(self, seconds: float) -> tuple[Event, ...]:
        """What happened since the last call, after at most this many seconds."""
        if not self._resets.empty():
            return tuple(self._resets.get() for _ in range(self._resets.qsize()))
        minors = {gpu.uuid: gpu.minor for gpu in self._gpus.values()}
        return tuple(
            XidEvent(code=event.xid, minor=minors.get(event.uuid))
            for event in self._wait(min(seconds, WAIT_SECONDS))
            if event.xid is not None
        )

    def _reading(self, minor: int) -> GpuReading:
        try:
            reading = self._read(minor)
        except gpu_control.GpuGone:
            return GpuReading(minor=minor, is_lost=True)
        except gpu_control.DriverPaused:  # no news
            last = self._last.get(minor)
            return GpuReading(minor=minor) if last is None else translated(last)
        except gpu_control.GpuFailure:
            return GpuReading(minor=minor, is_monitored=False)
        return self._noted(reading)

    def _noted(self, reading: health_reading.HealthReading) -> GpuReading:
        last = self._last.get(reading.minor)
        if last is not None and was_reset_between(last, reading):
            self._resets.put(GpuReset(minor=reading.minor))
        self._last[reading.minor] = reading
        return translated(reading)


def was_reset_between(
    last: health_reading.HealthReading, reading: health_reading.HealthReading
) -> bool:
    """Whether a GPU has forgotten what only a reset, or the driver loaded again, clears."""
    before, now = last.volatile_uncorrectable_errors, reading.volatile_uncorrectable_errors
    has_forgotten_errors = before is not None and now is not None and now < before
    was_asked = last.recovery_action in _RESET_ACTIONS
    is_content = reading.recovery_action is health_reading.RecoveryAction.NONE
    return has_forgotten_errors or (was_asked and is_content)


def translated(reading: health_reading.HealthReading) -> GpuReading:
    """In the words of the policy."""
    action = reading.recovery_action
    events = reading.clocks_events or ()
    is_fabric_well = reading.is_fabric_healthy is not False
    return GpuReading(
        minor=reading.minor,
        uncorrectable_ecc_errors=reading.volatile_uncorrectable_errors or 0,
        is_row_remap_pending=bool(reading.is_row_remap_pending),
        has_row_remap_failed=bool(reading.has_row_remap_failed),
        are_pages_pending_retirement=bool(reading.is_page_retirement_pending),
        recovery_action=RecoveryAction.NONE
        if action is None
        else _ACTIONS.get(action, RecoveryAction.NONE),
        fabric_fault="" if is_fabric_well else f"health mask {reading.fabric_health_mask:#x}",
        throttles=frozenset(_THROTTLES[event] for event in events if event in _THROTTLES),
        temperature_celsius=reading.temperature_celsius,
    )
