"""Solves a part of the claims once it is settled which option each request uses.

Given options and their candidates; tries the values devices may have in common, then splits what is left into
groups. Exact: None means that no devices do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from dovetail.allocate.budget import Budget
from dovetail.allocate.candidates import Candidates
from dovetail.allocate.constraints import Constraint
from dovetail.allocate.cover import cover
from dovetail.allocate.demand import Need, Taken, assigned, types_of
from dovetail.allocate.facts import bits
from dovetail.allocate.ground import Ground
from dovetail.allocate.groups import Splitter
from dovetail.allocate.requests import Option
from dovetail.model.claims import MAX_RESULTS
from dovetail.model.policy import AllocationPolicy

Solution = tuple[int, list[tuple[Option, int]]]  # cost, devices


class Terms(NamedTuple):
    """What every search of one attempt goes by."""

    ground: Ground
    constraints: Sequence[Constraint]
    candidates: dict[Option, Candidates]
    policy: AllocationPolicy
    budget: Budget
    fractional: bool


def count_of(terms: Terms, option: Option) -> int:
    """How many devices the option takes."""
    return terms.candidates[option].wanted.bit_count() if option.count is None else option.count


def can_alone(terms: Terms, option: Option) -> bool:
    """Whether there are candidates enough for the option by itself."""
    mask, wanted = terms.candidates[option]
    if option.count is None:
        return wanted != 0 and wanted & ~mask == 0
    return mask.bit_count() >= option.count


class Settled:
    """One attempt with given options."""

    def __init__(self, terms: Terms, options: Sequence[Option]) -> None:
        self.terms = terms
        self.options = options
        self.taken = Taken()
        self.breaks_all = False  # a request for all devices meets a constraint they cannot satisfy

    def solve(self) -> Solution | None:
        """The devices at the lowest cost found, None if there are none."""
        self.terms.budget.spend()
        if not self._is_within_limit() or not self._take_all():
            return None
        needs = [
            Need(option, option.count, mask, offered=mask)
            for option in self.options
            if option.count is not None
            for mask in (self.terms.candidates[option].mask,)
        ]
        rules = [one for one in self.terms.constraints if one.is_match and any(map(one.covers, self.options))]
        return self._match(needs, rules)

    def _is_within_limit(self) -> bool:
        total: dict[int, int] = {}
        for option in self.options:
            total[option.claim] = total.get(option.claim, 0) + count_of(self.terms, option)
        return all(number <= MAX_RESULTS for number in total.values())

    def _take_all(self) -> bool:
        """Takes the devices of requests for all of them, in order; tells if a constraint is what stops it."""
        terms = self.terms
        for option in self.options:
            if option.count is not None:
                continue
            rules = [one for one in terms.constraints if one.covers(option)]
            distinct = [one for one in rules if not one.is_match]
            mask, wanted = terms.candidates[option]
            for device in bits(wanted):
                if not mask >> device & 1:
                    return False
                before = len(self.taken.picks)
                if not self.taken.take(terms.ground, option, device, distinct=distinct, fractional=terms.fractional):
                    self.breaks_all = self.breaks_all or len(self.taken.picks) > before
                    return False
                if not all(self._is_common(rule) for rule in rules if rule.is_match):
                    self.breaks_all = True
                    return False
        return True

    def _is_common(self, rule: Constraint) -> bool:
        """Whether the devices taken so far have a value in common."""
        values = self.terms.ground.values(rule.attribute)
        mine = [values[device] for option, device in self.taken.picks if rule.covers(option)]
        found = [value for value in mine if value is not None]
        return len(found) == len(mine) and (len(found) <= 1 or bool(frozenset.intersection(*found)))

    def _distinct(self) -> list[Constraint]:
        return [one for one in self.terms.constraints if not one.is_match]

    def _match(self, needs: list[Need], rules: Sequence[Constraint]) -> Solution | None:
        """Settles the common value of one constraint after the other; goes deeper only where there is a choice."""
        for place, rule in enumerate(rules):
            covered = [need for need in needs if need.count and rule.covers(need.option)]
            fixed = [device for option, device in self.taken.picks if rule.covers(option)]
            values = self.terms.ground.values(rule.attribute)
            number = len(fixed) + sum(need.count for need in covered)
            if any(values[device] is None for device in fixed):
                self.breaks_all = True
                return None
            if number <= 1:
                present = sum(1 << device for device, value in enumerate(values) if value is not None)
                common = [present]
            else:
                common = self._common(covered, fixed, values)
            if not common and fixed:
                self.breaks_all = True
            if len(common) != 1:
                return self._cheapest([_narrowed(needs, covered, mask) for mask in common], rules[place + 1 :])
            needs = _narrowed(needs, covered, common[0])
        return self._found(needs)

    def _cheapest(self, choices: Sequence[list[Need]], rules: Sequence[Constraint]) -> Solution | None:
        best: Solution | None = None
        for needs in choices:
            solution = self._match(needs, rules)
            if solution is not None and (best is None or solution[0] < best[0]):
                best = solution
            if best is not None and best[0] == 0:
                break
        return best

    def _common(self, covered: list[Need], fixed: list[int], values: Sequence[frozenset[Hashable] | None]) -> list[int]:
        """For each value that could be common to all, the devices that have it; alike ones once."""
        union = 0
        for need in covered:
            union |= need.mask
        devices: dict[Hashable, int] = {}
        for device in (*fixed, *bits(union)):
            for element in sorted(values[device] or (), key=repr):  # sets have no order of their own
                devices[element] = devices.get(element, 0) | 1 << device
        found: dict[int, None] = {}
        for mask in devices.values():
            if all(mask >> device & 1 for device in fixed) and all(
                (need.mask & mask).bit_count() >= need.count for need in covered
            ):
                found[mask] = None
        return list(found)

    def _found(self, needs: list[Need]) -> Solution | None:
        terms = self.terms
        terms.budget.spend()
        has_admin = any(option.is_admin for option in self.options)
        types = types_of(terms.ground, needs, self._distinct(), has_admin=has_admin)
        if not types:
            return 0, list(self.taken.picks)
        if any(kind.mask.bit_count() * kind.repeat < kind.count for kind in types):
            return None
        splitter = Splitter(terms.ground, types, self.taken, policy=terms.policy, fractional=terms.fractional)
        wanted = tuple(kind.count for kind in types)
        split = splitter.split()
        covered = None if split is None else cover(split, wanted, policy=terms.policy, budget=terms.budget)
        if covered is None:
            return None
        cost, picks = covered
        given: list[list[int]] = [[] for _ in types]
        for kind, device in picks:
            given[kind].append(device)
        dealt = [pick for kind, devices in zip(types, given, strict=True) for pick in assigned(kind, devices)]
        return cost, [*self.taken.picks, *dealt]


def _narrowed(needs: list[Need], covered: list[Need], mask: int) -> list[Need]:
    return [
        Need(need.option, need.count, need.mask & mask, offered=need.offered) if need in covered else need
        for need in needs
    ]
