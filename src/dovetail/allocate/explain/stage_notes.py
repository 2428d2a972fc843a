"""Names what a rule about devices was about: the capacities that a request asks for, and the taints in its way.

Given devices that passed the rules before. Returns text for reasons; never decides which devices pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.allocate.ask.device_requests import Option
from dovetail.allocate.index.candidates import is_tolerated
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import blocking_taints
from dovetail.kubetypes.node_selectors import DeviceTaint
from dovetail.kubetypes.resource import capacity
from dovetail.quantity.quantity import Quantity
from dovetail.world.devices.device_columns import Template

TAINTED: Final = "; tainted: "  # begins the note about taints, after the chain of rules
SHOWN: Final = 3  # taints named
MAX_AMOUNT_LENGTH: Final = 32  # characters of an amount: the API bounds neither digits nor exponent


def capacity_text(node: NodeDevices, option: Option, mask: int) -> str:
    """What a request asks of one device, and the largest on offer where that is too little."""
    if not option.capacity:
        return "offer the capacity"
    amounts = []
    for name, amount in sorted(option.capacity.items()):
        offers = [
            _most_offered(template.capacity[name])
            for template in _templates(node, mask)
            if name in template.capacity
        ]
        amounts.append(f"{name} of {_amount_text(amount)}{_shortfall(amount, offers)}")
    return f"offer {' and '.join(amounts)}"


def taint_text(node: NodeDevices, option: Option, mask: int, *, free: int) -> str:
    """The taints that keep the request away from these devices, and how many of those are free."""
    taints = {_text(taint) for taint in _taints(node, mask) if not _tolerates(option, taint)}
    shown = sorted(taints)[:SHOWN]
    unnamed = len(taints) - len(shown)
    more = f" and {unnamed} more" if unnamed else ""
    return (
        f"{TAINTED}{mask.bit_count()} with {', '.join(shown)}{more}, "
        f"{free.bit_count()} of them free"
    )


def _shortfall(amount: Quantity, offers: list[Quantity]) -> str:
    if not offers:
        return " (no device has it)"
    largest = max(offers)
    return f" (largest {_amount_text(largest)})" if largest < amount else ""


def _amount_text(amount: Quantity) -> str:
    text = str(amount)
    return text if len(text) <= MAX_AMOUNT_LENGTH else f"{text[: MAX_AMOUNT_LENGTH - 3]}..."


def _most_offered(offered: capacity.DeviceCapacity) -> Quantity:
    """The most that one request may take of a device's capacity."""
    policy = offered.request_policy
    if policy is None:
        return offered.value
    if policy.valid_range is not None and policy.valid_range.max is not None:
        return min(offered.value, policy.valid_range.max)
    if policy.valid_values:
        return min(offered.value, max(policy.valid_values))
    return offered.value


def _templates(node: NodeDevices, mask: int) -> Iterator[Template]:
    """Each distinct kind of device among these."""
    for start, facts in zip(node.starts, node.facts, strict=True):
        for template, devices in facts.kinds:
            if mask >> start & devices:
                yield template


def _taints(node: NodeDevices, mask: int) -> Iterator[DeviceTaint]:
    """The blocking taints of these devices: those they were published with, and those that rules add."""
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        for taints, devices in facts.taints:
            if mask >> start & devices:
                yield from taints
        for index, taints in pool.extra_taints.items():
            if mask >> start >> index & 1:
                yield from blocking_taints(taints)


def _tolerates(option: Option, taint: DeviceTaint) -> bool:
    return is_tolerated((taint,), option.tolerations)


def _text(taint: DeviceTaint) -> str:
    """As kubectl writes taints."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
