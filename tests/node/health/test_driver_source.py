"""What the driver reports, in the words of the health policy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from dovetail.node import gpu_control
from dovetail.node.health import readings
from dovetail.node.health.driver_source import DriverSource, translated
from dovetail.node.health_reading import (
    ClocksEvent,
    GpuEvent,
    HealthReading,
    RecoveryAction,
)
from dovetail.node.inventory import Inventory, UnreadGpu
from tests.node import build


class Driver:
    """Answers with what a story gives it."""

    def __init__(self) -> None:
        self.failures: dict[int, Exception] = {}
        self.events: list[GpuEvent] = []
        self.registrations = 0

    def read(self, minor: int) -> HealthReading:
        if minor in self.failures:
            raise self.failures[minor]
        return HealthReading(minor=minor, uuid=build.gpu(minor=minor).uuid)

    def wait(self, seconds: float) -> Sequence[GpuEvent]:
        return self.events

    def register_again(self) -> None:
        self.registrations += 1


def source_of(driver: Driver, node: Inventory) -> DriverSource:
    source = DriverSource(driver.read, driver.wait, driver.register_again)
    source.update(node)
    return source


def without(node: Inventory, minor: int, *, is_named: bool = True) -> Inventory:
    """The node while one GPU cannot be read."""
    unread = UnreadGpu(index=minor, reason="lost", minor=minor if is_named else None, is_lost=True)
    gpus = tuple(gpu for gpu in node.gpus if gpu.minor != minor)
    return msgspec.structs.replace(node, gpus=gpus, unread=(unread,))


def test_what_a_board_does_not_report_is_well() -> None:
    assert translated(HealthReading(minor=3, uuid="GPU-3")) == readings.GpuReading(minor=3)


def test_everything_a_board_reports_is_passed_on() -> None:
    reading = HealthReading(
        minor=0,
        uuid="GPU-0",
        volatile_uncorrectable_errors=2,
        is_row_remap_pending=True,
        has_row_remap_failed=True,
        is_page_retirement_pending=True,
        recovery_action=RecoveryAction.DRAIN_AND_RESET,
        is_fabric_healthy=False,
        fabric_health_mask=0x11,
        clocks_events=(ClocksEvent.IDLE, ClocksEvent.POWER_BRAKE),
        temperature_celsius=97,
    )
    assert translated(reading) == readings.GpuReading(
        minor=0,
        uncorrectable_ecc_errors=2,
        is_row_remap_pending=True,
        has_row_remap_failed=True,
        are_pages_pending_retirement=True,
        recovery_action=readings.RecoveryAction.DRAIN_AND_RESET,
        fabric_fault="health mask 0x11",
        throttles=frozenset({readings.Throttle.POWER_BRAKE}),
        temperature_celsius=97,
    )


@pytest.mark.parametrize("action", [*RecoveryAction])
def test_every_recovery_action_of_a_driver_is_known(action: RecoveryAction) -> None:
    reading = translated(HealthReading(minor=0, uuid="GPU-0", recovery_action=action))
    is_nothing = action in (RecoveryAction.NONE, RecoveryAction.UNKNOWN)
    assert (reading.recovery_action is readings.RecoveryAction.NONE) == is_nothing


@pytest.mark.parametrize("is_named", [True, False])
def test_a_lost_gpu_is_still_read_and_its_return_is_a_reset(is_named: bool) -> None:
    driver = Driver()
    node = build.machine(gpus=2)
    source = source_of(driver, node)
    driver.failures[1] = gpu_control.GpuGone("gone")
    source.update(without(node, 1, is_named=is_named))
    assert [reading.is_lost for reading in source.readings()] == [False, True]
    assert source.wait_for_events(0) == ()

    source.update(node)
    assert source.wait_for_events(0) == (readings.GpuReset(minor=1),)
    assert source.wait_for_events(0) == ()


def test_a_driver_that_was_loaded_again_resets_every_gpu() -> None:
    driver = Driver()
    node = build.machine(gpus=2)
    source = source_of(driver, node)
    assert source.wait_for_events(0) == ()
    source.update(msgspec.structs.replace(node, driver_version="", gpus=()))
    assert source.wait_for_events(0) == ()
    source.update(node)
    assert source.wait_for_events(0) == (
        readings.GpuReset(minor=0),
        readings.GpuReset(minor=1),
    )


def test_a_gpu_that_does_not_answer_is_unmonitored_not_lost() -> None:
    driver = Driver()
    driver.failures[0] = gpu_control.GpuUnresponsive("hangs")
    (reading,) = source_of(driver, build.machine()).readings()
    assert not reading.is_monitored
    assert not reading.is_lost


def test_an_xid_names_its_gpu_or_every_one() -> None:
    driver = Driver()
    driver.events = [
        GpuEvent(uuid=build.gpu(minor=1).uuid, xid=79),
        GpuEvent(uuid="", xid=62),
        GpuEvent(uuid=build.gpu(minor=0).uuid, is_double_bit_error=True),
    ]
    source = source_of(driver, build.machine(gpus=2))
    assert source.wait_for_events(0) == (
        readings.XidEvent(code=79, minor=1),
        readings.XidEvent(code=62, minor=None),
    )
    assert driver.registrations == 1
