"""The machines that can be faked: which board, how many, how they are connected. By name or from a file.

Given a machine, writes the description its hardware is made from: identity of every GPU (the same for the same machine
name), PCI and NUMA places, NVLink, fabric, MIG profiles with the catalogue's figures. Never touches a directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors, gpus
from dovetail.devcluster.fake_gpus import board_estimates

NVIDIA_VENDOR_ID: Final = 0x10DE
CAPS_MAJOR: Final = 236
MIB: Final = 1024**2
RESERVED_BYTES: Final = 640 * MIB  # what the driver keeps for itself; about what nvidia-smi shows

ARCHITECTURES: Final = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
BRAND_NVIDIA: Final = 14
ADDRESSING_NONE, ADDRESSING_HMM, ADDRESSING_ATS = 0, 1, 2
FABRIC_NOT_SUPPORTED, FABRIC_COMPLETED = 0, 3
FABRIC_HEALTHY: Final = 1
HOPPER: Final = 9
NVLINK: Final = {3: (12, 25781), 4: (18, 26562), 5: (18, 53125)}  # generation: links, MB/s of one

_NAMESPACE: Final = uuid.UUID("6f9b1c9e-3f5a-5a51-9d0e-6b0c6a2f4d11")


class UnknownMachine(errors.DovetailError):
    """No machine of this name or file."""


class Slot(msgspec.Struct, frozen=True):
    """Where a GPU sits: PCI address, root complex, PCIe switch and NUMA node."""

    domain: int
    bus: int
    root: int
    switch: int
    numa_node: int


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of server. `nvlink_peers` are direct links; without them all links end at switches."""

    name: str
    board: str
    slots: tuple[Slot, ...]
    has_nvlink: bool = True
    nvlink_peers: tuple[tuple[int, ...], ...] = ()
    fabric_clique: int | None = None  # set: part of a rack whose GPUs share one NVLink domain
    cpus: int = 128


def named(name: str) -> Machine:
    """A machine by its name, or from a YAML or JSON file."""
    machine = MACHINES.get(ALIASES.get(name, name))
    if machine is not None:
        return machine
    path = Path(name)
    if path.is_file():
        content = path.read_bytes()
        return msgspec.yaml.decode(content, type=Machine)
    raise UnknownMachine(
        f'unknown machine "{name}"; known: {", ".join(sorted(MACHINES))}, or a file'
    )


def description(
    machine: Machine,
    *,
    count: int,
    driver_version: str,
    nvml_version: str,
    cuda_version: int,
    mig: bool,
) -> str:
    """The text a machine is made from: lines of a name, a tab and a value."""
    lines = [
        f"name\t{machine.name}",
        f"driver_version\t{driver_version}",
        f"nvml_version\t{nvml_version}",
        f"cuda_version\t{cuda_version}",
        f"caps_major\t{CAPS_MAJOR}",
    ]
    lines += [line for index in range(count) for line in gpu_lines(machine, index, mig=mig)]
    return "\n".join(lines)


def gpu_lines(machine: Machine, index: int, *, mig: bool) -> Iterator[str]:
    """The lines of one GPU, first the one that begins it."""
    board = _board(machine)
    yield "gpu"
    figures = {
        **_identity(machine, board, index),
        **_place(machine, index),
        **_memory_and_power(board),
        **_links(machine, board, index),
        **_partitions(board, mig=mig),
    }
    for name, value in figures.items():
        yield f"{name}\t{value}"
    for profile in gpus.profiles(board):
        if profile.starts is not None:
            yield f"profile\t{_profile(board, profile)}"


def slot_of(machine: Machine, index: int) -> Slot:
    """A machine may be given more GPUs than it has slots: they follow on further buses of the first root."""
    if index < len(machine.slots):
        return machine.slots[index]
    first = machine.slots[0]
    return msgspec.structs.replace(first, bus=0xE0 + index - len(machine.slots))


def _board(machine: Machine) -> gpus.Gpu:
    board = gpus.by_name(machine.board)
    if board is None:
        known = ", ".join(gpu.name for gpu in gpus.all_gpus())
        raise UnknownMachine(
            f'machine {machine.name}: unknown board "{machine.board}"; known: {known}'
        )
    return board


def _is_superchip(machine: Machine) -> bool:
    """CPU and GPU share an address space, and the GPU's memory is a NUMA node of its own."""
    return _board(machine).form_factor.value == "superchip"


