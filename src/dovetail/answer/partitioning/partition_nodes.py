"""The nodes whose GPUs can be partitioned: which boards, how they are partitioned now, and who holds them.

Given a replica. Where devices draw on counters, a driver makes partitions for each claim: nothing is to be planned.
Where a device plugin counts GPUs, no object says which GPU a pod holds, so all holders of the node count for each GPU.
Never chooses a geometry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail import gpus
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import board_devices, node_selection, partition_changes
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools, plan
from dovetail.world.devices import gpu_ledger

MIG_RESOURCE: Final = "nvidia.com/mig-"
Geometry = tuple[str, ...]  # names of profiles, sorted; none: a whole GPU


class BoardState(NamedTuple):
    """One GPU of a node."""

    number: int  # as the driver counts GPUs
    geometry: Geometry | None  # None: nothing says which GPU of the node has which
    holders: tuple[str, ...]  # namespace/name of pods


class StaticNode(NamedTuple):
    """A node whose partitions an administrator makes."""

    name: str
    gpu_type: str
    board: gpus.Gpu
    boards: tuple[BoardState, ...]
    is_counted: bool  # by a device plugin, so that its GPUs change all together

    @property
    def holders(self) -> tuple[str, ...]:
        """All pods that hold GPUs of it."""
        return tuple(sorted({name for board in self.boards for name in board.holders}))


class Nodes(NamedTuple):
    """The nodes with GPUs."""

    static: tuple[StaticNode, ...]
    on_demand: tuple[str, ...]
    passed: dict[str, str]  # why a node cannot be planned

    def without(self, excluded: Mapping[str, str]) -> Nodes:
        """The same, these nodes left alone for the reasons that are given."""
        kept = tuple(node for node in self.static if node.name not in excluded)
        reasons = {node.name: excluded[node.name] for node in self.static if node.name in excluded}
        return Nodes(kept, self.on_demand, self.passed | reasons)


def nodes_of(replica: Replica) -> Nodes:
    """All nodes with GPUs, by name."""
    static: list[StaticNode] = []
    on_demand: list[str] = []
    passed: dict[str, str] = {}
    by_node = _holders(replica)
    for name in sorted(replica.world.nodes, key=node_selection.natural):
        type_ = node_selection.gpu_type(replica.world, name)
        if type_ == node_selection.NO_GPUS:
            continue
        board = node_selection.board_of(type_)
        if board is None or board.mig is None:
            passed[name] = (
                f"{type_}: no MIG" if board is not None else f"{type_}: not a known board"
            )
            continue
        parts = partition_changes.gpu_slices(replica, name)
        if any(_is_on_demand(part) for part in parts):
            on_demand.append(name)
            continue
        node = replica.world.nodes[name]
        why = _unplannable(node, has_slices=bool(parts))
        if why:
            passed[name] = why
            continue
        holders = by_node.get(name, [])
        boards = _published(parts, holders) if parts else _counted(node, holders)
        static.append(StaticNode(name, type_, board, boards, not parts))
    return Nodes(tuple(static), tuple(on_demand), passed)


class _Holder(NamedTuple):
    pod: str
    devices: tuple[str, ...]  # names, where they are known


def _holders(replica: Replica) -> dict[str, list[_Holder]]:
    by_node: dict[str, list[_Holder]] = {}
    world = replica.world
    for pod_id, (node, _) in world.running().items():
        pod = world.pods[pod_id]
        if not partition_changes.holds_gpus(replica, pod):
            continue
        devices = [
            result.device
            for key in world.claims_used(pod)
            if (allocation := world.allocation(key)) is not None
            for result in allocation.devices.results
            if gpu_ledger.publishes_gpus(result.driver)
        ]
        by_node.setdefault(node, []).append(_Holder(_name(pod), tuple(devices)))
    return by_node


def _name(pod: pods.Pod) -> str:
    ref = plan.pod_ref(pod)
    return f"{ref.namespace}/{ref.name}"


def _is_on_demand(part: slices.ResourceSlice) -> bool:
    has_counters = any(device.consumes_counters for device in part.spec.devices)
    return has_counters or bool(part.spec.shared_counters)


def _unplannable(node: nodes.Node, *, has_slices: bool) -> str:
    pool = node_pools.pool_of(node)
    if node.spec.unschedulable:
        return "cordoned"
    if pool.mig_state in ("pending", "rebooting"):
        return f"it is being partitioned: {node_pools.MIG_STATE} is {pool.mig_state}"
    if pool.sharing:
        return f"its GPUs are shared: {pool.sharing}"
    if not has_slices and not partition_changes.plugin_gpu_count(node):
        return "no label says how many GPUs it has (MIG strategy single)"
    if not has_slices and any(board.geometry is None for board in _counted(node, ())):
        return "its GPUs differ, and nothing says which has which partitions"
    return ""


def _published(
    parts: Sequence[slices.ResourceSlice], holders: Sequence[_Holder]
) -> tuple[BoardState, ...]:
    boards = board_devices.boards_of(parts)
    states = []
    for index, board in enumerate(boards):
        geometry: list[str] = []
        for part in parts:
            for device in part.spec.devices:
                profile = device.attributes.get("profile")
                is_its = device.name.partition("-mig-")[0] == board.name
                if is_its and profile is not None and profile.string_value:
                    geometry.append(profile.string_value)
        held = [
            holder.pod
            for holder in holders
            if not holder.devices
            or any(name.partition("-mig-")[0] == board.name for name in holder.devices)
        ]
        states.append(BoardState(_index(board.name, index), tuple(sorted(geometry)), tuple(held)))
    return tuple(states)


def _index(name: str, place: int) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else place


def _counted(node: nodes.Node, holders: Sequence[_Holder]) -> tuple[BoardState, ...]:
    count = partition_changes.plugin_gpu_count(node)
    offered = node_pools.plugin_gpus(node)
    has_partitions = any(name.startswith(MIG_RESOURCE) for name in offered)
    geometry = _even(offered, count) if has_partitions else ()
    held = tuple(holder.pod for holder in holders)
    return tuple(BoardState(index, geometry, held) for index in range(count))


def _even(offered: dict[str, int], count: int) -> Geometry | None:
    """The partitions of each GPU where all may have the same."""
    profiles: list[str] = []
    for name, number in offered.items():
        if not name.startswith(MIG_RESOURCE) or number % count:
            return None
        profiles += [profile_of(name)] * (number // count)
    return tuple(sorted(profiles))


def profile_of(resource: str) -> str:
    """The profile behind a device plugin's resource, which writes `.me` for `+me`."""
    name = resource.removeprefix(MIG_RESOURCE)
    head, suffix, tail = name.partition("gb.")
    return f"{head}gb+{tail}" if suffix else name
