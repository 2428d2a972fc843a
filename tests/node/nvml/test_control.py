"""Changes of GPUs: MIG mode, MIG devices, compute mode, time slices; seen in the hardware's own history."""

from __future__ import annotations

import pytest

from dovetail.node import gpu_control
from dovetail.node.inventory import ComputeMode, TimeSlice
from tests.node.nvml.conftest import MakeMachine

pytestmark = pytest.mark.slow


def test_a_mig_device_is_made_at_its_place_and_destroyed(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.control.set_mig_mode(0, enabled=True)
    mig = machine.control.create_mig_device(0, gi_profile_id=9, start=4)
    assert (mig.placement.start, mig.placement.size) == (4, 4)
    assert mig.ci_id is not None
    assert machine.control.mig_devices(0) == (mig,)
    (instance,) = machine.hardware.snapshot().gpus[0].gpu_instances
    assert instance.id == mig.gi_id
    machine.control.destroy_mig_device(0, gi_id=mig.gi_id)
    assert machine.control.mig_devices(0) == ()
    machine.control.set_mig_mode(0, enabled=False)
    assert not machine.control.inventory().gpus[0].is_mig_enabled


def test_seven_small_devices_fit_and_each_has_its_own_uuid(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    devices = [
        machine.control.create_mig_device(0, gi_profile_id=19, start=start) for start in range(7)
    ]
    assert len({device.uuid for device in devices}) == 7
    assert machine.control.mig_devices(0) == tuple(devices)


def test_an_occupied_place_is_in_use(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    machine.control.create_mig_device(0, gi_profile_id=9, start=0)
    with pytest.raises(gpu_control.GpuInUse, match="profile 14 at 2"):
        machine.control.create_mig_device(0, gi_profile_id=14, start=2)


def test_a_place_that_no_profile_has_is_refused_with_those_it_has(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    with pytest.raises(gpu_control.GpuUnsupported, match="it can at 0, 4"):
        machine.control.create_mig_device(0, gi_profile_id=9, start=1)


def test_without_mig_mode_no_device_is_made(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    with pytest.raises(gpu_control.GpuUnsupported):
        machine.control.create_mig_device(0, gi_profile_id=9, start=0)


def test_a_gpu_instance_whose_compute_instance_fails_is_undone(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    machine.hardware.fail("nvmlGpuInstanceCreateComputeInstance", 999)
    with pytest.raises(gpu_control.GpuFailure):
        machine.control.create_mig_device(0, gi_profile_id=9, start=0)
    assert machine.hardware.snapshot().gpus[0].gpu_instances == ()


def test_destroying_what_is_gone_is_nothing(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2, mig=True)
    machine.control.destroy_mig_device(0, gi_id=7)
    machine.control.set_mig_mode(1, enabled=False)
    machine.control.destroy_mig_device(1, gi_id=7)


def test_a_gpu_instance_without_compute_instance_is_listed_and_destroyed(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    machine.control.create_mig_device(0, gi_profile_id=19, start=0)
    machine.hardware.fail("nvmlGpuInstanceCreateComputeInstance", 999)
    machine.hardware.fail("nvmlGpuInstanceDestroy", 19)
    with pytest.raises(gpu_control.GpuFailure):
        machine.control.create_mig_device(0, gi_profile_id=9, start=4)
    machine.hardware.release()
    half = next(device for device in machine.control.mig_devices(0) if not device.uuid)
    assert (half.ci_id, half.placement.start) == (None, 4)
    machine.control.destroy_mig_device(0, gi_id=half.gi_id)
    assert [device.placement.start for device in machine.control.mig_devices(0)] == [0]


def test_a_device_in_use_stays(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    mig = machine.control.create_mig_device(0, gi_profile_id=9, start=0)
    machine.hardware.fail("nvmlComputeInstanceDestroy", 19)
    with pytest.raises(gpu_control.GpuInUse):
        machine.control.destroy_mig_device(0, gi_id=mig.gi_id)
    assert machine.control.mig_devices(0) == (mig,)


def test_mig_mode_of_a_gpu_in_use_stays(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.hardware.set_holders(0, 1)
    with pytest.raises(gpu_control.GpuInUse):
        machine.control.set_mig_mode(0, enabled=True)
    assert not machine.control.inventory().gpus[0].is_mig_enabled


def test_on_ampere_mig_mode_is_not_touched(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-a100", gpus=1)
    with pytest.raises(gpu_control.GpuUnsupported, match="needs a reset"):
        machine.control.set_mig_mode(0, enabled=True)
    (gpu,) = machine.control.inventory().gpus
    assert (gpu.is_mig_enabled, gpu.is_mig_pending) == (False, False)
    machine.control.set_mig_mode(0, enabled=False)


def test_the_mode_a_reset_would_bring_is_pending(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-a100", gpus=1)
    machine.hardware.set_mig_mode(0, True)
    (gpu,) = machine.control.inventory().gpus
    assert (gpu.is_mig_enabled, gpu.is_mig_pending) == (False, True)


def test_a_board_without_mig_says_so(make_machine: MakeMachine) -> None:
    machine = make_machine("t4", gpus=1)
    with pytest.raises(gpu_control.GpuUnsupported, match="has no MIG"):
        machine.control.set_mig_mode(0, enabled=True)


def test_the_compute_mode_is_set_and_read(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    assert machine.control.compute_mode(1) is ComputeMode.DEFAULT
    machine.control.set_compute_mode(1, ComputeMode.EXCLUSIVE_PROCESS)
    assert machine.control.compute_mode(1) is ComputeMode.EXCLUSIVE_PROCESS
    assert machine.control.compute_mode(0) is ComputeMode.DEFAULT


def test_the_time_slice_is_set_by_the_drivers_own_program(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    machine.control.set_time_slice(1, TimeSlice.LONG)
    assert [gpu.time_slice for gpu in machine.hardware.snapshot().gpus] == [0, 3]
    machine.control.set_time_slice(1, TimeSlice.DEFAULT)
    assert [gpu.time_slice for gpu in machine.hardware.snapshot().gpus] == [0, 0]


def test_a_gpu_that_is_not_there_is_gone(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    with pytest.raises(gpu_control.GpuGone):
        machine.control.compute_mode(5)


def test_a_lost_gpu_is_gone_and_comes_back(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    assert machine.control.compute_mode(0) is ComputeMode.DEFAULT
    machine.hardware.lose(0)
    with pytest.raises(gpu_control.GpuGone):
        machine.control.compute_mode(0)
    machine.hardware.restore(0)
    assert machine.control.compute_mode(0) is ComputeMode.DEFAULT


@pytest.mark.parametrize(
    ("exit_code", "failure"),
    [
        (3, gpu_control.GpuUnsupported),
        (9, gpu_control.DriverUnavailable),
        (15, gpu_control.GpuGone),
        (255, gpu_control.GpuFailure),
    ],
)
def test_a_program_that_fails_says_why_by_its_exit_code(
    make_machine: MakeMachine, exit_code: int, failure: type[gpu_control.GpuFailure]
) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    program = machine.hardware.nvidia_smi
    program.unlink()
    program.write_text(f"#!/bin/sh\necho the driver objects\nexit {exit_code}\n")
    program.chmod(0o755)
    with pytest.raises(failure, match="the driver objects") as raised:
        machine.control.set_time_slice(0, TimeSlice.SHORT)
    assert raised.type is failure


def test_a_driver_without_its_program_cannot_set_time_slices(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.hardware.nvidia_smi.unlink()
    with pytest.raises(gpu_control.DriverUnavailable, match="nvidia-smi"):
        machine.control.set_time_slice(0, TimeSlice.SHORT)
