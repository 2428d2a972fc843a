"""Reads everything about one GPU that does not change by itself.

Given an opening and a handle. Values that this driver or GPU does not have are absent. Raises NVML's errors: a GPU that
is lost half-way has no facts. Never changes anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dovetail.node.inventory import Gpu
from dovetail.node.nvml import mig_facts, sysfs, topology
from dovetail.node.nvml.answers import optional, text
from dovetail.node.nvml.session import Opened

_VGPU: Final = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU

# As NVIDIA's driver publishes NVML_BRAND_* and NVML_DEVICE_ARCH_*.
_BRANDS: Final = {
    0: "Unknown",
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ARCHITECTURES: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_ADDRESSING_MODES: Final = {0: "None", 1: "HMM", 2: "ATS"}
UNKNOWN: Final = "Unknown"


def read(
    opened: Opened, handle: Any, *, sysfs_root: Path, others: Mapping[str, Any]
) -> tuple[Gpu, topology.Wiring]:
    """The facts of one GPU. `others` are the handles of the other GPUs by bus id."""
    nvml = opened.nvml
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    bus_id = bus_id_of(opened, handle)
    memory = optional(opened, nvml.nvmlDeviceGetMemoryInfo, handle)
    memory_bytes = int(memory.total) if memory is not None else 0
    mode = optional(opened, nvml.nvmlDeviceGetMigMode, handle)
    current, pending = mode if mode is not None else (0, 0)
    profiles = (
        mig_facts.profiles(opened, handle, memory_bytes=memory_bytes) if mode is not None else ()
    )
    mig_devices = mig_facts.devices(opened, handle, minor, profiles) if current else ()
    wiring = topology.wiring(opened, handle)
    major, revision = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    gpu = Gpu(
        minor=minor,
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        product_name=text(nvml.nvmlDeviceGetName(handle)),
        brand=_BRANDS.get(nvml.nvmlDeviceGetBrand(handle), UNKNOWN),
        architecture=_architecture(opened, handle),
        cuda_compute_capability=f"{major}.{revision}",
        memory_bytes=memory_bytes,
        pci_bus_id=bus_id,
        pcie_root=sysfs.pcie_root(sysfs_root, bus_id),
        numa_node=sysfs.numa_node(sysfs_root, bus_id),
        pci_class=sysfs.pci_class(sysfs_root, bus_id),
        addressing_mode=_addressing_mode(opened, handle),
        is_mig_capable=mode is not None,
        is_mig_enabled=bool(current),
        is_mig_pending=current != pending,
        is_vgpu=optional(opened, nvml.nvmlDeviceGetVirtualizationMode, handle) == _VGPU,
        mig_profiles=profiles,
        mig_devices=mig_devices,
        nvlink_peers=topology.peers(opened, handle, others),
        nvlink_count=wiring.link_count,
        fabric=topology.fabric(opened, handle),
        power_limit_milliwatts=optional(opened, nvml.nvmlDeviceGetPowerManagementLimit, handle),
        module_id=optional(opened, nvml.nvmlDeviceGetModuleId, handle, ctypes.c_uint()),
        serial=_serial(opened, handle),
    )
    # A handle that went stale on the way makes values look absent. It has no uuid either.
    nvml.nvmlDeviceGetUUID(handle)
    return gpu, wiring


def bus_id_of(opened: Opened, handle: Any) -> str:
    """Where the GPU sits on the PCI bus."""
    return topology.bus_id_text(opened.nvml.nvmlDeviceGetPciInfo(handle))


def _architecture(opened: Opened, handle: Any) -> str:
    number = optional(opened, opened.nvml.nvmlDeviceGetArchitecture, handle)
    return _ARCHITECTURES.get(number, UNKNOWN) if number is not None else UNKNOWN


def _addressing_mode(opened: Opened, handle: Any) -> str | None:
    number = optional(opened, opened.nvml.nvmlDeviceGetAddressingMode, handle)
    return _ADDRESSING_MODES.get(number) if number is not None else None


def _serial(opened: Opened, handle: Any) -> str | None:
    serial = optional(opened, opened.nvml.nvmlDeviceGetSerial, handle)
    return text(serial) if serial is not None else None
