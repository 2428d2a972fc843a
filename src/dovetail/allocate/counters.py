"""Counter sets: which partitions of a GPU still fit what is left of it, and what those places are worth.

Given the templates that draw on a set and its totals; derives kinds of partitions from the amounts alone, so it
holds for any driver. The weights follow the LEX rule: lost places of large kinds before those of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.allocate.facts import charges_of, facts_of
from dovetail.allocate.score import UNIT
from dovetail.model.policy import AllocationPolicy
from dovetail.model.slices import CounterSet
from dovetail.world.devices import Devices, Template

_MEMO_SIZE = 4096
_TIE = 8  # breaking ties never weighs more than this part of the smallest place
Kind = tuple[object, ...]
Need = tuple[tuple[int, int], ...]  # position of a counter, amount
Content = tuple[tuple[str, ...], tuple[int, ...], tuple[Need, ...], tuple[int, ...], tuple[int, ...], AllocationPolicy]


class Partitions:
    """The partitions of a counter set and what each place is worth. Sets of equal content share one."""

    __slots__ = ("_slots", "_values", "counters", "needs", "policy", "tie", "totals", "weights")

    def __init__(self, content: Content) -> None:
        self.counters, self.totals, self.needs, self.weights, self._slots, self.policy = content
        self.tie = min((weight for weight in self.weights if weight), default=0) // _TIE
        self._values: dict[tuple[int, ...], int] = {}

    def value(self, left: tuple[int, ...]) -> int:
        """What the places that still fit are worth.

        And a little for the square of what is free: of two places that cost the same, the fuller set's comes first.
        """
        known = self._values.get(left)
        if known is None:
            if len(self._values) >= _MEMO_SIZE:
                self._values.clear()
            have = sum(max(left[place], 0) for place in self._slots)
            whole = sum(self.totals[place] for place in self._slots)
            tie = self.tie * have * have // (whole * whole) if whole > 0 else 0
            known = self._values[left] = tie + sum(weight for _, weight in self._fitting(left))
        return known

    def places(self, left: tuple[int, ...]) -> int:
        """How many places still fit."""
        return sum(1 for _ in self._fitting(left))

    def _fitting(self, left: tuple[int, ...]) -> Iterator[tuple[Need, int]]:
        for need, weight in zip(self.needs, self.weights, strict=True):
            if all(amount <= left[place] for place, amount in need):
                yield need, weight


_known: dict[tuple[int, int, AllocationPolicy], tuple[object, Partitions]] = {}
_by_content: dict[Content, Partitions] = {}


def partitions_of(devices: Devices, counter_set: CounterSet, policy: AllocationPolicy) -> Partitions:
    """The partitions of a set, worked out once per templates and set."""
    key = (id(devices.templates), id(counter_set), policy)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MEMO_SIZE:
            _known.clear()
            _by_content.clear()
        content = _content(devices, counter_set, policy)
        alive = (devices.templates, counter_set)  # so that the ids in the key stay theirs
        found = _known[key] = (alive, _by_content.setdefault(content, Partitions(content)))
    return found[1]


def _content(devices: Devices, counter_set: CounterSet, policy: AllocationPolicy) -> Content:
    counters = tuple(counter_set.counters)
    totals = tuple(counter.value.nanos for counter in counter_set.counters.values())
    found: list[tuple[Template, tuple[int, ...]]] = []
    for template, mask in facts_of(devices).kinds:
        need = _need(template, counter_set.name, counters)
        if need is not None:
            found.extend([(template, need)] * mask.bit_count())
    needs, weights, slots = _weighed(found, totals, policy)
    told = tuple(sorted(slots)) or tuple(range(len(counters)))
    return counters, totals, tuple(needs), tuple(weights), told, policy


def _need(template: Template, set_name: str, counters: tuple[str, ...]) -> tuple[int, ...] | None:
    """What a device draws, counter by counter; None if it draws on another set, too, or not on this one."""
    charges = charges_of(template)
    if not charges or any(name != set_name for name, _, _ in charges):
        return None
    amounts = {counter: amount for _, counter, amount in charges}
    return tuple(amounts.get(counter, 0) for counter in counters)


def _weighed(
    found: list[tuple[Template, tuple[int, ...]]], totals: tuple[int, ...], policy: AllocationPolicy
) -> tuple[list[tuple[tuple[int, int], ...]], list[int], set[int]]:
    kinds: dict[Kind, list[tuple[int, ...]]] = {}
    for template, need in found:
        kinds.setdefault(_kind(template, need), []).append(need)
    slots = _slots(kinds)
    extents = {
        kind: sum(amount for place, amount in enumerate(needs[0]) if place in slots) for kind, needs in kinds.items()
    }
    needs: list[tuple[tuple[int, int], ...]] = []
    weights: list[int] = []
    for kind, placements in kinds.items():
        if _has_sibling(kind, kinds, extents, policy.sibling_ratio):
            continue
        weight = policy.partition * UNIT * _share(placements[0], totals, slots) // 1_000_000 // len(placements)
        for need in placements:
            needs.append(tuple((place, amount) for place, amount in enumerate(need) if amount))
            weights.append(weight)
    return needs, weights, slots


def _kind(template: Template, need: tuple[int, ...]) -> Kind:
    """Partitions are of one kind if they offer the same and draw the same amounts, whichever counters these are."""
    offered = tuple(sorted((name, capacity.value.nanos) for name, capacity in template.capacity.items()))
    return (offered, tuple(sorted(amount for amount in need if amount)), template.allow_multiple_allocations)


def _slots(kinds: dict[Kind, list[tuple[int, ...]]]) -> set[int]:
    """The counters that tell places apart: those some places of a kind draw on and others do not."""
    return {
        place
        for placements in kinds.values()
        for place in range(len(placements[0]))
        if len({bool(need[place]) for need in placements}) == 2
    }


def _has_sibling(kind: Kind, kinds: dict[Kind, list[tuple[int, ...]]], extents: dict[Kind, int], ratio: int) -> bool:
    """Whether another kind covers as much in far more places; counting both would guard the rarer too dearly."""
    mine = len(kinds[kind])
    return bool(extents[kind]) and any(
        extents[other] == extents[kind] and len(kinds[other]) >= ratio * mine for other in kinds if other != kind
    )


def _share(need: tuple[int, ...], totals: tuple[int, ...], slots: set[int]) -> int:
    """The part of the set a partition takes, in millionths: the middle one of its parts of each counter.

    The counters that tell places apart count as one. The middle, because a single rare engine says little of size.
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
