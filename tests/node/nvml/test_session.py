"""The session: deadlines, GPUs that hang, drivers that go and come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node import gpu_control
from dovetail.node.inventory import ComputeMode
from tests.node.nvml.conftest import Machine, MakeMachine
from tests.support import waiting

pytestmark = pytest.mark.slow


def test_a_call_that_hangs_is_given_up_and_later_calls_fail_at_once(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    machine.control.inventory()
    machine.hardware.hang("nvmlDeviceGetComputeMode")
    machine.session.call_seconds = 0.5
    with pytest.raises(gpu_control.GpuUnresponsive, match=r"within 0\.5 s"):
        machine.control.compute_mode(0)
    machine.session.call_seconds = waiting.GIVE_UP_SECONDS
    with pytest.raises(gpu_control.GpuUnresponsive, match="has not answered for"):
        machine.control.compute_mode(0)
    machine.hardware.release()

    def answers() -> bool:
        try:
            return machine.control.compute_mode(0) is ComputeMode.DEFAULT
        except gpu_control.GpuUnresponsive:
            return False

    waiting.wait_until(answers, "the hung call to return")


def test_a_gpu_that_hangs_does_not_stop_another(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    machine.control.inventory()
    machine.hardware.hang("nvmlDeviceGetComputeMode")
    machine.session.call_seconds = 0.5
    with pytest.raises(gpu_control.GpuUnresponsive):
        machine.control.compute_mode(0)
    machine.session.call_seconds = waiting.GIVE_UP_SECONDS
    # Another GPU is asked for something else: neither its lane nor the library is blocked.
    assert machine.control.mig_devices(1) == ()
    assert machine.control.health(1).temperature_celsius is not None


def test_two_machines_in_one_process_do_not_mix(make_machine: MakeMachine, tmp_path: Path) -> None:
    first = make_machine("dgx-h100", gpus=2)
    second = Machine(Hardware.create(tmp_path / "second", machine="t4", gpus=1))
    assert len(first.control.inventory().gpus) == 2
    (other,) = second.control.inventory().gpus
    assert other.product_name == "Tesla T4"
    assert len(first.control.inventory().gpus) == 2
    second.session.close()


def test_a_replaced_driver_is_opened_again(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    assert machine.control.inventory().driver_version == "580.95.05"
    machine.hardware.reload_driver("590.44.01", "13.1")
    found = machine.control.inventory()
    assert (found.driver_version, found.cuda_driver_version) == ("590.44.01", "13.1")
    assert len(found.gpus) == 2
    assert machine.control.compute_mode(1) is ComputeMode.DEFAULT


def test_a_change_is_not_repeated_by_itself_when_the_driver_was_replaced(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.control.inventory()
    machine.hardware.reload_driver()
    with pytest.raises(gpu_control.GpuFailure):
        machine.control.set_compute_mode(0, ComputeMode.PROHIBITED)
    machine.control.set_compute_mode(0, ComputeMode.PROHIBITED)
    assert machine.control.compute_mode(0) is ComputeMode.PROHIBITED


def test_a_read_finds_the_gpu_again_when_the_same_driver_was_reloaded(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    machine.control.inventory()
    machine.hardware.reload_driver()
    assert machine.control.health(1).temperature_celsius is not None
    assert len(machine.control.inventory().gpus) == 2


def test_a_driver_that_is_not_loaded_is_asked_again_and_again(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.hardware.fail("nvmlInitWithFlags", 9)
    for _ in range(3):
        with pytest.raises(gpu_control.DriverUnavailable):
            machine.control.inventory()
    machine.hardware.release()
    assert len(machine.control.inventory().gpus) == 1
