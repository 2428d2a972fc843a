"""The attributes of a GPU and of its MIG devices, as NVIDIA's driver names them, and a few of our own.

Given facts, returns attributes by name. Names without a domain are the driver's. Never includes a value the driver
does not report.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.resource import slices
from dovetail.node.inventory import Gpu, Inventory, MigProfile
from dovetail.node.slices.options import OWN_DOMAIN
from dovetail.quantity import semver

Attributes = dict[str, slices.DeviceAttribute]

_STANDARD: Final = "resource.kubernetes.io"
_MILLIWATTS: Final = 1000


def of_gpu(gpu: Gpu, inventory: Inventory) -> Attributes:
    """Of the whole GPU, as NVIDIA's driver publishes them."""
    return {"type": _text("gpu"), "uuid": _text(gpu.uuid)} | _common(gpu, inventory)


def of_mig(gpu: Gpu, profile: MigProfile, inventory: Inventory) -> Attributes:
    """Of a MIG device that exists or could; the uuid of one that exists is the caller's to add."""
    own = {
        "type": _text("mig"),
        "parentUUID": _text(gpu.uuid),
        "profile": _text(profile.name),
    }
    return own | _common(gpu, inventory)


def own_of_gpu(gpu: Gpu, inventory: Inventory) -> Attributes:
    """What NVIDIA's driver does not publish. For whole GPUs only: MIG devices have no NVLink."""
    attributes: Attributes = {}
    if (domain := nvlink_domain(gpu, inventory)) is not None:
        attributes[f"{OWN_DOMAIN}/nvlinkDomain"] = _text(domain)
    if gpu.nvlink_count:
        attributes[f"{OWN_DOMAIN}/nvlinkCount"] = _number(gpu.nvlink_count)
    if gpu.fabric is not None and gpu.fabric.is_completed:
        attributes[f"{OWN_DOMAIN}/clique"] = _text(gpu.fabric.clique)
    if gpu.power_limit_milliwatts is not None:
        watts = gpu.power_limit_milliwatts // _MILLIWATTS
        attributes[f"{OWN_DOMAIN}/powerLimit"] = _number(watts)
    return attributes


def nvlink_domain(gpu: Gpu, inventory: Inventory) -> str | None:
    """What GPUs that reach each other over NVLink have in common; None without NVLink.

    A fabric spans nodes, so its clique is the name. Inside one node it is the uuid of the first GPU of the group:
    unique in the cluster, and the same for as long as that GPU is there.
    """
    if gpu.fabric is not None and gpu.fabric.is_completed:
        return gpu.fabric.clique
    if not gpu.nvlink_peers:
        return None
    return _first_of_group(gpu, inventory).uuid


def version(text: str) -> str:
    """A semantic version: 580.95.05 becomes 580.95.5, 9.0 becomes 9.0.0."""
    return str(semver.parse(text, normalize=True))


def _first_of_group(gpu: Gpu, inventory: Inventory) -> Gpu:
    """Follows links from GPU to GPU: on boards without a switch not every pair is linked directly."""
    by_bus_id = {other.pci_bus_id: other for other in inventory.gpus}
    group = {gpu.pci_bus_id: gpu}
    waiting = [gpu]
    while waiting:
        for bus_id in waiting.pop().nvlink_peers:
            peer = by_bus_id.get(bus_id)
            if peer is not None and bus_id not in group:
                group[bus_id] = peer
                waiting.append(peer)
    return min(group.values(), key=lambda member: member.minor)


def _common(gpu: Gpu, inventory: Inventory) -> Attributes:
    attributes = {
        "productName": _text(gpu.product_name),
        "brand": _text(gpu.brand),
        "architecture": _text(gpu.architecture),
        "cudaComputeCapability": _version(gpu.cuda_compute_capability),
        "driverVersion": _version(inventory.driver_version),
        "cudaDriverVersion": _version(inventory.cuda_driver_version),
        f"{_STANDARD}/pciBusID": _text(gpu.pci_bus_id),
    }
    if gpu.pcie_root is not None:
        attributes[f"{_STANDARD}/pcieRoot"] = _text(gpu.pcie_root)
    if gpu.numa_node is not None:
        attributes[f"{_STANDARD}/numaNode"] = _number(gpu.numa_node)
    if gpu.addressing_mode is not None:
        attributes["addressingMode"] = _text(gpu.addressing_mode)
    return attributes


def _text(value: str) -> slices.DeviceAttribute:
    return slices.DeviceAttribute(string_value=value)


def _number(value: int) -> slices.DeviceAttribute:
    return slices.DeviceAttribute(int_value=value)


def _version(value: str) -> slices.DeviceAttribute:
    return slices.DeviceAttribute(version_value=version(value))
