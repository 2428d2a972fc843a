"""What a container gets for one device: the GPU's node, for a MIG device also its two capability nodes.

Given a GPU and perhaps an instance, returns the edits. Capability numbers come from the driver's folder in /proc.
Reads the file system, never changes it. Raises FileNotFoundError with the path if the driver has no such instance.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dovetail.node.cdi import common_edits, spec
from dovetail.node.cdi.driver_root import DriverRoot, needed_groups

_GPU_MAJOR: Final = 195  # the NVIDIA driver's, fixed
_CAPABILITIES: Final = "driver/nvidia/capabilities"
_CAPABILITY_NODES: Final = "/dev/nvidia-caps"
_FIELD: Final = re.compile(r"^(\w+):\s*(\d+)\s*$", re.MULTILINE)


class DeviceEdits:
    """The nodes of one node's GPUs."""

    def __init__(self, root: DriverRoot, *, proc_root: Path, sysfs_root: Path) -> None:
        self._root = root
        self._proc_root = proc_root
        self._sysfs_root = sysfs_root

    def of_gpu(self, minor: int, *, pci_bus_id: str, hook_path: str) -> spec.Edits:
        """The node of a GPU, and its DRM nodes where it has them."""
        nodes = (self._gpu_node(minor), *self._drm_nodes(pci_bus_id))
        links = self._drm_links(pci_bus_id, nodes)
        options = [option for link in links for option in ("--link", link)]
        hooks = (common_edits.hook(hook_path, "create-symlinks", *options),) if links else ()
        return spec.Edits(device_nodes=nodes, hooks=hooks, additional_gids=needed_groups(nodes))

    def of_instance(self, minor: int, *, gi_id: int, ci_id: int) -> spec.Edits:
        """The capability nodes of a MIG device. The runtime makes them: the host need not have them."""
        mig = self._proc_root / _CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{gi_id}"
        access = (mig / "access", mig / f"ci{ci_id}" / "access")
        major = self._capability_major()
        nodes = tuple(self._capability_node(path, major) for path in access)
        return spec.Edits(device_nodes=nodes)

    def _gpu_node(self, minor: int) -> spec.DeviceNode:
        path = f"/dev/nvidia{minor}"
        node = self._root.device_node(path)
        if node is not None:
            return node
        # Nodes appear with their first user; the numbers are fixed, so the runtime can make it.
        return spec.DeviceNode(path=path, type="c", major=_GPU_MAJOR, minor=minor)

    def _drm_nodes(self, pci_bus_id: str) -> tuple[spec.DeviceNode, ...]:
        folder = self._sysfs_root / "bus/pci/devices" / pci_bus_id / "drm"
        names = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
        nodes = [self._root.device_node(f"/dev/dri/{name}") for name in names]
        return tuple(node for node in nodes if node is not None)

    def _drm_links(self, pci_bus_id: str, nodes: tuple[spec.DeviceNode, ...]) -> list[str]:
        names = {Path(node.path).name for node in nodes}
        links: list[str] = []
        for kind in ("card", "render"):
            path = f"/dev/dri/by-path/pci-{pci_bus_id}-{kind}"
            seen = self._root.dev_seen / path.lstrip("/")
            if seen.is_symlink() and seen.readlink().name in names:
                links.append(f"{seen.readlink()}::{path}")
        return links

    def _capability_node(self, path: Path, major: int) -> spec.DeviceNode:
        fields = {name: int(number) for name, number in _FIELD.findall(path.read_text("ascii"))}
        minor = fields.get("DeviceFileMinor")
        if minor is None:
            raise FileNotFoundError(f"{path}: has no DeviceFileMinor")
        return spec.DeviceNode(
            path=f"{_CAPABILITY_NODES}/nvidia-cap{minor}",
            type="c",
            major=major,
            minor=minor,
            file_mode=fields.get("DeviceFileMode"),
        )

    def _capability_major(self) -> int:
        path = self._proc_root / "devices"
        match = re.search(r"^\s*(\d+) nvidia-caps$", path.read_text("ascii"), re.MULTILINE)
        if match is None:
            raise FileNotFoundError(f"{path}: has no line for nvidia-caps; is the driver loaded?")
        return int(match[1])