def _identity(machine: Machine, board: gpus.Gpu, index: int) -> dict[str, str | int]:
    architecture = ARCHITECTURES[board.architecture.value]
    major, minor = board.compute_capability.value.split(".")
    own = uuid.uuid5(_NAMESPACE, f"{machine.name}/{index}")
    device_id = int(board.pci_device_ids.value[0], 16) if board.pci_device_ids else 0
    build = board_estimates.build_of(board.name)
    return {
        "product": board.product.value,
        "uuid": f"GPU-{own}",
        "serial": str(1_320_000_000_000 + own.int % 10**9),
        "vbios": build.vbios,
        "part_number": f"900-{device_id:05d}-0000-000",
        "minor": index,
        "module_id": index + 1,
        "brand": BRAND_NVIDIA,
        "architecture": architecture,
        "compute_major": major,
        "compute_minor": minor,
        "cores": build.cores,
        "memory_bus_width": build.memory_bus_width,
        "addressing_mode": ADDRESSING_ATS if _is_superchip(machine) else ADDRESSING_HMM,
        "pci_device_id": device_id << 16 | NVIDIA_VENDOR_ID,
        "pci_subsystem_id": 0x1000 << 16 | NVIDIA_VENDOR_ID,
        "pcie_generation": build.pcie_generation,
        "pcie_width": 16,
    }


def _place(machine: Machine, index: int) -> dict[str, str | int]:
    slot = slot_of(machine, index)
    nodes = sorted({each.numa_node for each in machine.slots})
    per_node = machine.cpus // max(nodes[-1] + 1, 1)
    return {
        "pci_domain": slot.domain,
        "pci_bus": slot.bus,
        "pci_device": 0,
        "pcie_root": slot.domain << 8 | slot.root,
        "pcie_switch": slot.switch,
        "numa_node": slot.numa_node,
        "memory_numa_node": 2 + 8 * index if _is_superchip(machine) else -1,
        "first_cpu": slot.numa_node * per_node,
        "cpu_count": per_node,
    }


def _memory_and_power(board: gpus.Gpu) -> dict[str, str | int]:
    memory_bytes = board.memory_bytes.value if board.memory_bytes else 16 * 1024 * MIB
    milliwatts = (board.tdp_watts.value if board.tdp_watts else 300) * 1000
    build = board_estimates.build_of(board.name)
    return {
        "memory_bytes": memory_bytes,
        "memory_reserved_bytes": RESERVED_BYTES,
        "bar1_bytes": 1 << (memory_bytes - 1).bit_length(),
        "persistence_mode": 1,
        "power_limit_milliwatts": milliwatts,
        "power_default_milliwatts": milliwatts,
        "power_minimum_milliwatts": milliwatts // 4,
        "power_maximum_milliwatts": milliwatts,
        "power_usage_milliwatts": milliwatts // 10,
        "temperature": 32,
        "memory_temperature": 38,
        "sm_clock_mhz": 345,
        "memory_clock_mhz": build.memory_clock_mhz,
        "maximum_sm_clock_mhz": build.sm_clock_mhz,
        "maximum_memory_clock_mhz": build.memory_clock_mhz,
        "throttle_reasons": 1,  # idle
        "ecc_mode": 1,
        "ecc_pending_mode": 1,
    }


def _links(machine: Machine, board: gpus.Gpu, index: int) -> dict[str, str | int]:
    """NVLink, and the fabric of Hopper and newer: completed at once; only racks have a cluster."""
    generation = board.nvlink_generation.value if board.nvlink_generation else 0
    if not machine.has_nvlink or generation not in NVLINK:
        return {"fabric_state": FABRIC_NOT_SUPPORTED}
    links, mbps = NVLINK[generation]
    peers = machine.nvlink_peers[index] if index < len(machine.nvlink_peers) else ()
    figures: dict[str, str | int] = {
        "nvlink_count": links,
        "nvlink_version": generation,
        "nvlink_mbps": mbps,
        "nvlink_peers": ",".join(str(peer) for peer in peers),
    }
    if ARCHITECTURES[board.architecture.value] >= HOPPER:
        figures |= {"fabric_state": FABRIC_COMPLETED, "fabric_health_summary": FABRIC_HEALTHY}
    if machine.fabric_clique is not None:
        figures |= {
            "fabric_cluster": str(uuid.uuid5(_NAMESPACE, f"{machine.name}/cluster")),
            "fabric_clique": machine.fabric_clique,
            "chassis_serial": "1820225190001",
            "slot_number": 1,
            "tray_index": 1,
            "host_id": 1,
            "peer_type": 1,
        }
    return figures


