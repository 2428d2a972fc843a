"""Counter sets: which partitions of a GPU still fit into its remaining counters, and what those placements are worth.

Given the templates that draw on a set and its totals; derives the kinds of partitions from the amounts alone, so it
holds for any driver. The weights follow the LEX rule: placements of large kinds count before those of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail import cache
from dovetail.allocate.index.consumed_capacity import UNIT
from dovetail.allocate.index.pool_index import charges_of, pool_index_of
from dovetail.kubetypes.resource.slices import CounterSet
from dovetail.model.policy import AllocationPolicy
from dovetail.world.devices.device_columns import Devices, Template

_MEMO_SIZE = 4096
_TIE = 8  # the tie-break weighs at most one eighth of the least valuable placement
Kind = tuple[object, ...]
Need = tuple[tuple[int, int], ...]  # position of a counter, amount
Content = tuple[
    tuple[str, ...],
    tuple[int, ...],
    tuple[Need, ...],
    tuple[int, ...],
    tuple[int, ...],
    AllocationPolicy,
]


class Partitions:
    """The possible partitions of a counter set and what each placement is worth. Sets of equal content share one."""

    __slots__ = ("_slots", "_values", "counters", "needs", "policy", "tie", "totals", "weights")

    def __init__(self, content: Content) -> None:
        self.counters, self.totals, self.needs, self.weights, self._slots, self.policy = content
        self.tie = min((weight for weight in self.weights if weight), default=0) // _TIE
        self._values: dict[tuple[int, ...], int] = {}

    def value(self, remaining: tuple[int, ...]) -> int:
        """What the placements that still fit into the remaining counters are worth.

        Plus a little for the square of what is free: of two placements at the same cost, the fuller set's is cheaper.
        """
        value = self._values.get(remaining)
        if value is None:
            if len(self._values) >= _MEMO_SIZE:
                self._values.clear()
            value = self._tie_break(remaining)
            value += sum(weight for _, weight in self._fitting(remaining))
            self._values[remaining] = value
        return value

    def _tie_break(self, remaining: tuple[int, ...]) -> int:
        free = sum(max(remaining[place], 0) for place in self._slots)
        whole = sum(self.totals[place] for place in self._slots)
        return self.tie * free * free // (whole * whole) if whole > 0 else 0

    def places(self, remaining: tuple[int, ...]) -> int:
        """How many placements still fit."""
        return sum(1 for _ in self._fitting(remaining))

    def _fitting(self, remaining: tuple[int, ...]) -> Iterator[tuple[Need, int]]:
        for need, weight in zip(self.needs, self.weights, strict=True):
            if all(amount <= remaining[place] for place, amount in need):
                yield need, weight


_BY_SET: Final = cache.Memo[tuple[int, int, AllocationPolicy], Partitions](_MEMO_SIZE)
_BY_CONTENT: Final = cache.Memo[Content, Partitions](_MEMO_SIZE)


def partitions_of(
    devices: Devices, counter_set: CounterSet, policy: AllocationPolicy
) -> Partitions:
    """The partitions of a set, worked out once per templates and set."""
    key = (id(devices.templates), id(counter_set), policy)
    partitions = _BY_SET.get(key)
    if partitions is None:
        content = _content(devices, counter_set, policy)
        partitions = _BY_CONTENT.get(content)
        if partitions is None:
            partitions = Partitions(content)
            _BY_CONTENT.put(content, partitions)
        _BY_SET.put(key, partitions, alive=(devices.templates, counter_set))
    return partitions


def _content(devices: Devices, counter_set: CounterSet, policy: AllocationPolicy) -> Content:
    counters = tuple(counter_set.counters)
    totals = tuple(counter.value.nanos for counter in counter_set.counters.values())
    partitions: list[tuple[Template, tuple[int, ...]]] = []
    for template, mask in pool_index_of(devices).kinds:
        need = _need(template, counter_set.name, counters)
        if need is not None:
            partitions.extend([(template, need)] * mask.bit_count())
    needs, weights, slots = _weighed(partitions, totals, policy)
    measured = tuple(sorted(slots)) or tuple(range(len(counters)))
    return counters, totals, tuple(needs), tuple(weights), measured, policy


def _need(template: Template, set_name: str, counters: tuple[str, ...]) -> tuple[int, ...] | None:
    """What a device draws, counter by counter; None if it draws on another set as well, or not on this one."""
    charges = charges_of(template)
    if not charges or any(name != set_name for name, _, _ in charges):
        return None
    amounts = {counter: amount for _, counter, amount in charges}
    return tuple(amounts.get(counter, 0) for counter in counters)


def _weighed(
    partitions: list[tuple[Template, tuple[int, ...]]],
    totals: tuple[int, ...],
    policy: AllocationPolicy,
) -> tuple[list[Need], list[int], set[int]]:
    """The placements to count with the weight of each, and the counters that distinguish placements."""
    kinds: dict[Kind, list[tuple[int, ...]]] = {}
    for template, need in partitions:
        kinds.setdefault(_kind(template, need), []).append(need)
    slots = _slots(kinds)
    extents = {
        kind: sum(placements[0][place] for place in slots) for kind, placements in kinds.items()
    }
    needs: list[Need] = []
    weights: list[int] = []
    for kind, placements in kinds.items():
        if _has_sibling(kind, kinds, extents, policy.sibling_ratio):
            continue
        # A kind is worth its share of the GPU, spread over its placements: losing all of them loses the kind.
        share = _share(placements[0], totals, slots)
        weight = policy.partition * UNIT * share // 1_000_000 // len(placements)
        for need in placements:
            needs.append(tuple((place, amount) for place, amount in enumerate(need) if amount))
            weights.append(weight)
    return needs, weights, slots


def _kind(template: Template, need: tuple[int, ...]) -> Kind:
    """Partitions are of one kind if they offer the same and draw the same amounts, from whichever counters."""
    offered = tuple(
        sorted((name, capacity.value.nanos) for name, capacity in template.capacity.items())
    )
    return (
        offered,
        tuple(sorted(amount for amount in need if amount)),
        template.allow_multiple_allocations,
    )


def _slots(kinds: dict[Kind, list[tuple[int, ...]]]) -> set[int]:
    """The counters that distinguish placements: those that some placements of a kind draw on and others do not."""
    return {
        place
        for placements in kinds.values()
        for place in range(len(placements[0]))
        if len({bool(need[place]) for need in placements}) == 2
    }


def _has_sibling(
    kind: Kind, kinds: dict[Kind, list[tuple[int, ...]]], extents: dict[Kind, int], ratio: int
) -> bool:
    """Whether another kind is as large and has far more placements; counting both would overprotect the rarer."""
    extent = extents[kind]
    if not extent:
        return False
    enough = ratio * len(kinds[kind])
    return any(
        extents[sibling] == extent and len(kinds[sibling]) >= enough
        for sibling in kinds
        if sibling != kind
    )


def _share(need: tuple[int, ...], totals: tuple[int, ...], slots: set[int]) -> int:
    """The share of the set that a partition takes, in millionths: the median of its shares of each counter.

    The counters that distinguish placements count as one. The median, because a single rare engine says little about
    size.
    """
    parts = [
        amount * 1_000_000 // total
        for place, (amount, total) in enumerate(zip(need, totals, strict=True))
        if amount and total > 0 and place not in slots
    ]
    extent, whole = (sum(amounts[place] for place in slots) for amounts in (need, totals))
    if extent and whole > 0:
        parts.append(extent * 1_000_000 // whole)
    return sorted(parts)[(len(parts) - 1) // 2] if parts else 0
