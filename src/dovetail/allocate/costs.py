"""What an allocation costs, told in named terms: lost places for partitions, broken-in devices, waste, waiting.

Given devices already chosen; adds up the same values the search went by, so the terms sum to its cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.allocate import capacity, counters
from dovetail.allocate.demand import Taken
from dovetail.allocate.ground import Ground
from dovetail.allocate.outcome import Term
from dovetail.allocate.requests import Option
from dovetail.allocate.score import UNIT, share_value
from dovetail.allocate.settled import Terms
from dovetail.model.policy import AllocationPolicy

Picks = Sequence[tuple[Option, int]]


def terms(settled: Terms, picks: Picks) -> tuple[Term, ...]:
    """The terms that are not zero."""
    ground, policy = settled.ground, settled.policy
    taken = Taken()
    for option, device in picks:
        taken.take(ground, option, device, distinct=(), fractional=settled.fractional)
    found = [
        _partitions(ground, taken, policy),
        _shares(ground, taken, policy),
        _oversize(settled, picks),
        _binding(ground, picks, policy),
    ]
    return tuple(term for term in found if term.milli_gpu)


def _partitions(ground: Ground, taken: Taken, policy: AllocationPolicy) -> Term:
    sets = {(pool, name) for pool, name, _ in taken.spent}
    cost, lost = 0, 0
    for pool, name in sorted(sets):
        devices = ground.pools[pool].devices
        counter_set = next(one for one in devices.counter_sets if one.name == name)
        partitions = counters.partitions_of(devices, counter_set, policy)
        before = tuple(ground.left((pool, name, counter)) for counter in partitions.counters)
        after = tuple(taken.left(ground, (pool, name, counter)) for counter in partitions.counters)
        cost += partitions.value(before) - partitions.value(after)
        lost += partitions.places(before) - partitions.places(after)
    sentence = f"{lost} places where another partition would fit are used up"
    return Term("partitions", cost / UNIT, sentence)


def _shares(ground: Ground, taken: Taken, policy: AllocationPolicy) -> Term:
    cost, opened = 0, 0
    for device in taken.shares:
        capacities = ground.template(device).capacity
        totals = [one.value.nanos for one in capacities.values()]
        held, after = ground.held(device), taken.held(ground, device)
        before_left = [one.value.nanos - held.get(name, 0) for name, one in capacities.items()]
        after_left = [one.value.nanos - after.get(name, 0) for name, one in capacities.items()]
        cost += share_value(before_left, totals, policy) - share_value(after_left, totals, policy)
        opened += not ground.is_shared_already(device)
    sentence = f"shares of {len(taken.shares)} devices, {opened} of which nobody used before"
    return Term("shares", cost / UNIT, sentence)


def _oversize(settled: Terms, picks: Picks) -> Term:
    ground = settled.ground
    cost = sum(
        capacity.oversize(ground.template(device), ground.sizes(settled.candidates[option].mask), settled.policy)
        for option, device in picks
        if option.count is not None
    )
    return Term("oversize", cost / UNIT, "the devices are larger than the smallest that would do")


def _binding(ground: Ground, picks: Picks, policy: AllocationPolicy) -> Term:
    waiting = sum(
        1 for option, device in picks if option.count is not None and ground.template(device).binding_conditions
    )
    return Term(
        "binding", float(policy.binding * waiting), f"{waiting} devices must be prepared before they can be used"
    )
