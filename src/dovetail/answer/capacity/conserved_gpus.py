"""A bound without a search: how many copies could start at most, however work moves or yields.

Given a replica and the copies that start in free room. Where all GPUs are whole and every claim asks for an exact
number of them, moving work neither frees a GPU nor takes one more: free GPUs divided by those of a copy is the most.
And where no running work is lower than the copies, and no queue is owed anything, none yields. Linear in nodes, claims
and pods. Never decides; says nothing (None) where it is not sure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.answer.capacity import gpu_room
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.world.devices import gpu_ledger
from dovetail.world.views.node_view import PoolView
from dovetail.world.world import World

_EXACT_MODES: Final = ("", "ExactCount")  # resource.k8s.io/v1; empty is the default


class Use(NamedTuple):
    """Copies on one node, and what they take there."""

    copies: int
    milli_gpu: int


def most_copies(world: World, uses: list[Use]) -> int | None:
    """How many copies all free GPUs could hold, wherever they are; None where that is no bound."""
    costs = {use.milli_gpu / use.copies for use in uses if use.copies}
    if len(costs) != 1:
        return None
    (cost,) = costs
    if not cost or cost % gpu_ledger.WHOLE or not _has_whole_gpus(world):
        return None
    if not all(map(_asks_exactly, world.claims.values())):
        return None
    free = sum(gpu_room.free_milli_gpu(world, node) for node in world.nodes)
    return int(free // cost)


def can_none_yield(world: World, copy: pods.Pod) -> bool:
    """Whether no running work could be evicted for such a pod by priority or by what queues are due."""
    if world.queues or not world.gangs.is_trivial or not _is_priority_known(copy):
        return False
    priority = copy.spec.priority or 0
    running = [pod for pod in world.pods.values() if pod.spec.node_name]
    return all(_is_priority_known(pod) and (pod.spec.priority or 0) >= priority for pod in running)


def _is_priority_known(pod: pods.Pod) -> bool:
    return pod.spec.priority is not None or not pod.spec.priority_class_name


def _has_whole_gpus(world: World) -> bool:
    """Whether each GPU of the cluster is one device, which one pod holds, and all of them can be used."""
    known: set[int] = set()  # groups of templates that were looked at: many nodes share one
    for node in world.nodes:
        for pool in world.view(node).pools:
            if gpu_ledger.publishes_gpus(pool.driver) and not _is_whole(pool, known):
                return False
        labels = world.nodes[node].metadata.labels
        for name, _ in world.offered(node).scalars:
            if gpu_ledger.plugin_cost(name, 1, labels) not in (0, gpu_ledger.WHOLE):
                return False
    return True


def _is_whole(pool: PoolView, known: set[int]) -> bool:
    every = (1 << len(pool.devices)) - 1
    if not pool.is_complete or pool.problem or pool.usable & ~pool.barred & every != every:
        return False
    templates = pool.devices.templates
    if id(templates) not in known:
        if any(each.consumes_counters or each.allow_multiple_allocations for each in templates):
            return False
        known.add(id(templates))
    return True


def _asks_exactly(claim: claims.ResourceClaim) -> bool:
    return all(
        request.exactly is not None
        and request.exactly.allocation_mode in _EXACT_MODES
        and not request.exactly.admin_access
        for request in claim.spec.devices.requests
    )
