"""The labels that GPU Feature Discovery gives a node, from the same facts.

Given an inventory and how GPUs are shared, returns labels. Nodes without GPUs have none. Never writes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.node.inventory import Gpu, Inventory, MigProfile

PREFIX: Final = "nvidia.com"
UNKNOWN: Final = "unknown"

_MEBIBYTE: Final = 1 << 20
_NOT_IN_VALUES: Final = re.compile(r"[^A-Za-z0-9\-_. ]")
_MAX_VALUE_LENGTH: Final = 63
# PCI base class and subclass.
_MODES: Final = {0x0300: "graphics", 0x0302: "compute"}

Labels = dict[str, str]


class MigStrategy(StrEnum):
    """How the device plugin names MIG devices: not at all, all as one kind, or each profile by its name."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class LabelOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What labels depend on besides the hardware. Replicas are those of the device plugin."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    machine_type: str = UNKNOWN
    replicas: int = 1
    sharing_strategy: str = "none"  # none, time-slicing, mps

    @property
    def has_mps(self) -> bool:
        """Whether MPS shares the GPUs."""
        return self.sharing_strategy == "mps"


def labels(inventory: Inventory, options: LabelOptions) -> Labels:
    """All labels of the node."""
    if not inventory.gpus:
        return {}
    return {
        **_versions(inventory),
        **_node_wide(inventory, options),
        **_gpus(inventory, options),
        **_mig(inventory, options),
        **_clique(inventory.gpus),
    }


def _versions(inventory: Inventory) -> Labels:
    major, minor, revision = (*inventory.driver_version.split("."), "", "")[:3]
    cuda_major, _, cuda_minor = inventory.cuda_driver_version.partition(".")
    return {
        f"{PREFIX}/cuda.driver.major": major,
        f"{PREFIX}/cuda.driver.minor": minor,
        f"{PREFIX}/cuda.driver.rev": revision,
        f"{PREFIX}/cuda.runtime.major": cuda_major,
        f"{PREFIX}/cuda.runtime.minor": cuda_minor,
        f"{PREFIX}/cuda.driver-version.major": major,
        f"{PREFIX}/cuda.driver-version.minor": minor,
        f"{PREFIX}/cuda.driver-version.revision": revision,
        f"{PREFIX}/cuda.driver-version.full": inventory.driver_version,
        f"{PREFIX}/cuda.runtime-version.major": cuda_major,
        f"{PREFIX}/cuda.runtime-version.minor": cuda_minor,
        f"{PREFIX}/cuda.runtime-version.full": inventory.cuda_driver_version,
    }


def _node_wide(inventory: Inventory, options: LabelOptions) -> Labels:
    gpus = inventory.gpus
    has_mig = any(gpu.is_mig_enabled for gpu in gpus)
    return {
        f"{PREFIX}/gpu.machine": value_of(options.machine_type),
        f"{PREFIX}/gpu.mode": _mode(gpus),
        f"{PREFIX}/mig.capable": _claim(any(gpu.is_mig_capable for gpu in gpus)),
        f"{PREFIX}/mps.capable": _claim(options.has_mps and not has_mig),
        f"{PREFIX}/vgpu.present": _claim(any(gpu.is_vgpu for gpu in gpus)),
    }


