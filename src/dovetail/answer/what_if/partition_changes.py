"""Changes of MIG: the partitions that every GPU of some nodes has from now on, or whole GPUs.

Given a replica; returns edits. Pods that hold GPUs there leave first: a board with users cannot be partitioned. A node
whose GPUs are published as devices publishes other devices; one whose device plugin counts them offers other
resources. Never chooses a geometry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail import errors, gpus
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import (
    board_devices,
    changes,
    displaced_pods,
    effect,
    mig_layout,
    node_changes,
    node_selection,
)
from dovetail.answer.what_if.effect import Effect
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools, pod_requests
from dovetail.quantity import quantity
from dovetail.world.devices import gpu_ledger

PLUGIN_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-")


def partitioned(replica: Replica, change: changes.SetPartitions) -> Effect:
    """Every GPU of the nodes with these partitions. Raises InputError where a board does not allow them."""
    selected = node_selection.selected(replica, change.nodes)
    edits: list[Edit] = []
    for node in selected:
        edits += _of_node(replica, node, change.profiles)
    names = [node.metadata.name for node in selected]
    gone = vacated(replica, names)
    geometry = ", ".join(change.profiles)
    offers = f"{geometry}, and nothing else" if geometry else "whole, without partitions"
    text = f"every GPU of {effect.listed(names)}: {offers}"
    if gone.again or gone.lost:
        text += f"; {node_changes.fate_of(gone)}"
    return Effect([*gone.edits, *edits], text, tuple(gone.lost))


def vacated(replica: Replica, names: Sequence[str]) -> displaced_pods.Displaced:
    """Pods that hold GPUs of these nodes leave them."""
    return displaced_pods.displaced(
        replica, frozenset(names), is_node_gone=False, among=lambda pod: holds_gpus(replica, pod)
    )


def holds_gpus(replica: Replica, pod: pods.Pod) -> bool:
    """Whether a running pod holds GPUs, as devices or by a device plugin's count."""
    for key in replica.world.claims_used(pod):
        allocation = replica.world.allocation(key)
        results = allocation.devices.results if allocation is not None else ()
        if any(gpu_ledger.publishes_gpus(result.driver) for result in results):
            return True
    return any(node_pools.is_gpu_resource(name) for name, _ in pod_requests.occupied(pod).scalars)


def gpu_slices(replica: Replica, node: str) -> list[slices.ResourceSlice]:
    """The slices of a node's GPUs, by name."""
    parts = [
        stored.struct
        for stored in replica.listed(registry.SLICE.unique_name)
        if isinstance(stored.struct, slices.ResourceSlice)
        and stored.struct.spec.node_name == node
        and gpu_ledger.publishes_gpus(stored.struct.spec.driver)
    ]
    return sorted(parts, key=lambda part: part.metadata.name)


def plugin_gpu_count(node: nodes.Node) -> int:
    """How many boards a device plugin serves on a node; 0 where it counts none."""
    counts = node_pools.plugin_gpus(node)
    if not counts:
        return 0
    labelled = node_pools.pool_of(node)
    if labelled.gpu_count:
        return labelled.gpu_count
    return counts.get(node_pools.GPU_RESOURCE, 0) // max(labelled.clients_per_gpu, 1)


def with_resources(
    replica: Replica, node: nodes.Node, amounts: dict[str, int], labels: dict[str, str]
) -> Edit:
    """The node with these resources of a device plugin instead of its own, and further labels."""
    stored = replica.get(object_set.key_of(node))
    assert stored is not None, "a node of the World that was never stored"

    def changed(resources: dict[str, quantity.Quantity]) -> dict[str, quantity.Quantity]:
        kept = {
            name: amount
            for name, amount in resources.items()
            if not name.startswith(PLUGIN_RESOURCES)
        }
        return kept | {name: quantity.Quantity.from_int(count) for name, count in amounts.items()}

    status = msgspec.structs.replace(
        node.status,
        allocatable=changed(node.status.allocatable),
        capacity=changed(node.status.capacity),
    )
    metadata = msgspec.structs.replace(node.metadata, labels=node.metadata.labels | labels)
    return effect.changed(stored, msgspec.structs.replace(node, metadata=metadata, status=status))


def _of_node(replica: Replica, node: nodes.Node, profiles: Sequence[str]) -> list[Edit]:
    name = node.metadata.name
    type_ = node_selection.gpu_type(replica.world, name)
    board = node_selection.board_of(type_)
    if board is None:
        raise errors.InputError(
            f"{name}: the catalogue has no {type_}, so its partitions are not known"
        )
    layout = mig_layout.layout(board, profiles) if profiles else ()
    parts = gpu_slices(replica, name)
    if parts:
        return _devices(parts, board, layout)
    count = plugin_gpu_count(node)
    if not count:
        raise errors.InputError(f"{name} has no GPUs")
    counts = Counter(
        f"nvidia.com/mig-{placed.profile.name.value.replace('+', '.')}" for placed in layout
    )
    amounts = {resource: number * count for resource, number in counts.items()}
    strategy = {"nvidia.com/mig.strategy": "mixed"} if profiles else {}
    return [with_resources(replica, node, amounts or {node_pools.GPU_RESOURCE: count}, strategy)]


def _devices(
    parts: Sequence[slices.ResourceSlice], gpu: gpus.Gpu, layout: Sequence[mig_layout.Placed]
) -> list[Edit]:
    boards = board_devices.boards_of(parts)
    if layout:
        devices = [device for board in boards for device in board_devices.partitions(board, layout)]
        counter_sets = [board_devices.counter_set(board, gpu) for board in boards]
    else:
        devices = [board_devices.whole(board, gpu) for board in boards]
        counter_sets = []
    after = board_devices.published(parts, devices, counter_sets)
    return [effect.deleted(part) for part in parts] + [effect.created(part) for part in after]
