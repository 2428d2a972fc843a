"""What a share of a device takes of its capacities, and what is left of them.

Given templates and what requests ask for; amounts are worked out once per template and request. Never records use.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.allocate.requests import Option
from dovetail.allocate.score import UNIT
from dovetail.model import capacity as policy
from dovetail.model.policy import AllocationPolicy
from dovetail.model.quantity import Quantity
from dovetail.world.devices import Template

_MEMO_SIZE = 16_384

Share = Mapping[str, Quantity]
_shares: dict[tuple[int, tuple[tuple[str, str], ...], bool], tuple[Template, Share | None]] = {}


def share_of(template: Template, option: Option, *, fractional: bool) -> Share | None:
    """What one share takes from an empty device; None where no such share is offered. Raises CapacityError."""
    key = (id(template), option.capacity_key, fractional)
    known = _shares.get(key)
    if known is None:
        if len(_shares) >= _MEMO_SIZE:
            _shares.clear()
        taken = policy.share_of(template.capacity, option.capacity, fractional=fractional)
        known = _shares[key] = (template, taken)
    return known[1]


def is_room(template: Template, share: Share, in_use: Mapping[str, int]) -> bool:
    """Whether the share fits beside what others hold, in nanos."""
    return all(
        share[name].nanos + in_use.get(name, 0) <= capacity.value.nanos for name, capacity in template.capacity.items()
    )


def oversize(template: Template, sizes: Mapping[str, tuple[int, int]], weights: AllocationPolicy) -> int:
    """The cost of being larger than the smallest candidate; most for the largest. Shares waste nothing."""
    if not sizes or template.allow_multiple_allocations:
        return 0
    parts = 0
    for name, (least, most) in sizes.items():
        size = template.capacity[name].value.nanos if name in template.capacity else 0
        parts += (size - least) * 1000 // (most - least)
    return weights.oversize * UNIT * (parts // len(sizes)) // 1000
