"""The session: deadlines, GPUs that hang, drivers that go and come back."""

from __future__ import annotations

import threading
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


def test_a_scan_names_all_gpus_that_hang_and_finds_them_again(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    machine.control.inventory()
    machine.hardware.hang("nvmlDeviceGetCudaComputeCapability")
    machine.session.call_seconds = 5.0
    stuck = machine.control.inventory()
    assert stuck.gpus == ()
    assert [(gpu.minor, gpu.is_lost) for gpu in stuck.unread] == [(0, False), (1, False)]
    machine.session.call_seconds = waiting.GIVE_UP_SECONDS
    machine.hardware.release()
    waiting.wait_until(
        lambda: len(machine.control.inventory().gpus) == 2, "both GPUs to be read again"
    )


def test_two_machines_in_one_process_do_not_mix(make_machine: MakeMachine, tmp_path: Path) -> None:
    first = make_machine("dgx-h100", gpus=2)
    second = Machine(Hardware.create(tmp_path / "second", machine="t4", gpus=1))
    assert len(first.control.inventory().gpus) == 2
    (other,) = second.control.inventory().gpus
    assert other.product_name == "Tesla T4"
    assert len(first.control.inventory().gpus) == 2
    second.session.close()


def test_opening_again_waits_for_work_in_progress(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=4, mig=True)
    finished: list[int] = []

    def partition(minor: int) -> None:
        for _ in range(10):
            mig = machine.control.create_mig_device(minor, gi_profile_id=9, start=0)
            machine.control.destroy_mig_device(minor, gi_id=mig.gi_id)
        finished.append(minor)

    workers = [threading.Thread(target=partition, args=(minor,)) for minor in range(4)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        machine.session.reopen()
    assert sorted(finished) == [0, 1, 2, 3]
    assert all(gpu.gpu_instances == () for gpu in machine.hardware.snapshot().gpus)


def test_a_replaced_driver_is_opened_again(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    assert machine.control.inventory().driver_version == "580.95.05"
    machine.hardware.reload_driver("590.44.01", "13.1")
    scan = machine.control.inventory()
    assert (scan.driver_version, scan.cuda_driver_version) == ("590.44.01", "13.1")
    assert len(scan.gpus) == 2
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
