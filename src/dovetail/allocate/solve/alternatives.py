"""Chooses among firstAvailable entries: for each request in order, the earliest entry with which all others still fit.

Given requests of one part. Depth-first over the requests with alternatives, in order, each entry in order: the first
complete choice is the most preferred one, because an earlier request's preference outranks a later one's.

Three things keep the search small, and none of them changes its answer:

- Relaxations prove "no" early: a subset of the requests (`_is_hopeless`), or later requests loosened to what any of
  their entries needs at least (`_later`), never needs more than the full problem.
- Failures are remembered by what was wanted, not by which request wanted it, so that identical requests are not tried
  in every order.
- A single plain request is answered by `single_request` without any search.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence

from dovetail.allocate.ask.device_requests import Option, Request
from dovetail.allocate.index.candidates import Candidates
from dovetail.allocate.outcome import Budget, Exhausted
from dovetail.allocate.solve.single_request import NotApplicable, solve_single
from dovetail.allocate.solve.solver import (
    FixedOptions,
    SearchContext,
    Solution,
    count_of,
    has_enough_candidates,
)

Signature = tuple[object, ...]
_LOOK = 20  # a quick look may spend one twentieth of the remaining budget


class AlternativeSearch:
    """The most preferred options that fit together, and their devices."""

    def __init__(self, context: SearchContext, requests: Sequence[Request]) -> None:
        # A copy of the candidates: the search adds loosened options to them.
        self.context = context._replace(candidates=dict(context.candidates))
        self.fixed = [request.options[0] for request in requests if len(request.options) == 1]
        self.lists = [request.options for request in requests if len(request.options) > 1]
        # Off until a choice has led into a dead end: on easy problems looking ahead costs more than it saves.
        self.looks_ahead = False
        self.loosened: list[Option | None] = []
        self.chosen: list[Option] = []
        self.breaks_all = False  # see Settled
        self._failed: set[tuple[int, tuple[Signature, ...]]] = set()

    def solve(self) -> Solution | None:
        """The solution, its options in `chosen`; None if there is none."""
        if len(self.fixed) == 1 and not self.lists:
            quick = solve_single(self.context, self.fixed[0])
            if not isinstance(quick, NotApplicable):
                self.chosen = self.fixed
                return quick
        if not all(has_enough_candidates(self.context, option) for option in self.fixed):
            self._find_broken_constraint()
            return None
        if len(self.fixed) + len(self.lists) > 1 and self._is_hopeless():
            return None
        return self._choose(0, [])

    def _is_hopeless(self) -> bool:
        """Whether some of the requests cannot be served even alone: a quick look, no full search.

        Looks at each constrained request, then at the requests of each claim. Exact when it says yes, because leaving
        requests out never makes a problem harder. A look that exceeds its part of the budget proves nothing.
        """
        constraints = self.context.constraints
        subsets = [
            [option]
            for option in self.fixed
            if option.count != 1 and any(constraint.covers(option) for constraint in constraints)
        ]
        claims = sorted({option.claim for option in self.fixed})
        if len(claims) > 1:
            for claim in claims:
                subsets.append([option for option in self.fixed if option.claim == claim])
        for subset in subsets:
            look = self.context.budget.part(_LOOK)
            try:
                if self._try(subset, look) is None:
                    return True
            except Exhausted:
                continue
            finally:
                self.context.budget.spend(look.steps)
        return False

    def _choose(self, position: int, chosen: list[Option]) -> Solution | None:
        """The best choice for the requests from `position` on, given the options chosen before."""
        if position == len(self.lists):
            self.chosen = [*self.fixed, *chosen]
            return self._try(self.chosen)
        # Whether the others fit depends on what was chosen, not on which request chose it.
        key = (position, self._signatures(chosen))
        if key in self._failed:
            return None
        is_last = position + 1 == len(self.lists)
        for option in self.lists[position]:
            if not has_enough_candidates(self.context, option):
                continue
            with_option = [*chosen, option]
            # Not for the last request: the full attempt follows at once.
            if not is_last:
                demand = [*self.fixed, *with_option, *self._later(position)]
                if self._try(demand) is None:
                    continue
            solution = self._choose(position + 1, with_option)
            if solution is not None:
                return solution
            self.looks_ahead = True
        self._failed.add(key)
        return None

    def _later(self, position: int) -> list[Option]:
        """What the requests after this one need at least; nothing until looking ahead has begun."""
        if not self.looks_ahead:
            return []
        if not self.loosened:
            self.loosened = [
                self._loosened(number, options) for number, options in enumerate(self.lists)
            ]
        return [option for option in self.loosened[position + 1 :] if option is not None]

    def _loosened(self, number: int, options: Sequence[Option]) -> Option | None:
        """A relaxation of all alternatives of a request: the fewest devices, out of all their candidates.

        Whatever alternative is chosen later, its devices satisfy this one too. None for requests that may want all
        devices or shares: how many they need depends on the alternative, so there is no such common minimum.
        """
        union = 0
        for option in options:
            union |= self.context.candidates[option].mask
        counts = [option.count for option in options if option.count is not None]
        if len(counts) < len(options) or union & self.context.node.shareable:
            return None
        loose = copy.copy(options[0])
        loose.claim = -1 - number  # no real claim: neither its constraints nor its limit apply
        loose.count = min(counts)
        self.context.candidates[loose] = Candidates(union)
        return loose

    def _find_broken_constraint(self) -> None:
        """There is no solution; finds out whether the first obstacle is a constraint on a request for all devices."""
        constraints = self.context.constraints
        for number, option in enumerate(self.fixed):
            is_constrained = any(constraint.covers(option) for constraint in constraints)
            if option.count is None and is_constrained:
                with contextlib.suppress(Exhausted):
                    self._try(self.fixed[: number + 1])
            if not has_enough_candidates(self.context, option):
                return

    def _try(self, options: list[Option], budget: Budget | None = None) -> Solution | None:
        context = self.context if budget is None else self.context._replace(budget=budget)
        attempt = FixedOptions(context, options)
        solution = attempt.solve()
        self.breaks_all = self.breaks_all or attempt.breaks_all
        return solution

    def _signatures(self, options: Sequence[Option]) -> tuple[Signature, ...]:
        return tuple(sorted((self._signature(option) for option in options), key=repr))

    def _signature(self, option: Option) -> Signature:
        """Everything about an option that can affect the others."""
        mask, required = self.context.candidates[option]
        covering = tuple(
            number
            for number, constraint in enumerate(self.context.constraints)
            if constraint.covers(option)
        )
        return (
            mask,
            required,
            count_of(self.context, option),
            option.capacity_key,
            option.claim,
            covering,
        )
