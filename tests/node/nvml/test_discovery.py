"""What the agent finds on a machine, with the real binding on a fake driver."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dovetail.node import gpu_control
from dovetail.node.nvml import control, session, sysfs
from dovetail.node.slices import layout, options
from tests.node.nvml.conftest import MakeMachine

pytestmark = pytest.mark.slow


def test_a_dgx_h100_is_found_as_it_is(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100")
    scan = machine.control.inventory()
    assert (scan.driver_version, scan.cuda_driver_version) == ("580.95.05", "13.0")
    assert [gpu.minor for gpu in scan.gpus] == list(range(8))
    assert scan.unread == ()
    state = machine.hardware.snapshot()
    assert [gpu.uuid for gpu in scan.gpus] == [gpu.uuid for gpu in state.gpus]
    assert [gpu.pci_bus_id for gpu in scan.gpus] == [gpu.bus_id for gpu in state.gpus]
    gpu = scan.gpus[0]
    assert gpu.product_name == "NVIDIA H100 80GB HBM3"
    assert (gpu.brand, gpu.architecture, gpu.cuda_compute_capability) == ("Nvidia", "Hopper", "9.0")
    assert gpu.memory_bytes == 81559 << 20
    assert (gpu.is_mig_capable, gpu.is_mig_enabled, gpu.is_mig_pending) == (True, False, False)
    assert gpu.numa_node == 0
    assert gpu.pcie_root is not None
    assert gpu.pcie_root.startswith("pci0000:")
    assert gpu.power_limit_milliwatts == 700_000
    assert gpu.nvlink_count == 18
    others = sorted(other.pci_bus_id for other in scan.gpus[1:])
    assert list(gpu.nvlink_peers) == others


def test_profiles_have_the_names_and_figures_of_the_board(make_machine: MakeMachine) -> None:
    (gpu,) = make_machine("dgx-h100", gpus=1).control.inventory().gpus
    named = {profile.name: profile for profile in gpu.mig_profiles}
    assert set(named) == {
        "1g.10gb",
        "1g.10gb+me",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
    }
    profile = named["3g.40gb"]
    assert (profile.gi_profile_id, profile.enum, profile.ci_profile_id) == (9, 2, 2)
    assert [(place.start, place.size) for place in profile.placements] == [(0, 4), (4, 4)]
    assert (profile.multiprocessors, profile.memory_bytes) == (60, 40448 << 20)


def test_an_h200_rounds_a_half_up(make_machine: MakeMachine) -> None:
    (gpu,) = make_machine("dgx-h200", gpus=1).control.inventory().gpus
    assert "3g.71gb" in {profile.name for profile in gpu.mig_profiles}


def test_a_tray_of_a_rack_has_a_fabric(make_machine: MakeMachine) -> None:
    scan = make_machine("gb200-tray").control.inventory()
    cliques = {gpu.fabric.clique for gpu in scan.gpus if gpu.fabric is not None}
    assert len(scan.gpus) == 4
    assert len(cliques) == 1
    assert all(gpu.fabric is not None and gpu.fabric.is_completed for gpu in scan.gpus)


def test_a_fabric_that_is_not_registered_yet_is_not_completed(make_machine: MakeMachine) -> None:
    machine = make_machine("gb200-tray", gpus=1)
    machine.hardware.set_fabric(0, state=2)
    (gpu,) = machine.control.inventory().gpus
    assert gpu.fabric is not None
    assert not gpu.fabric.is_completed


def test_a_degraded_fabric_is_unhealthy(make_machine: MakeMachine) -> None:
    machine = make_machine("gb200-tray", gpus=1)
    machine.hardware.set_fabric(0, health_mask=0b01)
    (gpu,) = machine.control.inventory().gpus
    assert gpu.fabric is not None
    assert not gpu.fabric.is_healthy


def test_a_t4_has_neither_mig_nor_nvlink(make_machine: MakeMachine) -> None:
    gpu = make_machine("t4").control.inventory().gpus[0]
    assert not gpu.is_mig_capable
    assert gpu.mig_profiles == ()
    assert (gpu.nvlink_count, gpu.nvlink_peers, gpu.fabric) == (0, (), None)


def test_a_lost_gpu_is_left_out_and_named(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=4)
    machine.hardware.lose(2)
    scan = machine.control.inventory()
    assert [gpu.minor for gpu in scan.gpus] == [0, 1, 3]
    (lost,) = scan.unread
    assert (lost.index, lost.is_lost) == (2, True)
    assert "lost" in lost.reason
    machine.hardware.restore(2)
    assert [gpu.minor for gpu in machine.control.inventory().gpus] == [0, 1, 2, 3]


def test_a_gpu_whose_facts_fail_is_named_by_its_minor(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)
    machine.hardware.fail("nvmlDeviceGetCudaComputeCapability", 999)
    (unread,) = machine.control.inventory().unread
    assert unread.minor == 0
    assert unread.uuid == machine.hardware.snapshot().gpus[0].uuid
    assert not unread.is_lost


def test_mig_devices_made_by_hand_are_found(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1, mig=True)
    gi_id, ci_id = machine.hardware.create_mig(0, 9, 4)
    (gpu,) = machine.control.inventory().gpus
    (mig,) = gpu.mig_devices
    assert (mig.gi_id, mig.ci_id, mig.gi_profile_id) == (gi_id, ci_id, 9)
    assert (mig.placement.start, mig.placement.size) == (4, 4)
    assert mig.uuid.startswith("MIG-")
    assert mig.is_whole


def test_an_old_driver_lacks_functions_and_is_read_all_the_same(make_machine: MakeMachine) -> None:
    newer = (
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetAddressingMode",
        "nvmlDeviceGetModuleId",
    )
    machine = make_machine("dgx-a100", gpus=2, hidden=newer)
    scan = machine.control.inventory()
    assert [gpu.addressing_mode for gpu in scan.gpus] == [None, None]
    assert scan.gpus[0].module_id is None
    assert scan.gpus[0].fabric is None
    assert len(scan.gpus[0].mig_profiles) == 7


def test_a_gpu_partitioned_for_claims_is_published_as_before(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=4)
    before = machine.control.inventory()
    machine.control.set_mig_mode(0, enabled=True)
    machine.control.create_mig_device(0, gi_profile_id=9, start=4)
    after = machine.control.inventory()
    assert len(after.gpus[0].mig_devices) == 1
    dynamic = options.SliceOptions(is_mig_dynamic=True)
    assert layout.contents(after, dynamic) == layout.contents(before, dynamic)


def test_a_scan_is_not_confused_by_partitions_that_come_and_go(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2, mig=True)
    is_over = threading.Event()

    def repartition() -> None:
        while not is_over.is_set():
            gi_id, _ = machine.hardware.create_mig(0, 19)
            machine.hardware.destroy_mig(0, gi_id)

    worker = threading.Thread(target=repartition)
    worker.start()
    try:
        scans = [machine.control.inventory() for _ in range(200)]
        lists = [machine.control.mig_devices(0) for _ in range(200)]
    finally:
        is_over.set()
        worker.join()
    assert [scan.unread for scan in scans if scan.unread] == []
    assert all(len(scan.gpus) == 2 for scan in scans)
    assert all(len(each) <= 1 for each in lists)


def test_the_kernel_knows_the_machine(tmp_path: Path) -> None:
    assert sysfs.machine_type(tmp_path) is None
    folder = tmp_path / "class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "product_name").write_text("DGXH100\n")
    assert sysfs.machine_type(tmp_path) == "DGXH100"


def test_where_no_driver_is_installed_that_is_said(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    empty = tmp_path_factory.mktemp("no-driver")
    nothing = control.NvmlControl(session.Session(empty))
    with pytest.raises(gpu_control.DriverUnavailable, match="is the NVIDIA driver installed"):
        nothing.inventory()
