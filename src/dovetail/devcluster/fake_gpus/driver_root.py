"""The files a GPU driver would have left on the machine: driver root, /sys and /proc, under the machine's directory.

Given a directory, a finished build and the machine's state, writes them: libraries and programs with the driver's
version in their names, device nodes (empty files where the kernel refuses them), PCI devices, capabilities. The library
itself keeps the files of partitions up to date afterwards. Never touches anything outside the directory.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from dovetail.devcluster.fake_gpus import fake_library, hardware_state

LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu")
BINARIES: Final = Path("usr/bin")
NVIDIA_MAJOR: Final = 195
PCI_CONFIG_BYTES: Final = 256
UVM_MAJOR: Final = 510
IMEX_MAJOR: Final = 234
CONTROL_MINOR, MODESET_MINOR = 255, 254
INSTANCES, COMPUTE_INSTANCES = 15, 8  # the capabilities a driver numbers for each GPU
FIRST_CAPABILITY: Final = 3
MODE: Final = 0o666
CONFIG_MODE, MONITOR_MODE = 0o400, 0o444  # for configuring and monitoring MIG


def driver_of(home: Path) -> Path:
    """The driver root."""
    return home / "driver"


def write(home: Path, machine: hardware_state.MachineState, build: Path) -> None:
    """All files of a machine. An existing driver root is replaced library by library."""
    write_libraries(home, machine.driver_version, build)
    _write_programs(driver_of(home) / BINARIES, build)
    _write_proc(home / "proc", machine)
    (driver_of(home) / "dev" / "nvidia-caps").mkdir(parents=True, exist_ok=True)
    _write_control_nodes(driver_of(home) / "dev", machine)
    for gpu in machine.gpus:
        write_gpu(home, gpu)


def write_libraries(home: Path, version: str, build: Path) -> None:
    """The libraries under their versioned names, with the links a linker would have made."""
    directory = driver_of(home) / LIBRARIES
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name in (fake_library.LIBRARY, *fake_library.EMPTY_LIBRARIES):
        stem = name.partition(".so")[0]
        versioned = directory / f"{stem}.so.{version}"
        # Copied next to it and renamed: a program that has the old file open keeps it.
        shutil.copy(build / name, directory / "unfinished")
        (directory / "unfinished").rename(versioned)
        for link in {name, f"{stem}.so"}:
            (directory / link).symlink_to(versioned.name)


def write_gpu(home: Path, gpu: hardware_state.GpuState) -> None:
    """The device node, the PCI device and the proc files of one GPU."""
    _node(driver_of(home) / "dev" / f"nvidia{gpu.minor}", NVIDIA_MAJOR, gpu.minor)
    _write_pci_device(home / "sys", gpu)
    information = home / "proc/driver/nvidia/gpus" / gpu.bus_id
    information.mkdir(parents=True, exist_ok=True)
    text = (
        f"Model: \t\t {gpu.product}\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t {gpu.vbios}\n"
        f"Bus Type: \t PCIe\nBus Location: \t {gpu.bus_id}\nDevice Minor: \t {gpu.minor}\n"
    )
    (information / "information").write_text(text, encoding="ascii")
    if gpu.mig_capable:
        mig = home / f"proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig"
        mig.mkdir(parents=True, exist_ok=True)


def _write_programs(directory: Path, build: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for program in fake_library.PROGRAMS:
        shutil.copy(build / program, directory / program)


def _write_control_nodes(devices: Path, machine: hardware_state.MachineState) -> None:
    _node(devices / "nvidiactl", NVIDIA_MAJOR, CONTROL_MINOR)
    _node(devices / "nvidia-modeset", NVIDIA_MAJOR, MODESET_MINOR)
    _node(devices / "nvidia-uvm", UVM_MAJOR, 0)
    _node(devices / "nvidia-uvm-tools", UVM_MAJOR, 1)
    for minor, mode in ((1, CONFIG_MODE), (2, MONITOR_MODE)):
        node = devices / "nvidia-caps" / f"nvidia-cap{minor}"
        _node(node, machine.caps_major, minor, mode=mode)


def _write_proc(proc: Path, machine: hardware_state.MachineState) -> None:
    capabilities = proc / "driver/nvidia/capabilities"
    (capabilities / "mig").mkdir(parents=True, exist_ok=True)
    for name, minor, mode in (("config", 1, CONFIG_MODE), ("monitor", 2, MONITOR_MODE)):
        access = f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"
        (capabilities / "mig" / name).write_text(access, encoding="ascii")
    minors = [("config", 1), ("monitor", 2)]
    for gpu in machine.gpus:
        minors += _capability_minors(gpu.minor)
    (proc / "driver/nvidia-caps").mkdir(parents=True, exist_ok=True)
    listed = "".join(f"{name} {minor}\n" for name, minor in minors)
    (proc / "driver/nvidia-caps/mig-minors").write_text(listed, encoding="ascii")
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {machine.driver_version}\n"
    (proc / "driver/nvidia/version").write_text(version, encoding="ascii")
    (proc / "devices").write_text(_devices(machine.caps_major), encoding="ascii")


def _capability_minors(gpu_minor: int) -> list[tuple[str, int]]:
    first = FIRST_CAPABILITY + gpu_minor * INSTANCES * (1 + COMPUTE_INSTANCES)
    minors = []
    for instance in range(INSTANCES):
        own = first + instance * (1 + COMPUTE_INSTANCES)
        minors.append((f"gpu{gpu_minor}/gi{instance}/access", own))
        for compute in range(COMPUTE_INSTANCES):
            minors.append((f"gpu{gpu_minor}/gi{instance}/ci{compute}/access", own + 1 + compute))
    return minors


def _devices(caps_major: int) -> str:
    """The majors of the driver, in the form of /proc/devices."""
    majors = {
        1: "mem",
        NVIDIA_MAJOR: "nvidia",
        IMEX_MAJOR: "nvidia-caps-imex-channels",
        caps_major: "nvidia-caps",
        UVM_MAJOR: "nvidia-uvm",
    }
    lines = [f"{major:3} {name}" for major, name in sorted(majors.items())]
    return "Character devices:\n" + "\n".join(lines) + "\n\nBlock devices:\n  8 sd\n"


def _write_pci_device(sys: Path, gpu: hardware_state.GpuState) -> None:
    """devices/pci<root>/<bridge>/<GPU> with its files, and the link under bus/pci/devices that programs follow."""
    domain, root_bus = gpu.pcie_root >> 8, gpu.pcie_root & 0xFF
    bridge = f"{domain:04x}:{root_bus:02x}:01.0"
    device = sys / "devices" / f"pci{domain:04x}:{root_bus:02x}" / bridge / gpu.bus_id
    device.mkdir(parents=True, exist_ok=True)
    files = {
        "numa_node": str(gpu.numa_node),
        "vendor": f"0x{gpu.pci_device_id & 0xFFFF:04x}",
        "device": f"0x{gpu.pci_device_id >> 16:04x}",
        "class": "0x030200",
        "resource": " ".join(["0x" + "0" * 16] * 3),  # no memory regions; NVIDIA's programs read it
        "local_cpulist": f"{gpu.first_cpu}-{gpu.first_cpu + max(gpu.cpu_count, 1) - 1}",
    }
    for name, text in files.items():
        (device / name).write_text(text + "\n", encoding="ascii")
    (device / "config").write_bytes(bytes(PCI_CONFIG_BYTES))  # no capabilities, such as a vGPU's
    links = sys / "bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    link = links / gpu.bus_id
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(device, links))


def _node(path: Path, major: int, minor: int, *, mode: int = MODE) -> None:
    """A character device where the kernel allows it, else an empty file."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    except PermissionError:
        path.touch()
    path.chmod(mode)
