"""Draws nodes with their GPUs, the parts of these and who holds them, from objects.

Given a set of objects, of a whole cluster or of some of its nodes: their slices, the claims on their devices, their
pods, and what taints or reserves devices. States are those of `gpu_tiles`. Never numbers holders itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dovetail.kubetypes import object_set
from dovetail.model import node_pools
from dovetail.tables import device_table, text
from dovetail.tables.fleet import fleet_map, node_states
from dovetail.tables.gpus import gpu_holders, gpu_tiles, unavailable_gpus

DeviceId = unavailable_gpus.DeviceId
NumberOf = Callable[[gpu_holders.Held], int]


class _Device(NamedTuple):
    """What a part needs to know about a published device."""

    type: str
    profile: str
    taints: unavailable_gpus.Taints
    exists: bool  # False: it is cut out of the GPU when a claim gets it


class Drawn(NamedTuple):
    """A node's picture, and the product of each of its GPUs."""

    picture: fleet_map.FleetNode
    products: tuple[str, ...]


def drawn(objects: object_set.ObjectSet, number_of: NumberOf) -> Iterator[Drawn]:
    """Every node with GPUs, in counting order."""
    nodes = gpu_tiles.nodes_with_gpus(objects)
    held_gpus = gpu_holders.HeldGpus(objects)
    devices = _devices(objects)
    for node in nodes:
        state = node_states.state_of(node.node)
        clique = node.label(node_pools.CLIQUE)
        gpus = zip(node.gpus, held_gpus.of_gpus(node), strict=True)
        picture = fleet_map.FleetNode(
            name=node.name,
            rack=node.label(node_pools.RACK),
            pool=node.pool,
            type=node.products,
            memory_bytes=node.memory_bytes,
            domain=clique.partition(".")[0],
            clique=clique,
            state=state.state,
            reason=state.reason,
            gpus=tuple(
                _gpu(index, gpu, units, devices, held_gpus, number_of)
                for index, (gpu, units) in enumerate(gpus)
            ),
        )
        yield Drawn(picture, tuple(text.product(gpu.product) for gpu in node.gpus))


def _devices(objects: object_set.ObjectSet) -> dict[DeviceId, _Device]:
    items = [item for item in gpu_tiles.items(objects) if item.driver == node_pools.GPU_DRIVER]
    rules = unavailable_gpus.taints_of_rules(objects, [item.id for item in items])
    return {
        item.id: _Device(
            item.word("type"),
            item.word("profile"),
            item.device.taints + rules.get(item.id, ()),
            not item.device.consumes_counters,
        )
        for item in items
    }


def _gpu(
    index: int,
    gpu: gpu_tiles.Gpu,
    units: Sequence[gpu_holders.Unit],
    devices: dict[DeviceId, _Device],
    held_gpus: gpu_holders.HeldGpus,
    number_of: NumberOf,
) -> fleet_map.FleetGpu:
    if gpu.devices:
        parts = tuple(_published_parts(gpu, devices, held_gpus, number_of))
    else:
        parts = tuple(_counted_parts(gpu, units, number_of))
    holders = dict.fromkeys(number_of(unit.held) for unit in units)
    return fleet_map.FleetGpu(
        index=index,
        uuid=gpu.uuid,
        state=gpu.state,
        health=_health(gpu, devices),
        holders=tuple(holders),
        parts=parts,
    )


def _published_parts(
    gpu: gpu_tiles.Gpu,
    devices: dict[DeviceId, _Device],
    held_gpus: gpu_holders.HeldGpus,
    number_of: NumberOf,
) -> Iterator[fleet_map.GpuPart]:
    for device_id in gpu.devices:
        device, units = devices[device_id], held_gpus.of_device(device_id)
        if device.type == "mig":
            if units:
                holder = number_of(units[0].held)
                yield fleet_map.GpuPart(profile=device.profile, state=fleet_map.USED, holder=holder)
            elif device.exists:  # else many that overlap are possible
                yield fleet_map.GpuPart(profile=device.profile, state=fleet_map.FREE)
        elif gpu.is_shareable:
            for unit in units:
                profile = text.binary(unit.memory_bytes) if unit.memory_bytes else ""
                holder = number_of(unit.held)
                yield fleet_map.GpuPart(profile=profile, state=fleet_map.USED, holder=holder)


def _counted_parts(
    gpu: gpu_tiles.Gpu, units: Sequence[gpu_holders.Unit], number_of: NumberOf
) -> Iterator[fleet_map.GpuPart]:
    """The parts of a GPU that a device plugin counts; which are in use is not known, only how many."""
    if not gpu.partitions:
        return
    for unit in units:
        holder = number_of(unit.held)
        yield fleet_map.GpuPart(profile=unit.profile, state=fleet_map.USED, holder=holder)
    for _ in range(gpu.partitions - len(units)):
        yield fleet_map.GpuPart(profile="", state=fleet_map.FREE)


def _health(gpu: gpu_tiles.Gpu, devices: dict[DeviceId, _Device]) -> str:
    """The taints of its devices, each once."""
    taints = [taint for each in gpu.devices for taint in devices[each].taints]
    if not taints:
        return fleet_map.HEALTHY
    return ", ".join(dict.fromkeys(map(device_table.taint_text, taints)))
