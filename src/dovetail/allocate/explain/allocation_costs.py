"""The cost of an allocation in named terms: lost placements for partitions, shares, oversized devices, waiting.

Given devices already chosen; adds up the same values as the search, so the terms sum to its cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.allocate.ask.demand import Preallocated
from dovetail.allocate.ask.device_requests import Option
from dovetail.allocate.index import consumed_capacity, counter_sets
from dovetail.allocate.index.consumed_capacity import UNIT, share_value
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.outcome import Term
from dovetail.allocate.solve.solver import SearchContext
from dovetail.model.policy import AllocationPolicy

Picks = Sequence[tuple[Option, int]]


def cost_terms(context: SearchContext, picks: Picks) -> tuple[Term, ...]:
    """The terms that are not zero."""
    node, policy = context.node, context.policy
    usage = Preallocated()
    for option, device in picks:
        usage.take(node, option, device, distinct=(), fractional=context.fractional)
    cost_terms = [
        _partitions(node, usage, policy),
        _shares(node, usage, policy),
        _oversize(context, picks),
        _binding(node, picks, policy),
    ]
    return tuple(term for term in cost_terms if term.milli_gpu)


def _partitions(node: NodeDevices, usage: Preallocated, policy: AllocationPolicy) -> Term:
    drawn_sets = {(pool, name) for pool, name, _ in usage.spent}
    cost, lost = 0, 0
    for pool, name in sorted(drawn_sets):
        devices = node.pools[pool].devices
        counter_set = next(
            counter_set for counter_set in devices.counter_sets if counter_set.name == name
        )
        partitions = counter_sets.partitions_of(devices, counter_set, policy)
        counters = partitions.counters
        before = tuple(node.left((pool, name, counter)) for counter in counters)
        after = tuple(usage.left(node, (pool, name, counter)) for counter in counters)
        cost += partitions.value(before) - partitions.value(after)
        lost += partitions.places(before) - partitions.places(after)
    sentence = f"{lost} places where another partition would fit are used up"
    return Term("partitions", cost / UNIT, sentence)


def _shares(node: NodeDevices, usage: Preallocated, policy: AllocationPolicy) -> Term:
    cost, opened = 0, 0
    for device in usage.shares:
        totals = {
            name: capacity.value.nanos for name, capacity in node.template(device).capacity.items()
        }
        used_before, used_after = node.held(device), usage.held(node, device)
        free_before = [total - used_before.get(name, 0) for name, total in totals.items()]
        free_after = [total - used_after.get(name, 0) for name, total in totals.items()]
        amounts = list(totals.values())
        cost += share_value(free_before, amounts, policy)
        cost -= share_value(free_after, amounts, policy)
        opened += not node.is_shared_already(device)
    sentence = f"shares of {len(usage.shares)} devices, {opened} of which were unused before"
    return Term("shares", cost / UNIT, sentence)


def _oversize(context: SearchContext, picks: Picks) -> Term:
    node = context.node
    cost = 0
    for option, device in picks:
        if option.count is not None:
            sizes = node.sizes(context.candidates[option].mask)
            cost += consumed_capacity.oversize(node.template(device), sizes, context.policy)
    return Term("oversize", cost / UNIT, "the devices are larger than the smallest that would do")


def _binding(node: NodeDevices, picks: Picks, policy: AllocationPolicy) -> Term:
    waiting = 0
    for option, device in picks:
        if option.count is not None and node.template(device).binding_conditions:
            waiting += 1
    sentence = f"{waiting} devices must be prepared before they can be used"
    return Term("binding", float(policy.binding * waiting), sentence)
