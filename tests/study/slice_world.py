"""Nodes with GPUs that are cut as needed, as their driver publishes them, and claims for one slice."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from dovetail.world import events
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

DRIVER = "gpu.nvidia.com"
_MIG_DEVICE = re.compile(r"gpu-(\d+)-mig-(.+)-(\d+)-(\d+)")  # GPU, profile, GI id, start


def published(board: str, *, nodes: int, gpus: int) -> World:
    """Nodes that publish every slice of their GPUs, and the classes of the driver."""
    pool = fleet_spec.Pool(name="mig", count=nodes, gpu=board, gpus_per_node=gpus, mig=True)
    fleet = fleet_spec.Fleet(name="mig", pools=(pool,))
    world = stories.world()
    trees: list[dict[str, Any]] = list(device_publisher.device_classes())
    for machine in machines.machines_of(fleet):
        world.apply(events.Changed(build.node(machine.name)))
        trees += device_publisher.slices_of(machine, fleet)
    for tree in trees:
        world.apply(events.Changed(codec.decode(tree).struct))  # type: ignore[arg-type]
    return world


def claim(name: str, profile: str) -> claims.ResourceClaim:
    """A claim for one slice of a profile."""
    expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
    exactly = {
        "deviceClassName": "mig.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    decoded = codec.decode(tree).struct
    assert isinstance(decoded, claims.ResourceClaim)
    return decoded


def allocated(pending: claims.ResourceClaim, node: str, device: str) -> claims.ResourceClaim:
    """The claim with this device."""
    result = claims.DeviceRequestAllocationResult(
        request="gpu", driver=DRIVER, pool=node, device=device
    )
    allocation = claims.AllocationResult(devices=claims.DeviceAllocationResult(results=(result,)))
    status = msgspec.structs.replace(pending.status, allocation=allocation)
    return msgspec.structs.replace(pending, status=status)


def gpu_and_start(device: str) -> tuple[int, int]:
    """The GPU of a slice on its node, and the memory slice it starts at."""
    parts = _MIG_DEVICE.fullmatch(device)
    assert parts is not None, device
    return int(parts[1]), int(parts[4])
