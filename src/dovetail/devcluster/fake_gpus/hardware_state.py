"""What a fake machine is at one moment, and one change in its history, as frozen structs. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec


class ComputeInstance(msgspec.Struct, frozen=True):
    """A compute instance: what NVML calls a MIG device."""

    id: int
    profile_id: int
    start: int
    size: int
    uuid: str


class GpuInstance(msgspec.Struct, frozen=True):
    """A GPU instance and the memory slices [start, start + size) it occupies."""

    id: int
    profile: str
    profile_id: int
    start: int
    size: int
    compute_instances: tuple[ComputeInstance, ...]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU, or on one compute instance of it. `kind` is compute, graphics or mps."""

    pid: int
    kind: str = "compute"
    memory_bytes: int = 0
    sm_utilisation: int = 0
    memory_utilisation: int = 0
    gi: int | None = None
    ci: int | None = None


class MpsDaemon(msgspec.Struct, frozen=True):
    """A running nvidia-cuda-mps-control and the limits it was given."""

    pid: int
    active_thread_percentage: int
    pipe_directory: str
    pinned_memory_limit: str
    visible_devices: str


class MemoryLimit(msgspec.Struct, frozen=True):
    """How much memory of a GPU the processes of a cgroup may have."""

    gpu: int
    soft_bytes: int
    hard_bytes: int
    cgroup: str


class GpuState(msgspec.Struct, frozen=True):
    """One GPU. The names are those of fields.def; whatever is not listed here is left out."""

    index: int
    product: str
    uuid: str
    serial: str
    vbios: str
    minor: int
    module_id: int
    architecture: int
    pci_domain: int
    pci_bus: int
    pci_device: int
    pci_device_id: int
    pcie_root: int
    pcie_switch: int
    numa_node: int
    first_cpu: int
    cpu_count: int
    memory_bytes: int
    memory_limits_supported: int
    mig_capable: int
    mig_without_reset: int
    mig_mode: int
    mig_pending: int
    memory_slices: int
    compute_mode: int
    time_slice: int
    power_limit_milliwatts: int
    power_usage_milliwatts: int
    energy_millijoules: int
    energy_since_milliseconds: int
    temperature: int
    throttle_reasons: int
    gpu_utilisation: int
    memory_utilisation: int
    ecc_corrected_volatile: int
    ecc_uncorrected_volatile: int
    remapped_correctable: int
    remapped_uncorrectable: int
    remap_pending: int
    remap_failure: int
    recovery_action: int
    fabric_state: int
    fabric_cluster: str
    fabric_clique: int
    fabric_health_mask: int
    nvlink_count: int
    lost: int
    last_xid: int
    holders: int
    gpu_instances: tuple[GpuInstance, ...]
    processes: tuple[Process, ...]

    @property
    def bus_id(self) -> str:
        """The PCI address as the kernel writes it: 0000:1b:00.0."""
        return f"{self.pci_domain:04x}:{self.pci_bus:02x}:{self.pci_device:02x}.0"


class MachineState(msgspec.Struct, frozen=True):
    """The whole machine."""

    name: str
    driver_version: str
    nvml_version: str
    cuda_version: int
    caps_major: int
    sequence: int
    gpus: tuple[GpuState, ...]
    mps_daemons: tuple[MpsDaemon, ...]
    memory_limits: tuple[MemoryLimit, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history. `facts` are the members that only this kind of event has."""

    sequence: int
    time: int
    pid: int
    program: str
    event: str
    gpu: int | None = None
    uuid: str | None = None
    facts: dict[str, Any] = {}


_COMMON = frozenset(Change.__struct_fields__) - {"facts"}


def read_state(content: bytes) -> MachineState:
    """The state from its JSON."""
    return msgspec.json.decode(content, type=MachineState)


def read_change(line: bytes) -> Change:
    """One change from its line."""
    members: dict[str, Any] = msgspec.json.decode(line)
    common = {name: value for name, value in members.items() if name in _COMMON}
    facts = {name: value for name, value in members.items() if name not in _COMMON}
    return msgspec.convert({**common, "facts": facts}, Change)
