"""Decides whether what was assumed for a node still fits there: asked once more right before a pod is bound.

Given amounts, allocations and what is held back; says in a sentence what is wrong. Never undoes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dovetail.model import claims, requests
from dovetail.world.events import ObjectKey
from dovetail.world.pools import PoolKey

Allocations = Mapping[ObjectKey, claims.AllocationResult]


def room_problem(node: str, free: requests.Resources, offered: requests.Resources) -> str | None:
    """What a node has given away more of than it has. What it never offered is served by others."""
    amounts = {
        requests.PODS: free.pods,
        requests.CPU: free.milli_cpu,
        requests.MEMORY: free.memory_bytes,
        requests.EPHEMERAL_STORAGE: free.ephemeral_bytes,
        **{name: left for name, left in free.scalars if offered.scalar(name) > 0},
    }
    for name, left in amounts.items():
        if left < 0:
            return f"node {node} has given away {requests.amount_text(name, -left)} {name} more than it has"
    return None


def pools_of(allocations: Allocations) -> tuple[PoolKey, ...]:
    """The pools the devices are from, each once."""
    return tuple(dict.fromkeys((result.driver, result.pool) for result in _taken(allocations.values())))


def hold_problem(allocations: Allocations, held: Mapping[str, claims.AllocationResult]) -> str | None:
    """A device that is kept out of use meanwhile."""
    if not held:
        return None
    shares = {
        (result.driver, result.pool, result.device): result.share_id is not None
        for result in _taken(allocations.values())
    }
    for name, allocation in sorted(held.items()):
        for result in allocation.devices.results:
            is_share = shares.get((result.driver, result.pool, result.device))
            if is_share is False or (is_share and result.share_id is None):  # shares leave room for others
                return f"device {result.device} of pool {result.driver}/{result.pool} is held back: {name}"
    return None


def _taken(
    allocations: Iterable[claims.AllocationResult],
) -> Iterator[claims.DeviceRequestAllocationResult]:
    for allocation in allocations:
        yield from (result for result in allocation.devices.results if not result.admin_access)
