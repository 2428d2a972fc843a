"""A node with other partitions on some of its GPUs, as edits of a replica; their holders leave first.

Given a replica, a node and the geometry of each GPU that changes. GPUs that stay keep their devices, and so their
holders. Raises InputError where a board does not allow a geometry. Never chooses one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from dovetail.answer.partitioning.partition_nodes import MIG_RESOURCE, Geometry, StaticNode
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import (
    board_devices,
    displaced_pods,
    effect,
    mig_layout,
    partition_changes,
)
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools

MIXED: Final = {node_pools.MIG_STRATEGY: "mixed"}


def vacated(replica: Replica, node: str, leaving: Collection[str]) -> displaced_pods.Displaced:
    """These pods leave the node."""

    def is_leaving(pod: pods.Pod) -> bool:
        return f"{pod.metadata.namespace}/{pod.metadata.name}" in leaving

    return displaced_pods.displaced(
        replica, frozenset({node}), is_node_gone=False, among=is_leaving
    )


def partitioned(replica: Replica, node: StaticNode, after: Mapping[int, Geometry]) -> list[Edit]:
    """The node with these GPUs changed, by index."""
    if node.is_counted:
        return [_counted(replica, node, after)]
    parts = partition_changes.gpu_slices(replica, node.name)
    boards = board_devices.boards_of(parts)
    devices: list[slices.Device] = []
    counters: list[slices.CounterSet] = []
    for state, board in zip(node.boards, boards, strict=True):
        geometry = after.get(state.number)
        if geometry is None:
            devices += _present(parts, board.name)
        elif geometry:
            layout = mig_layout.layout(node.board, geometry)
            devices += board_devices.partitions(board, layout)
            counters.append(board_devices.counter_set(board, node.board))
        else:
            devices.append(board_devices.whole(board, node.board))
    published = board_devices.published(parts, devices, counters)
    return [effect.deleted(part) for part in parts] + [effect.created(part) for part in published]


def _present(parts: Collection[slices.ResourceSlice], board: str) -> list[slices.Device]:
    return [
        device
        for part in parts
        for device in part.spec.devices
        if device.name.partition("-mig-")[0] == board
    ]


def _counted(replica: Replica, node: StaticNode, after: Mapping[int, Geometry]) -> Edit:
    """The resources that the device plugin counts afterwards, with the strategy `mixed`."""
    amounts: Counter[str] = Counter()
    for state in node.boards:
        geometry = after[state.number]
        if not geometry:
            amounts[node_pools.GPU_RESOURCE] += 1
            continue
        mig_layout.layout(node.board, geometry)
        amounts.update(f"{MIG_RESOURCE}{profile.replace('+', '.')}" for profile in geometry)
    target = replica.world.nodes[node.name]
    return partition_changes.with_resources(replica, target, dict(amounts), MIXED)
