"""Solves requests whose options are fixed: finds the devices, or proves that there are none.

The steps, in an order that leaves each one less to decide:

1. Requests for all devices take theirs. There is no choice about them, so they come first.
2. Every matchAttribute constraint picks its common value. Each possible value narrows the candidates; the search
   branches only if several values are left.
3. What is left has no matchAttribute any more: needs become types, devices become groups that share no resource
   (`device_groups`), and `combine` serves the types from the groups.

Exact: every step keeps all solutions or branches over all possibilities, so None means that there is no solution.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from dovetail.allocate.ask.constraints import Constraint
from dovetail.allocate.ask.demand import Need, Preallocated, assigned, types_of
from dovetail.allocate.ask.device_requests import Option
from dovetail.allocate.index.candidates import Candidates
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import bits
from dovetail.allocate.outcome import Budget
from dovetail.allocate.solve.combine import combined
from dovetail.allocate.solve.device_groups import Splitter
from dovetail.kubetypes.resource.claims import MAX_RESULTS
from dovetail.model.policy import AllocationPolicy

Solution = tuple[int, list[tuple[Option, int]]]  # cost, devices


class SearchContext(NamedTuple):
    """What all searches of one attempt share."""

    node: NodeDevices
    constraints: Sequence[Constraint]
    candidates: dict[Option, Candidates]
    policy: AllocationPolicy
    budget: Budget
    fractional: bool


def count_of(context: SearchContext, option: Option) -> int:
    """How many devices the option takes."""
    return context.candidates[option].wanted.bit_count() if option.count is None else option.count


def has_enough_candidates(context: SearchContext, option: Option) -> bool:
    """Whether the option has enough candidates if it is alone."""
    mask, required = context.candidates[option]
    if option.count is None:
        return required != 0 and required & ~mask == 0
    return mask.bit_count() >= option.count


class FixedOptions:
    """One attempt with given options."""

    def __init__(self, context: SearchContext, options: Sequence[Option]) -> None:
        self.context = context
        self.options = options
        self.preallocated = Preallocated()
        # A request for all devices meets a constraint that these devices cannot satisfy. Reported as an error of the
        # claim rather than as a lack of devices.
        self.breaks_all = False

    def solve(self) -> Solution | None:
        """The devices at the lowest cost found, None if there are none."""
        self.context.budget.spend()
        if not self._is_within_limit() or not self._take_all():
            return None
        needs = []
        for option in self.options:
            if option.count is not None:
                mask = self.context.candidates[option].mask
                needs.append(Need(option, option.count, mask, offered=mask))
        matching = [
            constraint
            for constraint in self.context.constraints
            if constraint.is_match and any(map(constraint.covers, self.options))
        ]
        return self._match(needs, matching)

    def _is_within_limit(self) -> bool:
        total: dict[int, int] = {}
        for option in self.options:
            total[option.claim] = total.get(option.claim, 0) + count_of(self.context, option)
        return all(number <= MAX_RESULTS for number in total.values())

    # Step 1: requests for all devices

    def _take_all(self) -> bool:
        """Takes the devices of requests for all devices, in order; records if a constraint forbids it."""
        return all(self._take_all_of(option) for option in self.options if option.count is None)

    def _take_all_of(self, option: Option) -> bool:
        constraints = [rule for rule in self.context.constraints if rule.covers(option)]
        matching = [rule for rule in constraints if rule.is_match]
        distinct = [rule for rule in constraints if not rule.is_match]
        mask, required = self.context.candidates[option]
        for device in bits(required):
            if not mask >> device & 1 or not self._take_one_of(option, device, distinct):
                return False
            if not all(self._is_common(rule) for rule in matching):
                self.breaks_all = True
                return False
        return True

    def _take_one_of(self, option: Option, device: int, distinct: Sequence[Constraint]) -> bool:
        context = self.context
        picks_before = len(self.preallocated.picks)
        is_taken = self.preallocated.take(
            context.node, option, device, distinct=distinct, fractional=context.fractional
        )
        # A device that is refused and yet among the picks failed by a distinctAttribute constraint.
        if not is_taken and len(self.preallocated.picks) > picks_before:
            self.breaks_all = True
        return is_taken

    def _is_common(self, rule: Constraint) -> bool:
        """Whether the devices taken so far have a value in common."""
        values = self.context.node.values(rule.attribute)
        covered = [
            values[device] for option, device in self.preallocated.picks if rule.covers(option)
        ]
        present = [value for value in covered if value is not None]
        if len(present) < len(covered):
            return False
        return len(present) <= 1 or bool(frozenset.intersection(*present))

    # Step 2: common values

    def _match(self, needs: list[Need], rules: Sequence[Constraint]) -> Solution | None:
        """Picks the common value of one constraint after the other; recurses only if there is a choice."""
        for place, rule in enumerate(rules):
            covered = [need for need in needs if need.count and rule.covers(need.option)]
            masks = self._choices(rule, covered)
            if len(masks) != 1:
                narrowed = [_narrowed(needs, covered, mask) for mask in masks]
                return self._cheapest(narrowed, rules[place + 1 :])
            needs = _narrowed(needs, covered, masks[0])
        return self._serve(needs)

    def _choices(self, rule: Constraint, covered: list[Need]) -> list[int]:
        """The devices that remain for each possible common value; records if requests for all devices allow none."""
        fixed = [device for option, device in self.preallocated.picks if rule.covers(option)]
        values = self.context.node.values(rule.attribute)
        if any(values[device] is None for device in fixed):
            self.breaks_all = True
            return []

        compared = len(fixed) + sum(need.count for need in covered)
        if compared <= 1:
            # Nothing to compare with, but the attribute must be present.
            present = [device for device, value in enumerate(values) if value is not None]
            return [sum(1 << device for device in present)]

        masks = self._common(covered, fixed, values)
        if not masks and fixed:
            self.breaks_all = True
        return masks

    def _cheapest(
        self, choices: Sequence[list[Need]], rules: Sequence[Constraint]
    ) -> Solution | None:
        """The cheapest solution over all choices of a common value; all must be tried to prove that there is none."""
        best: Solution | None = None
        for needs in choices:
            solution = self._match(needs, rules)
            if solution is not None and (best is None or solution[0] < best[0]):
                best = solution
            if best is not None and best[0] == 0:
                break  # costs are never negative
        return best

    def _common(
        self, covered: list[Need], fixed: list[int], values: Sequence[frozenset[Hashable] | None]
    ) -> list[int]:
        """The devices that have a value, for each value that all needs could have in common.

        A value counts if all fixed devices have it and enough candidates of every need do. Values of the same devices
        are the same choice and are returned once.
        """
        union = 0
        for need in covered:
            union |= need.mask
        devices_with: dict[Hashable, int] = {}
        for device in (*fixed, *bits(union)):
            # Sorted, because sets have no order and the first of equally cheap solutions wins.
            for element in sorted(values[device] or (), key=repr):
                devices_with[element] = devices_with.get(element, 0) | 1 << device
        masks: dict[int, None] = {}
        for mask in devices_with.values():
            has_fixed = all(mask >> device & 1 for device in fixed)
            if has_fixed and all((need.mask & mask).bit_count() >= need.count for need in covered):
                masks[mask] = None
        return list(masks)

    # Step 3: devices

    def _serve(self, needs: list[Need]) -> Solution | None:
        """The cheapest devices for needs that only distinctAttribute constraints, counters and capacities limit."""
        context = self.context
        context.budget.spend()
        distinct = [rule for rule in context.constraints if not rule.is_match]
        has_admin = any(option.is_admin for option in self.options)
        types = types_of(context.node, needs, distinct, has_admin=has_admin)
        if not types:
            return 0, list(self.preallocated.picks)
        if any(kind.mask.bit_count() * kind.repeat < kind.count for kind in types):
            return None
        splitter = Splitter(
            context.node,
            types,
            self.preallocated,
            policy=context.policy,
            fractional=context.fractional,
        )
        split = splitter.split()
        if split is None:
            return None
        counts = tuple(kind.count for kind in types)
        covered = combined(split, counts, policy=context.policy, budget=context.budget)
        if covered is None:
            return None

        cost, picks = covered
        devices_of: list[list[int]] = [[] for _ in types]
        for number, device in picks:
            devices_of[number].append(device)
        solution = list(self.preallocated.picks)
        for kind, devices in zip(types, devices_of, strict=True):
            solution += assigned(kind, devices)
        return cost, solution


def _narrowed(needs: list[Need], covered: list[Need], mask: int) -> list[Need]:
    return [
        Need(need.option, need.count, need.mask & mask, offered=need.offered)
        if need in covered
        else need
        for need in needs
    ]
