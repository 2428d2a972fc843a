"""Readings and events: what the hardware was given is what the agent reads."""

from __future__ import annotations

import pytest

from dovetail.node import gpu_control
from dovetail.node.health_reading import ClocksEvent, FabricState, GpuEvent, RecoveryAction
from dovetail.node.nvml import events
from tests.node.nvml.conftest import MakeMachine

pytestmark = pytest.mark.slow


def test_a_healthy_gpu_reads_as_one(make_machine: MakeMachine) -> None:
    reading = make_machine("dgx-h100", gpus=1).control.health(0)
    assert reading.volatile_uncorrectable_errors == 0
    assert (reading.is_row_remap_pending, reading.has_row_remap_failed) == (False, False)
    assert reading.recovery_action is RecoveryAction.NONE
    assert reading.clocks_events == (ClocksEvent.IDLE,)


def test_every_figure_is_read(make_machine: MakeMachine) -> None:
    machine = make_machine("gb200-tray", gpus=2)
    hardware = machine.hardware
    hardware.set_ecc(1, corrected=3, uncorrected=2)
    hardware.set_row_remap(1, correctable=4, uncorrectable=5, pending=True, failure=True)
    hardware.set_recovery_action(1, 4)
    hardware.set_fabric(1, state=2, health_mask=0b01)
    hardware.set_temperature(1, 91)
    hardware.set_power(1, watts=850.5)
    hardware.set_throttle_reasons(1, 0x4 | 0x40)
    reading = machine.control.health(1)
    assert reading.uuid == hardware.snapshot().gpus[1].uuid
    assert reading.volatile_uncorrectable_errors == 2
    assert reading.aggregate_uncorrectable_errors == 2
    assert reading.volatile_correctable_errors == 3
    assert (reading.remapped_rows_correctable, reading.remapped_rows_uncorrectable) == (4, 5)
    assert (reading.is_row_remap_pending, reading.has_row_remap_failed) == (True, True)
    assert reading.recovery_action is RecoveryAction.DRAIN_AND_RESET
    assert reading.fabric_state is FabricState.IN_PROGRESS
    assert (reading.fabric_health_mask, reading.is_fabric_healthy) == (1, False)
    assert reading.clocks_events == (ClocksEvent.POWER_CAP, ClocksEvent.HARDWARE_THERMAL_SLOWDOWN)
    assert (reading.temperature_celsius, reading.power_milliwatts) == (91, 850_500)
    assert machine.control.health(0).volatile_uncorrectable_errors == 0


def test_an_old_driver_has_fewer_figures(make_machine: MakeMachine) -> None:
    hidden = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetCurrentClocksEventReasons")
    reading = make_machine("dgx-h100", gpus=1, hidden=hidden).control.health(0)
    assert reading.recovery_action is None
    assert reading.clocks_events == (ClocksEvent.IDLE,)


def test_an_old_board_retires_pages_instead_of_rows(make_machine: MakeMachine) -> None:
    reading = make_machine("t4", gpus=1).control.health(0)
    assert reading.retired_pages == 0
    assert reading.is_row_remap_pending is None


def test_a_lost_gpu_has_no_reading(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.hardware.lose(0)
    with pytest.raises(gpu_control.GpuGone):
        machine.control.health(0)


def test_an_xid_reaches_the_waiter_with_its_gpu(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    waiter = events.EventWaiter(machine.session)
    assert waiter.wait(0.0) == []
    machine.hardware.inject_xid(1, 48)
    uuid = machine.hardware.snapshot().gpus[1].uuid
    assert waiter.wait(30.0) == [GpuEvent(uuid=uuid, xid=48)]


def test_an_xid_of_a_mig_device_names_its_instances(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    mig = machine.control.create_mig_device(0, gi_profile_id=9, start=0)
    waiter = events.EventWaiter(machine.session)
    waiter.wait(0.0)
    machine.hardware.inject_xid(0, 13, gi=mig.gi_id, ci=mig.ci_id)
    (event,) = waiter.wait(30.0)
    assert (event.xid, event.gi_id, event.ci_id) == (13, mig.gi_id, mig.ci_id)


def test_a_storm_arrives_together(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    waiter = events.EventWaiter(machine.session)
    waiter.wait(0.0)
    for xid in (31, 43, 45):
        machine.hardware.inject_xid(0, xid)
    assert [event.xid for event in waiter.wait(30.0)] == [31, 43, 45]


def test_after_the_driver_was_replaced_events_still_come(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    waiter = events.EventWaiter(machine.session)
    waiter.wait(0.0)
    machine.hardware.reload_driver()
    waiter.wait(0.0)
    machine.hardware.inject_xid(0, 94)
    assert [event.xid for event in waiter.wait(30.0)] == [94]
