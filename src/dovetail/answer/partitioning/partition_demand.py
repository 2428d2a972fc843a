"""Which partitions waiting pods need: by the resource they name, or by asking the engine about each profile.

Given a replica and nodes that can be partitioned. A claim says what it needs in an expression, so an empty node with
nothing but one profile is tried for it, the smallest profile first. Never decides who starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dovetail import errors, gpus
from dovetail.answer.capacity import fragmentation, headroom, shapes
from dovetail.answer.partitioning import geometry_edits, partition_nodes
from dovetail.answer.partitioning.partition_nodes import MIG_RESOURCE, Geometry, StaticNode
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import mig_layout
from dovetail.kubetypes.core import pods
from dovetail.model import node_pools, pod_requests

WHOLE: Final = ""  # stands for a whole GPU among profiles
MOST_SHAPES: Final = 24  # of claims that are tried; later ones are not planned for
Need = tuple[str, ...]  # profiles, or WHOLE, that a pod takes


class Waiting(NamedTuple):
    """A pod that waits for GPUs."""

    name: str
    pod: pods.Pod


def waiting(replica: Replica) -> list[Waiting]:
    """The pods that wait for GPUs, in order."""
    world = replica.world
    asking = [pod for pod in world.pending() if fragmentation.uses_gpus(world, pod)]
    named = [Waiting(f"{pod.metadata.namespace}/{pod.metadata.name}", pod) for pod in asking]
    return sorted(named, key=lambda each: each.name)


class Needs:
    """What pods need on a type of node; asked once for pods that request the same."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._known: dict[tuple[object, str], Need | None] = {}

    def of(self, pod: pods.Pod, node: StaticNode) -> Need | None:
        """The partitions of one pod; None where such a node cannot serve it."""
        by_resource = _by_resource(pod, node.board)
        if node.is_counted:
            return None if pod.spec.resource_claims else by_resource
        if not pod.spec.resource_claims:
            # A class may stand behind the resource of whole GPUs; none stands behind those of partitions.
            return by_resource if by_resource and not any(by_resource) else None
        key = (fragmentation.shape_key(self._replica.world, pod), node.gpu_type)
        if key not in self._known:
            is_over = len({shape for shape, _ in self._known}) >= MOST_SHAPES
            self._known[key] = None if is_over else self._tried(pod, node)
        return self._known[key]

    def _tried(self, pod: pods.Pod, node: StaticNode) -> Need | None:
        try:
            shape = shapes.shape_of(self._replica, pod)
        except errors.InputError:
            return None  # a pod whose claims do not exist has no shape
        for profile in (*by_size(node.board), WHOLE):
            count = self._copies(shape, node, profile)
            if count:
                return count
        return None

    def _copies(self, shape: shapes.Shape, node: StaticNode, profile: str) -> Need | None:
        """How many partitions of one profile a copy takes on an empty node that has no other."""
        geometry = filled(node.board, profile)
        after = {board.number: geometry for board in node.boards}
        gone = geometry_edits.vacated(self._replica, node.name, node.holders)
        try:
            edits = geometry_edits.partitioned(self._replica, node, after)
        except errors.InputError:
            return None  # figures of the profile are not known
        with self._replica.edited([*gone.edits, *edits]):
            fit = headroom.free_room(self._replica, shape)
        copies = fit.by_node.get(node.name, 0)
        offered = max(len(geometry), 1) * len(node.boards)
        return (profile,) * max(offered // copies, 1) if copies else None


def by_size(board: gpus.Gpu) -> list[str]:
    """The profiles whose placement is known, the smallest first; media engines only where asked for by name."""
    known = [
        profile
        for profile in gpus.profiles(board)
        if profile.starts is not None and profile.memory_slices is not None
    ]
    plain = [profile for profile in known if "+" not in profile.name.value]
    ordered = sorted(plain, key=lambda each: (_size(each), each.compute_slices.value))
    return [profile.name.value for profile in ordered]


def filled(board: gpus.Gpu, profile: str) -> Geometry:
    """As many partitions of a profile as the board takes."""
    if not profile:
        return ()
    geometry: Geometry = ()
    while fits(board, (*geometry, profile)):
        geometry = (*geometry, profile)
    return geometry


def fits(board: gpus.Gpu, profiles: Sequence[str]) -> bool:
    """Whether a board takes these partitions together."""
    try:
        mig_layout.layout(board, profiles)
    except errors.InputError:
        return False
    return True


def counted(needs: Iterable[Need]) -> dict[str, int]:
    """Partitions by profile, for people."""
    counts = Counter(profile or "whole" for need in needs for profile in need)
    return dict(sorted(counts.items()))


def _by_resource(pod: pods.Pod, board: gpus.Gpu) -> Need | None:
    need: list[str] = []
    profiles = {profile.name.value for profile in gpus.profiles(board)}
    for name, count in pod_requests.pod_request(pod).scalars:
        if name == node_pools.GPU_RESOURCE:
            need += [WHOLE] * count
        elif name.startswith(MIG_RESOURCE):
            profile = partition_nodes.profile_of(name)
            if profile not in profiles:
                return None
            need += [profile] * count
    return tuple(need) or None


def _size(profile: gpus.Profile) -> int:
    return profile.memory_slices.value if profile.memory_slices is not None else 0
