"""What a node's GPUs are, as the driver reports them: frozen facts, read once per scan.

Structs only. Memory is in bytes, power in milliwatts. A value the driver does not report is None, never a guess.
Never touches the hardware: `node/nvml` reads it, `node/slices` publishes it, `node/claims` works on it.
"""

from enum import StrEnum

import msgspec


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a GPU instance may sit: memory slices [start, start + size)."""

    start: int
    size: int


class MigProfile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One kind of GPU instance a board offers, with one compute instance that fills it.

    `enum` is the argument NVML takes for the profile, `gi_profile_id` the id it returns and nvidia-smi shows.
    """

    name: str  # 1g.10gb, 1g.10gb+me
    enum: int
    gi_profile_id: int
    ci_profile_id: int
    compute_slices: int
    memory_bytes: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    max_instances: int
    placements: tuple[Placement, ...]


class MigDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A GPU instance that exists, with its compute instance."""

    gpu_minor: int
    uuid: str  # empty while there is no compute instance
    gi_id: int
    ci_id: int | None
    gi_profile_id: int
    placement: Placement
    is_whole: bool = True  # the compute instance fills the GPU instance


class Fabric(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The NVLink fabric a GPU belongs to. Registered once its state is completed."""

    cluster_uuid: str
    clique_id: int
    is_completed: bool
    is_healthy: bool = True

    @property
    def clique(self) -> str:
        """As the label nvidia.com/gpu.clique has it."""
        return f"{self.cluster_uuid}.{self.clique_id}"


class Gpu(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One physical GPU. `minor` names its device node and its devices: /dev/nvidia0, gpu-0."""

    minor: int
    uuid: str
    product_name: str
    brand: str
    architecture: str
    cuda_compute_capability: str  # 9.0
    memory_bytes: int  # 0 where the driver reports none, as on boards without memory of their own
    pci_bus_id: str  # 0000:65:00.0
    pcie_root: str | None = None  # pci0000:64
    numa_node: int | None = None
    pci_class: int | None = None  # 0x030200 for a compute board, 0x030000 for one with displays
    addressing_mode: str | None = None
    is_mig_capable: bool = False
    is_mig_enabled: bool = False
    is_mig_pending: bool = False  # the mode changes with the next reset of the GPU
    is_vgpu: bool = False  # inside a virtual machine; its partitions are the host's decision
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    nvlink_peers: tuple[
        str, ...
    ] = ()  # PCI bus ids of GPUs reached over NVLink, directly or by a switch
    nvlink_count: int = 0  # active links
    fabric: Fabric | None = None
    power_limit_milliwatts: int | None = None
    module_id: int | None = None
    serial: str | None = None

    @property
    def name(self) -> str:
        """The name of the whole GPU as a device."""
        return f"gpu-{self.minor}"


class UnreadGpu(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A GPU that could not be read: lost, or its driver did not answer. Its name fields are what is known of it."""

    index: int  # NVML's
    reason: str
    minor: int | None = None
    uuid: str | None = None
    is_lost: bool = False


class Inventory(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All GPUs of a node, by minor number, and the driver that runs them.

    GPUs that could not be read are not among `gpus`. Without a driver both versions are empty.
    """

    driver_version: str  # 580.126.20
    cuda_driver_version: str  # 13.0
    gpus: tuple[Gpu, ...]
    unread: tuple[UnreadGpu, ...] = ()

    def gpu(self, minor: int) -> Gpu | None:
        """The GPU of this minor number."""
        return next((gpu for gpu in self.gpus if gpu.minor == minor), None)


class ComputeMode(StrEnum):
    """Who may open a context on a GPU."""

    DEFAULT = "Default"
    EXCLUSIVE_PROCESS = "ExclusiveProcess"
    PROHIBITED = "Prohibited"


class TimeSlice(StrEnum):
    """How long a process keeps the GPU when several share it; the driver knows these four."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"
