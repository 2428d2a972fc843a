"""Chooses among alternatives: for each request in order, the earliest entry with which everything still fits.

Given requests that belong together. What was found impossible is remembered by what was wanted, not by who wanted
it, so that identical requests are not tried in every order.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence

from dovetail.allocate.budget import Budget, Exhausted
from dovetail.allocate.candidates import Candidates
from dovetail.allocate.requests import Option, Request
from dovetail.allocate.settled import Settled, Solution, Terms, can_alone, count_of
from dovetail.allocate.single import Unfit, single

Signature = tuple[object, ...]
_LOOK = 20  # part of the budget a quick look may take


class Preferred:
    """The most wanted options that fit together, and their devices."""

    def __init__(self, terms: Terms, requests: Sequence[Request]) -> None:
        self.terms = terms._replace(candidates=dict(terms.candidates))
        self.fixed = [request.options[0] for request in requests if len(request.options) == 1]
        self.lists = [request.options for request in requests if len(request.options) > 1]
        self.looks_ahead = False  # costs more than it saves until a choice has led into a dead end
        self.loosened: list[Option | None] = []
        self.chosen: list[Option] = []
        self.breaks_all = False
        self._failed: set[tuple[int, tuple[Signature, ...]]] = set()

    def solve(self) -> Solution | None:
        """The solution, its options in `chosen`; None if there is none."""
        if len(self.fixed) == 1 and not self.lists:
            quick = single(self.terms, self.fixed[0])
            if not isinstance(quick, Unfit):
                self.chosen = self.fixed
                return quick
        if not all(can_alone(self.terms, option) for option in self.fixed):
            self._learn_of_constraints()
            return None
        if len(self.fixed) + len(self.lists) > 1 and self._is_hopeless():
            return None
        return self._choose(0, [])

    def _is_hopeless(self) -> bool:
        """Whether a request, or the requests of a claim, cannot be served even alone; a quick look, no search."""
        rules = self.terms.constraints
        lots = [[one] for one in self.fixed if one.count != 1 and any(rule.covers(one) for rule in rules)]
        claims = sorted({one.claim for one in self.fixed})
        if len(claims) > 1:
            lots += [[one for one in self.fixed if one.claim == claim] for claim in claims]
        for lot in lots:
            purse = self.terms.budget.part(_LOOK)
            try:
                if self._try(lot, purse) is None:
                    return True
            except Exhausted:
                continue
            finally:
                self.terms.budget.spend(purse.steps)
        return False

    def _choose(self, position: int, chosen: list[Option]) -> Solution | None:
        if position == len(self.lists):
            self.chosen = [*self.fixed, *chosen]
            return self._try(self.chosen)
        key = (position, self._signatures(chosen))
        if key in self._failed:
            return None
        for option in self.lists[position]:
            if not can_alone(self.terms, option):
                continue
            more = [*chosen, option]
            is_last = position + 1 == len(self.lists)
            if not is_last and self._try([*self.fixed, *more, *self._later(position)]) is None:
                continue
            solution = self._choose(position + 1, more)
            if solution is not None:
                return solution
            self.looks_ahead = True
        self._failed.add(key)
        return None

    def _later(self, position: int) -> list[Option]:
        """What requests after this one want at least."""
        if not self.looks_ahead:
            return []
        if not self.loosened:
            self.loosened = [self._loosened(number, options) for number, options in enumerate(self.lists)]
        return [one for one in self.loosened[position + 1 :] if one is not None]

    def _loosened(self, number: int, options: Sequence[Option]) -> Option | None:
        """A wish no harder than any of the alternatives, to look ahead with: as few devices, of whichever of them."""
        found = [self.terms.candidates[option] for option in options]
        union = 0
        for candidates in found:
            union |= candidates.mask
        counts = [option.count for option in options if option.count is not None]
        if len(counts) < len(options) or union & self.terms.ground.shareable:
            return None
        loose = copy.copy(options[0])
        loose.claim = -1 - number  # of no claim: neither its constraints nor its limit apply
        loose.count = min(counts)
        self.terms.candidates[loose] = Candidates(union)
        return loose

    def _learn_of_constraints(self) -> None:
        """There is no solution; tells whether a constraint on all devices of a request is the first obstacle."""
        for number, option in enumerate(self.fixed):
            if option.count is None and any(rule.covers(option) for rule in self.terms.constraints):
                with contextlib.suppress(Exhausted):
                    self._try(self.fixed[: number + 1])
            if not can_alone(self.terms, option):
                return

    def _try(self, options: list[Option], budget: Budget | None = None) -> Solution | None:
        settled = Settled(self.terms if budget is None else self.terms._replace(budget=budget), options)
        solution = settled.solve()
        self.breaks_all = self.breaks_all or settled.breaks_all
        return solution

    def _signatures(self, options: Sequence[Option]) -> tuple[Signature, ...]:
        return tuple(sorted((self._signature(option) for option in options), key=repr))

    def _signature(self, option: Option) -> Signature:
        mask, wanted = self.terms.candidates[option]
        covering = tuple(n for n, rule in enumerate(self.terms.constraints) if rule.covers(option))
        return (mask, wanted, count_of(self.terms, option), option.capacity_key, option.claim, covering)