def _partitions(board: gpus.Gpu, *, mig: bool) -> dict[str, str | int]:
    if board.mig is None:
        return {"mig_capable": 0}
    is_resetless = ARCHITECTURES[board.architecture.value] >= HOPPER
    return {
        "mig_capable": 1,
        "mig_without_reset": int(is_resetless),
        "mig_mode": int(mig),
        "mig_pending": int(mig),
        "mig_max_devices": board.mig.compute_slices,
        "memory_slices": board.mig.memory_slices,
    }


def _profile(board: gpus.Gpu, profile: gpus.Profile) -> str:
    figures = board_estimates.complete(board, profile)
    starts = sum(1 << start for start in figures.starts)
    numbers = (
        _nvml_number(profile), figures.gi_profile_id, profile.compute_slices.value, figures.memory_slices,
        profile.max_instances.value, starts, figures.memory_mib, figures.multiprocessors, figures.copy_engines,
        figures.decoders, figures.encoders, figures.jpeg_engines, figures.ofa_engines,
    )  # fmt: skip
    return " ".join(str(number) for number in numbers) + f" {profile.name.value}"


def _nvml_number(profile: gpus.Profile) -> int:
    """NVML's own number of a GPU instance profile, which is not the id it reports."""
    slices = profile.compute_slices.value
    if profile.name.value.endswith("+me"):
        return {1: 7, 2: 8}[slices]
    is_double = (
        slices == 1 and profile.memory_slices is not None and profile.memory_slices.value == 2
    )
    return 9 if is_double else {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[slices]


def _slots(*places: tuple[int, int, int, int]) -> tuple[Slot, ...]:
    """(bus, root, switch, NUMA node) of GPUs in PCI domain 0."""
    return tuple(Slot(0, *place) for place in places)


_DGX_A100: Final = _slots(
    (0x07, 0x00, 0, 3), (0x0F, 0x00, 0, 3), (0x47, 0x40, 1, 1), (0x4E, 0x40, 1, 1),
    (0x87, 0x80, 2, 7), (0x90, 0x80, 2, 7), (0xB7, 0xB0, 3, 5), (0xBD, 0xB0, 3, 5),
)  # fmt: skip
_DGX_H100: Final = _slots(
    (0x1B, 0x15, 0, 0), (0x43, 0x37, 1, 0), (0x52, 0x48, 2, 0), (0x61, 0x59, 3, 0),
    (0x9D, 0x97, 4, 1), (0xC3, 0xB7, 5, 1), (0xD1, 0xC7, 6, 1), (0xDF, 0xD7, 7, 1),
)  # fmt: skip
_GB200: Final = (
    Slot(8, 1, 0, 0, 0),
    Slot(9, 1, 0, 1, 0),
    Slot(0x18, 1, 0, 2, 1),
    Slot(0x19, 1, 0, 3, 1),
)
_PCIE: Final = _slots(
    (0x3B, 0x3A, 0, 0), (0x5E, 0x5D, 1, 0), (0xAF, 0xAE, 2, 1), (0xD8, 0xD7, 3, 1)
)
_FOUR_PEERS: Final = tuple(
    tuple(peer for peer in range(4) if peer != gpu for _ in range(4)) for gpu in range(4)
)

MACHINES: Final = {
    "dgx-a100": Machine(name="dgx-a100", board="A100-SXM4-80GB", slots=_DGX_A100, cpus=256),
    "dgx-a100-40": Machine(name="dgx-a100-40", board="A100-SXM4-40GB", slots=_DGX_A100, cpus=256),
    "hgx-a100-4": Machine(
        name="hgx-a100-4", board="A100-SXM4-40GB", slots=_PCIE, nvlink_peers=_FOUR_PEERS, cpus=128
    ),
    "dgx-h100": Machine(name="dgx-h100", board="H100-SXM5-80GB", slots=_DGX_H100, cpus=224),
    "dgx-h200": Machine(name="dgx-h200", board="H200-SXM-141GB", slots=_DGX_H100, cpus=224),
    "dgx-b200": Machine(name="dgx-b200", board="B200", slots=_DGX_H100, cpus=224),
    "gb200-tray": Machine(
        name="gb200-tray", board="GB200", slots=_GB200, fabric_clique=1, cpus=144
    ),
    "a30": Machine(name="a30", board="A30", slots=_PCIE, has_nvlink=False, cpus=64),
    "l4": Machine(name="l4", board="L4", slots=_PCIE, has_nvlink=False, cpus=64),
    "t4": Machine(name="t4", board="T4", slots=_PCIE, has_nvlink=False, cpus=64),
}
ALIASES: Final = {"dgx-a100-80": "dgx-a100", "h200": "dgx-h200", "b200": "dgx-b200"}
