"""The CDI file of each claim: what its containers get, written before the kubelet hears that the claim is prepared.

Given the devices of a claim, writes one file named after its uid; names of devices contain the uid, since runtimes keep
what they read. The common part is found once per driver version. Raises OSError with the path; then no file is there.
Never decides which devices a claim has.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.node.cdi import common_edits, durable_files, spec, toolkit
from dovetail.node.cdi.device_edits import DeviceEdits
from dovetail.node.cdi.driver_root import DriverRoot

KIND: Final = "k8s.gpu.nvidia.com/claim"
_PREFIX: Final = "k8s.gpu.nvidia.com-claim_"
_SUFFIX: Final = ".yaml"
_MODE: Final = 0o644  # the container runtime reads it


class ClaimDevice(NamedTuple):
    """A device for the file: a GPU, or a MIG device on it."""

    name: str
    minor: int
    pci_bus_id: str
    instance: tuple[int, int] | None = None  # GPU instance and compute instance
    edits: spec.Edits = spec.Edits()  # of its sharing


class Paths(NamedTuple):
    """Where things are, as the agent sees them unless said otherwise."""

    cdi_folder: Path = Path("/var/run/cdi")
    proc_root: Path = Path("/proc")
    sysfs_root: Path = Path("/sys")
    hook_path: str = "/usr/bin/nvidia-cdi-hook"  # as the host sees it
    toolkit: Path | None = None  # nvidia-ctk


class ClaimSpecs:
    """The CDI files of this node's claims."""

    def __init__(self, root: DriverRoot, paths: Paths) -> None:
        self._root = root
        self._paths = paths
        self._device_edits = DeviceEdits(
            root, proc_root=paths.proc_root, sysfs_root=paths.sysfs_root
        )
        self._common: tuple[str, spec.Edits] | None = None  # by driver version
        self._common_lock = threading.Lock()

    def write(self, uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> None:
        """Writes the file of a claim, in place of an older one."""
        content = self.content(uid, devices, driver_version=driver_version)
        self._paths.cdi_folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable_files.replace(self.path(uid), content, mode=_MODE)

    def content(self, uid: str, devices: Sequence[ClaimDevice], *, driver_version: str) -> bytes:
        """What the file of a claim says. Raises as `write`, and writes nothing."""
        unique = {device.name: device for device in devices}  # two shares of one device are one
        entries = tuple(self._entry(uid, device) for device in unique.values())
        return spec.text(spec.spec_of(KIND, entries, self.common(driver_version)))

    def rehearse_write(self) -> None:
        """Raises OSError if no file could be written."""
        self._paths.cdi_folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable_files.rehearse(self._paths.cdi_folder)

    def remove(self, uid: str) -> None:
        """Deletes the file; nothing happens if there is none."""
        durable_files.remove(self.path(uid))

    def has(self, uid: str) -> bool:
        """Whether the claim has a file."""
        return self.path(uid).is_file()

    def uids(self) -> tuple[str, ...]:
        """The claims that have a file."""
        paths = sorted(self._paths.cdi_folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        return tuple(path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in paths)

    def device_names(self, uid: str) -> tuple[str, ...]:
        """The devices in a claim's file. Raises OSError or ValueError."""
        written = spec.parse(self.path(uid).read_bytes())
        return tuple(device.name.removeprefix(f"{uid}-") for device in written.devices)

    def remove_leftovers(self) -> None:
        """Deletes what a killed agent left half written."""
        durable_files.remove_leftovers(self._paths.cdi_folder, _PREFIX)

    def path(self, uid: str) -> Path:
        """The file of a claim."""
        return self._paths.cdi_folder / f"{_PREFIX}{uid}{_SUFFIX}"

    def common(self, driver_version: str) -> spec.Edits:
        """What all containers get; found again when the driver has changed."""
        with self._common_lock:
            if self._common is None or self._common[0] != driver_version:
                self._common = (driver_version, self._find_common(driver_version))
            return self._common[1]

    def _find_common(self, driver_version: str) -> spec.Edits:
        hook_path = self._paths.hook_path
        if self._paths.toolkit is not None:
            edits = toolkit.toolkit_edits(self._paths.toolkit, self._root, hook_path=hook_path)
            if edits is not None:
                return edits
        return common_edits.common_edits(
            self._root, driver_version=driver_version, hook_path=hook_path
        )

    def _entry(self, uid: str, device: ClaimDevice) -> spec.Device:
        edits = self._device_edits.of_gpu(
            device.minor, pci_bus_id=device.pci_bus_id, hook_path=self._paths.hook_path
        )
        if device.instance is not None:
            gi_id, ci_id = device.instance
            edits += self._device_edits.of_instance(device.minor, gi_id=gi_id, ci_id=ci_id)
        return spec.Device(name=f"{uid}-{device.name}", container_edits=edits + device.edits)


def device_id(uid: str, device: str) -> str:
    """The qualified name by which the kubelet asks the runtime for a device of a claim."""
    return f"{KIND}={uid}-{device}"