def _gpus(inventory: Inventory, options: LabelOptions) -> Labels:
    """Of the GPUs, counted by product. Of several products the one of the first GPU, whole ones before others."""
    by_wholeness = sorted(inventory.gpus, key=lambda gpu: (gpu.is_mig_enabled, gpu.minor))
    gpu = by_wholeness[0]
    count = sum(other.product_name == gpu.product_name for other in inventory.gpus)
    # GPUs in MIG mode are no resource of their own, so they have no replicas.
    replicas = 0 if gpu.is_mig_enabled else options.replicas
    is_shared = replicas > 1
    major, _, minor = gpu.cuda_compute_capability.partition(".")
    product = value_of(gpu.product_name)
    described = {
        f"{PREFIX}/gpu.product": f"{product}-SHARED" if is_shared else product,
        f"{PREFIX}/gpu.count": str(count),
        f"{PREFIX}/gpu.replicas": str(replicas),
        f"{PREFIX}/gpu.sharing-strategy": options.sharing_strategy if is_shared else "none",
        f"{PREFIX}/gpu.family": _family(int(major), int(minor)),
        f"{PREFIX}/gpu.compute.major": major,
        f"{PREFIX}/gpu.compute.minor": minor,
    }
    if gpu.memory_bytes:
        described[f"{PREFIX}/gpu.memory"] = str(gpu.memory_bytes // _MEBIBYTE)
    return described


def _mig(inventory: Inventory, options: LabelOptions) -> Labels:
    if options.mig_strategy is MigStrategy.NONE:
        return {}
    strategy = {f"{PREFIX}/mig.strategy": options.mig_strategy.value}
    enabled = [gpu for gpu in inventory.gpus if gpu.is_mig_enabled]
    if not enabled:
        return strategy
    kinds = _kinds(enabled)
    if options.mig_strategy is MigStrategy.MIXED:
        described: Labels = {}
        for name, (gpu, profile, count) in kinds.items():
            described |= _mig_kind(f"{PREFIX}/mig-{name}", gpu, profile, count)
        return strategy | described
    has_empty = any(not gpu.mig_devices for gpu in enabled)
    if has_empty or len(enabled) != len(inventory.gpus) or len(kinds) != 1:
        return strategy | _invalid(enabled[0])
    ((gpu, profile, count),) = kinds.values()
    return strategy | _mig_kind(f"{PREFIX}/gpu", gpu, profile, count)


def _kinds(gpus: Iterable[Gpu]) -> dict[str, tuple[Gpu, MigProfile, int]]:
    """How many MIG devices there are of each profile, by its name as a resource's."""
    counts: Counter[str] = Counter()
    examples: dict[str, tuple[Gpu, MigProfile]] = {}
    for gpu in gpus:
        profiles = {profile.gi_profile_id: profile for profile in gpu.mig_profiles}
        for device in gpu.mig_devices:
            profile = profiles.get(device.gi_profile_id)
            if profile is not None and device.uuid:
                name = profile.name.replace("+", ".")
                counts[name] += 1
                examples.setdefault(name, (gpu, profile))
    return {name: (*examples[name], counts[name]) for name in sorted(counts)}


def _mig_kind(prefix: str, gpu: Gpu, profile: MigProfile, count: int) -> Labels:
    name = profile.name.replace("+", ".")
    return {
        f"{prefix}.product": value_of(f"{gpu.product_name} MIG {name}"),
        f"{prefix}.count": str(count),
        f"{prefix}.replicas": "1",
        f"{prefix}.sharing-strategy": "none",
        f"{prefix}.memory": str(profile.memory_bytes // _MEBIBYTE),
        f"{prefix}.multiprocessors": str(profile.multiprocessors),
        f"{prefix}.slices.gi": str(profile.compute_slices),
        f"{prefix}.slices.ci": str(profile.compute_slices),
        f"{prefix}.engines.copy": str(profile.copy_engines),
        f"{prefix}.engines.decoder": str(profile.decoders),
        f"{prefix}.engines.encoder": str(profile.encoders),
        f"{prefix}.engines.jpeg": str(profile.jpeg_engines),
        f"{prefix}.engines.ofa": str(profile.ofa_engines),
    }


def _invalid(gpu: Gpu) -> Labels:
    """One kind of MIG device was asked for, and there are several kinds, none, or GPUs without MIG."""
    return {
        f"{PREFIX}/gpu.product": value_of(f"{gpu.product_name} MIG INVALID"),
        f"{PREFIX}/gpu.count": "0",
        f"{PREFIX}/gpu.replicas": "0",
        f"{PREFIX}/gpu.sharing-strategy": "",
        f"{PREFIX}/gpu.memory": "0",
    }


def _clique(gpus: Iterable[Gpu]) -> Labels:
    """Where all registered GPUs agree on one."""
    cliques = {gpu.fabric.clique for gpu in gpus if gpu.fabric and gpu.fabric.is_completed}
    return {f"{PREFIX}/gpu.clique": cliques.pop()} if len(cliques) == 1 else {}


def value_of(text: str) -> str:
    """As GPU Feature Discovery writes names: words joined by dashes, other characters dropped."""
    words = _NOT_IN_VALUES.sub("", text).split()
    return "-".join(words)[:_MAX_VALUE_LENGTH].strip("-_.")


def _mode(gpus: Iterable[Gpu]) -> str:
    classes = {gpu.pci_class for gpu in gpus}
    if len(classes) != 1 or None in classes:
        return UNKNOWN
    number = classes.pop()
    assert number is not None
    return _MODES.get(number >> 8, UNKNOWN)


def _family(major: int, minor: int) -> str:
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    families = {
        3: "kepler",
        5: "maxwell",
        6: "pascal",
        9: "hopper",
        10: "blackwell",
        12: "blackwell",
    }
    return families.get(major, "undefined")


def _claim(is_true: bool) -> str:
    return "true" if is_true else "false"
