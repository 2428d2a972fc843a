"""What a node offers as counted resources: whole GPUs, replicas of GPUs, MIG devices by profile.

Given an inventory and settings, returns resources with their devices, named as NVIDIA's device plugin does with its
strategy `mixed`. MIG devices are those that exist: this interface cannot ask for one to be made. Never touches a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import msgspec

from dovetail.node.inventory import Gpu, Inventory

DOMAIN: Final = "nvidia.com"
WHOLE: Final = f"{DOMAIN}/gpu"
SHARED: Final = f"{DOMAIN}/gpu.shared"
REPLICA_MARK: Final = "::"


class PluginDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One unit the kubelet counts. Replicas of one GPU have its uuid in common."""

    id: str
    uuid: str  # of the GPU or MIG device that a container gets
    gpu: Gpu
    instance: tuple[int, int] | None = None  # GPU instance and compute instance


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A resource name and its devices, in the order of GPUs."""

    name: str
    devices: tuple[PluginDevice, ...]

    @property
    def short_name(self) -> str:
        """For file names."""
        return self.name.removeprefix(f"{DOMAIN}/")


class OfferOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How GPUs are offered."""

    has_mig: bool = True
    replicas: int = 1  # of each whole GPU


def resources(inventory: Inventory, options: OfferOptions) -> tuple[Resource, ...]:
    """All resources of the node, by name. A GPU in MIG mode is offered by its MIG devices only."""
    by_name: dict[str, list[PluginDevice]] = defaultdict(list)
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.minor):
        if gpu.is_mig_enabled:
            if options.has_mig:
                for name, device in _mig_devices(gpu):
                    by_name[name].append(device)
        elif options.replicas > 1:
            by_name[SHARED] += _replicas(gpu, options.replicas)
        else:
            by_name[WHOLE].append(PluginDevice(id=gpu.uuid, uuid=gpu.uuid, gpu=gpu))
    return tuple(Resource(name, tuple(by_name[name])) for name in sorted(by_name))


def _replicas(gpu: Gpu, count: int) -> list[PluginDevice]:
    return [
        PluginDevice(id=f"{gpu.uuid}{REPLICA_MARK}{number}", uuid=gpu.uuid, gpu=gpu)
        for number in range(count)
    ]


def _mig_devices(gpu: Gpu) -> list[tuple[str, PluginDevice]]:
    names = {profile.gi_profile_id: profile.name for profile in gpu.mig_profiles}
    offered: list[tuple[str, PluginDevice]] = []
    for mig in gpu.mig_devices:
        if not mig.uuid or not mig.is_whole or mig.ci_id is None:
            continue
        if mig.gi_profile_id not in names:
            continue
        # A resource name has no plus sign.
        label = names[mig.gi_profile_id].replace("+", ".")
        device = PluginDevice(id=mig.uuid, uuid=mig.uuid, gpu=gpu, instance=(mig.gi_id, mig.ci_id))
        offered.append((f"{DOMAIN}/mig-{label}", device))
    return offered
