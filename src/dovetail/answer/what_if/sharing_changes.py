"""Changes of sharing: into how many replicas every GPU of some nodes is shared, by time slices or MPS.

Given a replica; returns edits. A device plugin counts a GPU as often as it has replicas; where GPUs are published as
devices, several claims may hold one, as many as it has shares. Pods that hold GPUs there leave first. Never places.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import changes, effect, node_changes, node_selection, partition_changes
from dovetail.answer.what_if.effect import Effect
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import capacity, slices
from dovetail.model import node_pools
from dovetail.quantity import quantity

SHARES: Final = "shares"  # the capacity that counts claims, as NVIDIA's driver names it
MEMORY: Final = "memory"


def shared(replica: Replica, change: changes.SetSharing) -> Effect:
    """Every GPU of the nodes shared into so many replicas."""
    selected = node_selection.selected(replica, change.nodes)
    edits: list[Edit] = []
    for node in selected:
        edits += _of_node(replica, node, change)
    names = [node.metadata.name for node in selected]
    gone = partition_changes.vacated(replica, names)
    how = (
        "one pod at a time"
        if change.replicas == 1
        else f"up to {change.replicas} pods at a time ({change.strategy}), memory is not divided"
    )
    text = f"every GPU of {effect.listed(names)}: {how}"
    if gone.again or gone.lost:
        text += f"; {node_changes.fate_of(gone)}"
    return Effect([*gone.edits, *edits], text, tuple(gone.lost))


def _of_node(replica: Replica, node: nodes.Node, change: changes.SetSharing) -> list[Edit]:
    name = node.metadata.name
    parts = partition_changes.gpu_slices(replica, name)
    if parts:
        return [_slice(part, change.replicas) for part in parts if part.spec.devices]
    count = partition_changes.plugin_gpu_count(node)
    if not count:
        raise errors.InputError(f"{name} has no GPUs")
    is_shared = change.replicas > 1
    product = node.metadata.labels.get(node_pools.PRODUCT, "").removesuffix(
        node_pools.SHARED_SUFFIX
    )
    labels = {
        node_pools.REPLICAS: str(change.replicas),
        node_pools.SHARING: change.strategy if is_shared else "none",
    }
    if product:  # discovery marks the product of shared GPUs
        labels[node_pools.PRODUCT] = product + (node_pools.SHARED_SUFFIX if is_shared else "")
    amounts = {node_pools.GPU_RESOURCE: count * change.replicas}
    return [partition_changes.with_resources(replica, node, amounts, labels)]


def _slice(part: slices.ResourceSlice, replicas: int) -> Edit:
    devices = tuple(_device(device, replicas) for device in part.spec.devices)
    spec = msgspec.structs.replace(part.spec, devices=devices)
    return effect.created(msgspec.structs.replace(part, spec=spec))


def _device(device: slices.Device, replicas: int) -> slices.Device:
    capacities = {name: amount for name, amount in device.capacity.items() if name != SHARES}
    if memory := capacities.get(MEMORY):
        capacities[MEMORY] = capacity.DeviceCapacity(value=memory.value)
    if replicas == 1:
        return msgspec.structs.replace(device, capacity=capacities, allow_multiple_allocations=None)
    single, total = quantity.Quantity.from_int(1), quantity.Quantity.from_int(replicas)
    nothing = quantity.Quantity.from_int(0)
    capacities[SHARES] = _policy(total, default=single, least=single, step=single)
    if memory:
        step = quantity.parse("1Mi")
        capacities[MEMORY] = _policy(memory.value, default=nothing, least=nothing, step=step)
    return msgspec.structs.replace(device, capacity=capacities, allow_multiple_allocations=True)


def _policy(
    value: quantity.Quantity,
    *,
    default: quantity.Quantity,
    least: quantity.Quantity,
    step: quantity.Quantity,
) -> capacity.DeviceCapacity:
    valid = capacity.CapacityRequestPolicyRange(min=least, max=value, step=step)
    policy = capacity.CapacityRequestPolicy(default=default, valid_range=valid)
    return capacity.DeviceCapacity(value=value, request_policy=policy)
