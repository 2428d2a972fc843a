"""The files around the library: what NVIDIA's programs read of a driver, and the programs that come with it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.fakenvml import nvml
from tests.fakenvml.conftest import MakeHardware
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_libraries_carry_the_driver_s_version_and_their_sonames(hopper: Hardware) -> None:
    directory = hopper.library_directory
    for stem, soname in (("libnvidia-ml", "libnvidia-ml.so.1"), ("libcuda", "libcuda.so.1")):
        versioned = directory / f"{stem}.so.580.95.05"
        assert versioned.is_file()
        assert not versioned.is_symlink()
        assert (directory / soname).resolve() == versioned.resolve()
        headers = subprocess.run(
            ["readelf", "-d", versioned], capture_output=True, text=True, check=True
        )
        assert f"Library soname: [{soname}]" in headers.stdout


def test_device_nodes_have_the_driver_s_numbers(hopper: Hardware) -> None:
    devices = hopper.driver_root / "dev"
    names = {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps"}
    assert names <= {path.name for path in devices.iterdir()}
    status = (devices / "nvidia1").stat()
    if not stat.S_ISCHR(status.st_mode):
        pytest.skip("missing: the right to make device nodes")
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (195, 1)


def test_a_partition_shows_its_capabilities_while_it_lives(hopper: Hardware) -> None:
    mig = hopper.proc_root / "driver/nvidia/capabilities/gpu1/mig"
    gi, ci = hopper.create_mig(1, 9, 4)
    minor = (
        3 + 135 + 9 * gi
    )  # as the driver counts: 135 capabilities for each GPU, nine for each instance
    assert f"DeviceFileMinor: {minor}\n" in (mig / f"gi{gi}" / "access").read_text()
    access = (mig / f"gi{gi}" / f"ci{ci}" / "access").read_text()
    assert f"DeviceFileMinor: {minor + 1}\n" in access
    listed = (hopper.proc_root / "driver/nvidia-caps/mig-minors").read_text().splitlines()
    assert f"gpu1/gi{gi}/ci{ci}/access {minor + 1}" in listed
    node = hopper.driver_root / "dev/nvidia-caps" / f"nvidia-cap{minor + 1}"
    assert node.exists()
    hopper.destroy_mig(1, gi)
    assert not (mig / f"gi{gi}").exists()
    assert not node.exists()


def test_the_majors_of_the_driver_are_listed(hopper: Hardware) -> None:
    lines = (hopper.proc_root / "devices").read_text().splitlines()
    assert "195 nvidia" in lines
    assert "236 nvidia-caps" in lines


def test_pci_devices_lead_to_root_and_numa_node(hopper: Hardware) -> None:
    device = hopper.sysfs_root / "bus/pci/devices/0000:43:00.0"
    real = device.resolve()
    assert real.parts[-3] == "pci0000:37"
    assert (device / "numa_node").read_text() == "0\n"
    assert (device / "device").read_text() == "0x2330\n"


def smi(hardware: Hardware, *arguments: str) -> str:
    """What nvidia-smi prints, started with nothing in its environment."""
    command = [str(hardware.nvidia_smi), *arguments]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout


def test_nvidia_smi_lists_gpus_and_partitions(hopper: Hardware) -> None:
    hopper.create_mig(0, 9, 4)
    state = hopper.snapshot()
    compute = state.gpus[0].gpu_instances[0].compute_instances[0]
    lines = smi(hopper, "-L").splitlines()
    assert lines[0] == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {state.gpus[0].uuid})"
    assert lines[1].split() == ["MIG", "3g.40gb", "Device", "0:", "(UUID:", f"{compute.uuid})"]
    assert "4:4" in smi(hopper, "mig", "-lgi")


def test_nvidia_smi_sets_compute_mode_and_time_slice(hopper: Hardware) -> None:
    uuid = hopper.snapshot().gpus[1].uuid
    smi(hopper, "-i", uuid, "-c", "EXCLUSIVE_PROCESS")
    smi(hopper, "compute-policy", "-i", "1", "--set-timeslice", "2")
    states = hopper.snapshot().gpus
    assert [(gpu.compute_mode, gpu.time_slice) for gpu in states] == [(0, 0), (3, 2)]
    assert [change.event for change in hopper.history()[-2:]] == ["compute-mode", "time-slice"]


def test_nvidia_smi_answers_queries(hopper: Hardware) -> None:
    printed = smi(
        hopper, "--query-gpu=index,memory.total,mig.mode.current", "--format=csv,noheader,nounits"
    )
    assert printed == "0, 81559, Enabled\n1, 81559, Enabled\n"


def test_nvidia_smi_switches_mig_mode_of_ampere_with_a_reset(make_hardware: MakeHardware) -> None:
    hardware = make_hardware(machine="dgx-a100", gpus=1)
    assert "pending" in smi(hardware, "-i", "0", "-mig", "1")
    smi(hardware, "-i", "0", "--gpu-reset")
    with nvml.client(hardware) as client:
        assert client.do("list(nvml.nvmlDeviceGetMigMode(gpus[0]))") == [1, 1]


class Mps:
    """An MPS control daemon with its own pipe directory."""

    def __init__(self, hardware: Hardware, directory: Path) -> None:
        self.program = str(hardware.mps_control)
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(directory / "log"),
            "CUDA_VISIBLE_DEVICES": hardware.snapshot().gpus[0].uuid,
        }

    def start(self) -> int:
        """Starts the daemon; the exit code of the command."""
        return subprocess.run([self.program, "-d"], env=self.environment, check=False).returncode

    def ask(self, *commands: str) -> str:
        """What the daemon answers."""
        text = "".join(f"{command}\n" for command in commands)
        done = subprocess.run(
            [self.program],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


@pytest.fixture
def mps(hopper: Hardware, tmp_path: Path) -> Iterator[Mps]:
    """A running daemon, which ends with the test."""
    daemon = Mps(hopper, tmp_path)
    assert daemon.start() == 0
    yield daemon
    if (tmp_path / "pipe" / "control").exists():
        daemon.ask("quit")


def test_the_mps_daemon_takes_limits_and_records_them(hopper: Hardware, mps: Mps) -> None:
    assert (
        mps.ask("set_default_active_thread_percentage 25", "get_default_active_thread_percentage")
        == "25.0\n25.0\n"
    )
    mps.ask("set_default_device_pinned_mem_limit 0 20G")
    assert mps.ask("get_default_device_pinned_mem_limit 0") == "20G\n"
    (daemon,) = hopper.snapshot().mps_daemons
    assert (daemon.active_thread_percentage, daemon.pinned_memory_limit) == (25, "0=20G")
    assert daemon.visible_devices == hopper.snapshot().gpus[0].uuid


def test_only_one_mps_daemon_serves_a_pipe_directory(mps: Mps) -> None:
    assert mps.start() == 1


def test_the_mps_daemon_leaves_nothing_when_it_quits(hopper: Hardware, mps: Mps) -> None:
    mps.ask("start_server -uid 0")
    server = int(mps.ask("get_server_list"))
    (daemon,) = hopper.snapshot().mps_daemons
    assert nvml.is_alive(server)
    mps.ask("quit")
    wait_until(lambda: not nvml.is_alive(daemon.pid), "the MPS daemon to end")
    assert not nvml.is_alive(server)
    assert hopper.snapshot().mps_daemons == ()
    assert [change.facts["verb"] for change in hopper.history() if change.event == "mps"] == [
        "start",
        "stop",
    ]


def test_without_a_daemon_the_mps_command_line_says_so(hopper: Hardware, tmp_path: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe")}
    command = [str(hopper.mps_control)]
    done = subprocess.run(
        command,
        env=environment,
        input="get_server_list\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Cannot find MPS control daemon" in done.stderr
