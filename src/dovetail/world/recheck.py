"""The last check before a pod is bound: whether its placement still fits the node.

Given amounts, allocations and held devices; returns the problem as a sentence, or None. Never undoes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests
from dovetail.world.devices.device_pools import PoolKey
from dovetail.world.events import ObjectKey

Allocations = Mapping[ObjectKey, claims.AllocationResult]


def room_problem(
    node: str, free: pod_requests.Resources, offered: pod_requests.Resources
) -> str | None:
    """The resource of which more is requested than the node has. Resources it never offered come from devices."""
    free_amounts = {
        pod_requests.PODS: free.pods,
        pod_requests.CPU: free.milli_cpu,
        pod_requests.MEMORY: free.memory_bytes,
        pod_requests.EPHEMERAL_STORAGE: free.ephemeral_bytes,
    }
    for name, amount in free.scalars:
        if offered.scalar(name) > 0:
            free_amounts[name] = amount
    for name, amount in free_amounts.items():
        if amount < 0:
            excess = pod_requests.amount_text(name, -amount)
            return f"node {node} is overcommitted by {excess} {name}"
    return None


def pools_of(allocations: Allocations) -> tuple[PoolKey, ...]:
    """The pools of the allocated devices, each once."""
    pools = ((result.driver, result.pool) for result in _holding(allocations.values()))
    return tuple(dict.fromkeys(pools))


def hold_problem(
    allocations: Allocations, holds: Mapping[str, claims.AllocationResult]
) -> str | None:
    """An allocated device that is held out of use. Two shares of one device do not conflict."""
    if not holds:
        return None
    is_share_of = {
        (result.driver, result.pool, result.device): result.share_id is not None
        for result in _holding(allocations.values())
    }
    for name, hold in sorted(holds.items()):
        for result in hold.devices.results:
            is_share = is_share_of.get((result.driver, result.pool, result.device))
            if is_share is None:
                continue  # not allocated here
            if not is_share or result.share_id is None:
                pool = f"{result.driver}/{result.pool}"
                return f"device {result.device} of pool {pool} is held back: {name}"
    return None


def _holding(
    allocations: Iterable[claims.AllocationResult],
) -> Iterator[claims.DeviceRequestAllocationResult]:
    """The results that hold their device; administrative access does not."""
    for allocation in allocations:
        for result in allocation.devices.results:
            if not result.admin_access:
                yield result
