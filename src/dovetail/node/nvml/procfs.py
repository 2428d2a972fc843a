"""What the nvidia kernel module says about itself without NVML: cheap to ask, and true while NVML's answers are old.

Given the root of procfs, returns which driver is loaded and which GPUs it drives. Nothing if there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class KernelModule(NamedTuple):
    """The loaded driver."""

    version_text: str = ""
    bus_ids: frozenset[str] = frozenset()


def kernel_module(proc: Path) -> KernelModule:
    """As it is now; empty if it is not loaded."""
    folder = proc / "driver/nvidia"
    try:
        version_text = (folder / "version").read_text(encoding="utf-8", errors="replace")
        bus_ids = frozenset(entry.name for entry in (folder / "gpus").iterdir())
    except OSError:
        return KernelModule()
    return KernelModule(version_text, bus_ids)
