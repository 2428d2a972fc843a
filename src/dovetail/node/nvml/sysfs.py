"""What the machine is, and where a PCI device sits in it, from the kernel's own files.

Given the root of sysfs and a bus id, returns its NUMA node, class and PCIe root. What the kernel does not say is None.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


def numa_node(sysfs: Path, bus_id: str) -> int | None:
    """The NUMA node; None on machines with one, where the kernel says -1."""
    try:
        number = int((_device(sysfs, bus_id) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def pci_class(sysfs: Path, bus_id: str) -> int | None:
    """What kind of device the board says it is: 0x030200 for a 3D controller."""
    try:
        return int((_device(sysfs, bus_id) / "class").read_text(), 16)
    except (OSError, ValueError):
        return None


def pcie_root(sysfs: Path, bus_id: str) -> str | None:
    """The root complex above the device: pci0000:64."""
    try:
        path = _device(sysfs, bus_id).resolve(strict=True)
    except OSError:
        return None
    return next((part for part in path.parts if _ROOT.fullmatch(part)), None)


def machine_type(sysfs: Path) -> str | None:
    """The product name of the machine."""
    try:
        return (sysfs / "class/dmi/id/product_name").read_text(errors="replace").strip() or None
    except OSError:
        return None


def _device(sysfs: Path, bus_id: str) -> Path:
    return sysfs / "bus/pci/devices" / bus_id
