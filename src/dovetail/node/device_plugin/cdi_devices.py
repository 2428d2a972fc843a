"""The CDI file of a node whose GPUs are counted: one entry for each GPU and MIG device, by uuid.

Given resources, writes the file in place of the older one, if anything differs. The names are those of NVIDIA's device
plugin (deviceListStrategy cdi-cri, deviceIDStrategy uuid). Raises OSError with the path. Never decides who gets one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.node.cdi import durable_files, spec
from dovetail.node.cdi.claim_specs import ClaimSpecs, Paths
from dovetail.node.cdi.device_edits import DeviceEdits
from dovetail.node.cdi.driver_root import DriverRoot
from dovetail.node.device_plugin.resources import PluginDevice, Resource

KIND: Final = "k8s.device-plugin.nvidia.com/gpu"
FILE: Final = "k8s.device-plugin.nvidia.com-gpu.yaml"
_MODE: Final = 0o644  # the container runtime reads it


class CdiDevices:
    """The file of one node."""

    def __init__(self, root: DriverRoot, paths: Paths) -> None:
        self.path = paths.cdi_folder / FILE
        self._hook_path = paths.hook_path
        self._edits = DeviceEdits(root, proc_root=paths.proc_root, sysfs_root=paths.sysfs_root)
        self._specs = ClaimSpecs(root, paths)
        self._written = b""

    def write(self, resources: Iterable[Resource], *, driver_version: str) -> None:
        """Makes the file say what these resources need. Blocks for the time of a write to the disk."""
        devices = {
            device.uuid: device for resource in resources for device in resource.devices
        }  # replicas are one device
        entries = tuple(self._entry(device) for device in devices.values())
        content = spec.text(spec.spec_of(KIND, entries, self._specs.common(driver_version)))
        if content == self._written and self.path.exists():
            return
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable_files.replace(self.path, content, mode=_MODE)
        self._written = content

    def remove(self) -> None:
        """Deletes the file: containers that run keep what they got."""
        durable_files.remove(self.path)

    def _entry(self, device: PluginDevice) -> spec.Device:
        edits = self._edits.of_gpu(
            device.gpu.minor, pci_bus_id=device.gpu.pci_bus_id, hook_path=self._hook_path
        )
        if device.instance is not None:
            gi_id, ci_id = device.instance
            edits += self._edits.of_instance(device.gpu.minor, gi_id=gi_id, ci_id=ci_id)
        return spec.Device(name=device.uuid, container_edits=edits)


def device_id(uuid: str) -> str:
    """The qualified name by which the kubelet asks the runtime for a device."""
    return f"{KIND}={uuid}"
