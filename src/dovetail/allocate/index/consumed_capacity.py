"""Capacities of devices: what a share consumes, whether it fits, and what using or wasting them costs.

Given templates and requests; amounts are computed once per template and request. Costs are in thousandths of a GPU,
and every cost is a difference of values before and after, so the costs of devices that share nothing add up. Never
records use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dovetail import cache
from dovetail.allocate.ask.device_requests import Option
from dovetail.kubetypes.resource import capacity
from dovetail.model.policy import AllocationPolicy
from dovetail.quantity.quantity import Quantity
from dovetail.world.devices.device_columns import Template

UNIT = 1_000_000  # costs are integers inside, in millionths of a thousandth of a GPU
_MEMO_SIZE = 16_384

Share = Mapping[str, Quantity]
_SHARES: Final = cache.Memo[tuple[int, tuple[tuple[str, str], ...], bool], tuple[Share | None]](
    _MEMO_SIZE
)


def share_of(template: Template, option: Option, *, fractional: bool) -> Share | None:
    """What one share takes from an empty device; None where no such share is offered. Raises CapacityError."""
    key = (id(template), option.capacity_key, fractional)
    entry = _SHARES.get(key)
    if entry is None:
        entry = (capacity.share_of(template.capacity, option.capacity, fractional=fractional),)
        _SHARES.put(key, entry, alive=template)
    return entry[0]


def is_room(template: Template, share: Share, in_use: Mapping[str, int]) -> bool:
    """Whether the share fits next to the nanos in use."""
    return all(
        share[name].nanos + in_use.get(name, 0) <= capacity.value.nanos
        for name, capacity in template.capacity.items()
    )


def oversize(
    template: Template, sizes: Mapping[str, tuple[int, int]], weights: AllocationPolicy
) -> int:
    """The cost of being larger than the smallest candidate; highest for the largest. Shares waste nothing."""
    if not sizes or template.allow_multiple_allocations:
        return 0
    excess = 0
    for name, (smallest, largest) in sizes.items():
        size = template.capacity[name].value.nanos if name in template.capacity else 0
        excess += (size - smallest) * 1000 // (largest - smallest)
    return weights.oversize * UNIT * (excess // len(sizes)) // 1000


def share_value(free: Sequence[int], total: Sequence[int], policy: AllocationPolicy) -> int:
    """The value of the free part of a shareable device: the square of its scarcest free fraction.

    Convex on purpose: a share costs less on a device that is fuller already, so devices fill up one by one.
    """
    scarcest = 1_000_000
    for amount, whole in zip(free, total, strict=True):
        if whole > 0:
            scarcest = min(scarcest, max(amount, 0) * 1_000_000 // whole)
    return policy.whole * UNIT * scarcest * scarcest // 10**12
