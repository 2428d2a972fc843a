"""Reads the share of a GPU that KAI's annotations request, and names the claim template that stands for it.

A share is a part of a GPU's memory, as in KAI: `gpu-fraction` states the part, `gpu-memory` the amount in MiB. The name
of the template holds the whole request, so that an admission policy derives the name from the annotations, and the
scheduler the template from the name. Given annotations, or a name. Never raises, never looks at nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

# KAI, pkg/common/constants. They have no prefix.
FRACTION: Final = "gpu-fraction"
MEMORY_MIB: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
KEYS: Final = (FRACTION, MEMORY_MIB, DEVICES, CONTAINER)

CLAIM: Final = "gpu-share"  # the pod's name for the claim that the policy adds
NVIDIA_RESOURCES: Final = "nvidia.com/"  # a pod that requests one of them gets its GPUs by that
MOST_DEVICES: Final = 16  # the largest NVIDIA boards hold 16
MIB: Final = 1024**2

# The chart's policy has the same patterns: deploy/chart/templates/kai-shares-policy.yaml.
_FRACTION: Final = re.compile(r"0?\.[0-9]{1,6}")
_MEMORY: Final = re.compile(r"[1-9][0-9]{0,8}")
_DEVICES: Final = re.compile(r"[1-9]|1[0-6]")
_TEMPLATE: Final = re.compile(
    r"dovetail-gpu-(?:fraction-(?P<fraction>0\.[0-9]{1,6})|memory-(?P<memory>[1-9][0-9]{0,8})mi)"
    r"(?:-x(?P<devices>[2-9]|1[0-6]))?"
)


class Share(NamedTuple):
    """A part of each of some GPUs. Either the fraction or the memory is set."""

    fraction: str = ""  # as written, with a leading zero: 0.25
    memory_mib: int = 0
    devices: int = 1

    def memory_of(self, gpu_bytes: int) -> int:
        """The share in MiB of a GPU of this size, rounded down so that the parts of a whole fit together."""
        return max(int(self._part_of(gpu_bytes) * gpu_bytes / MIB), 1)

    def hundredths_of(self, gpu_bytes: int) -> int:
        """The share in hundredths of a GPU of this size, rounded down likewise."""
        return max(int(self._part_of(gpu_bytes) * 100), 1)

    def _part_of(self, gpu_bytes: int) -> Fraction:
        if self.fraction:
            return Fraction(self.fraction)
        return Fraction(self.memory_mib * MIB, gpu_bytes)


class Problem(NamedTuple):
    """An annotation that requests no share that could be given, and why."""

    key: str
    why: str


def requested(annotations: Mapping[str, str]) -> Share | Problem | None:
    """The share that annotations request; None if they request none."""
    keys = [key for key in KEYS if key in annotations]
    if not keys:
        return None
    if FRACTION in keys and MEMORY_MIB in keys:
        return Problem(MEMORY_MIB, f"{FRACTION} is set too; remove one of them")
    if FRACTION not in keys and MEMORY_MIB not in keys:
        return Problem(keys[0], f"neither {FRACTION} nor {MEMORY_MIB} says how large the share is")

    count = annotations.get(DEVICES, "1")
    if not _DEVICES.fullmatch(count):
        return Problem(DEVICES, f"expected a whole number from 1 to {MOST_DEVICES}")
    if MEMORY_MIB in keys:
        memory = annotations[MEMORY_MIB]
        if not _MEMORY.fullmatch(memory):
            return Problem(MEMORY_MIB, "expected MiB as a whole number above 0, such as 2000")
        return Share(memory_mib=int(memory), devices=int(count))
    fraction = annotations[FRACTION]
    if not _FRACTION.fullmatch(fraction) or not _has_amount(fraction):
        why = "expected a number above 0 and below 1 with at most 6 digits, such as 0.25"
        return Problem(FRACTION, why)
    return Share(fraction=f"0.{fraction.rpartition('.')[2]}", devices=int(count))


def container_of(annotations: Mapping[str, str], names: Collection[str]) -> str | Problem:
    """The container that gets the share: the named one of containers and init containers, else the first."""
    name = annotations.get(CONTAINER)
    if name is None:
        return next(iter(names), "")
    return name if name in names else Problem(CONTAINER, "the pod has no container of this name")


def is_of_nvidia(resources: Iterable[str]) -> bool:
    """Whether a pod that requests these extended resources gets its GPUs by them."""
    return any(name.startswith(NVIDIA_RESOURCES) for name in resources)


def template_name(share: Share) -> str:
    """The template that requests this share."""
    size = f"fraction-{share.fraction}" if share.fraction else f"memory-{share.memory_mib}mi"
    count = f"-x{share.devices}" if share.devices > 1 else ""
    return f"dovetail-gpu-{size}{count}"


def of_template(name: str) -> Share | None:
    """The share that a template of this name requests; None if the name is not one of ours."""
    parts = _TEMPLATE.fullmatch(name)
    if parts is None:
        return None
    fraction, memory, devices = parts["fraction"], parts["memory"], parts["devices"]
    if fraction is not None and not _has_amount(fraction):
        return None
    return Share(fraction or "", int(memory or 0), int(devices or 1))


def _has_amount(fraction: str) -> bool:
    return fraction.strip("0.") != ""
