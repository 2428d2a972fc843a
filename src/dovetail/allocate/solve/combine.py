"""Combines groups and stocks: how much each gives, so that every type is served at low cost.

Given the parts of a problem that share no resource. Three methods, each complete, from the best to the most robust:

1. `_Cover.cheapest`: dynamic programming over the groups, for problems with few states. The cheapest combination.
2. `_Cover.first`: depth-first over the groups, cheap contributions first, for larger ones. The first combination.
3. `fallback_search`: over single devices, if what the groups can give is too much to enumerate. Any solution.

All of them prove "no": by a bound that adds up what the groups can give, or by exhausting the combinations.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from dovetail.allocate.outcome import Budget, Exhausted
from dovetail.allocate.solve.device_groups import Group, Shape, Split
from dovetail.allocate.solve.fallback_search import FallbackSearch
from dovetail.allocate.solve.flow import Spread, spread
from dovetail.allocate.solve.group_layouts import Layout, Vector, layouts
from dovetail.model.policy import AllocationPolicy

Picks = list[tuple[int, int]]  # type, device
Part = dict[Vector, Layout]  # everything one group can give

# Methods 1 and 2 may spend one tenth of the remaining budget. They know costs, but enumerate more than the last
# resort, which must have enough left to find an answer at all.
_FIRST_ATTEMPT = 10


class _Step(NamedTuple):
    """The cheapest way found to what is missing: its cost, what the last group gave, and what was missing before."""

    cost: int
    vector: Vector | None  # None: the group is left out
    before: Vector


def combined(
    split: Split, counts: Vector, *, policy: AllocationPolicy, budget: Budget
) -> tuple[int, Picks] | None:
    """The devices for each type and their cost; None if there is no way."""
    if not split.groups:
        return _stocks_alone(split, counts)
    attempt = budget.part(_FIRST_ATTEMPT)
    try:
        return _by_groups(split, counts, policy=policy, budget=attempt)
    except Exhausted:
        pass
    finally:
        budget.spend(attempt.steps)
    return FallbackSearch(split, counts, policy=policy, budget=budget).solve()


def _by_groups(
    split: Split, counts: Vector, *, policy: AllocationPolicy, budget: Budget
) -> tuple[int, Picks] | None:
    problem = _Cover(split, counts, policy, budget)
    if not problem.may_fit(0, problem.demand):
        return None
    # An upper bound on the transitions of the dynamic program: every state, with every layout of every group.
    states = prod(count + 1 for count in problem.demand)
    transitions = states * sum(map(len, problem.parts))
    return problem.cheapest() if transitions <= policy.exact_states else problem.first()


def _stocks_alone(split: Split, counts: Vector) -> tuple[int, Picks] | None:
    assignment = spread(split.stocks, counts)
    return None if assignment is None else (assignment[0], _stock_picks(split, assignment[1]))


def _stock_picks(split: Split, assignment: Spread) -> Picks:
    picks: Picks = []
    used = [0] * len(split.stocks)
    for kind, stock in sorted(assignment):
        number = assignment[kind, stock]
        devices = split.stocks[stock].devices[used[stock] : used[stock] + number]
        used[stock] += number
        picks.extend((kind, device) for device in devices)
    return picks


class _Cover:
    """One problem. A vector counts devices by type, then uses of each shared value."""

    def __init__(
        self, split: Split, counts: Vector, policy: AllocationPolicy, budget: Budget
    ) -> None:
        self.split = split
        self.kinds = len(counts)
        # A value that several groups could use, but only one may, is one more thing of which there is 1 to give.
        self.demand = counts + (1,) * split.shared
        self.budget = budget
        self.groups, self.parts = self._parts(policy)
        self.weights = self._weights()
        self.tails = self._tails()
        self.stock_answers: dict[Vector, tuple[int, Spread] | None] = {}

    def _parts(self, policy: AllocationPolicy) -> tuple[list[Group], list[Part]]:
        """The groups that can be of use, and what each can give.

        Every group that is used gives at least one device, so of interchangeable groups (those of one shape) no more
        are ever needed than devices are wanted. The others are left out without losing a solution.
        """
        part_of: dict[Shape, Part] = {}
        seen_of: dict[Shape, int] = {}
        groups: list[Group] = []
        parts: list[Part] = []
        counts = self.demand[: self.kinds]
        most = sum(counts)
        for group in self.split.groups:
            shape = group.shape
            if shape not in part_of:
                part_of[shape] = layouts(
                    shape, counts, shared=self.split.shared, policy=policy, budget=self.budget
                )
            seen_of[shape] = seen_of.get(shape, 0) + 1
            if seen_of[shape] <= most and part_of[shape]:
                groups.append(group)
                parts.append(part_of[shape])
        return groups, parts

    # The bound

    def _weights(self) -> list[Vector]:
        """Weights to compare demand and supply with: each type, all types, and what types draw at least of counters.

        Any weights that are not negative give a valid bound: if the weighted demand exceeds the sum of the largest
        weighted contributions, there is no solution. These catch, in this order, too few devices of a type, too few
        devices, and too little of a counter such as memory slices across all GPUs.
        """
        kinds = self.kinds
        no_shared = (0,) * self.split.shared
        weights = [
            tuple(int(kind == counted) for counted in range(kinds)) + no_shared
            for kind in range(kinds)
        ]
        if kinds == 1:
            return weights
        weights.append((1,) * kinds + no_shared)
        for least in self._least_draws().values():
            weights.append(tuple(amount or 0 for amount in least) + no_shared)
        return weights

    def _least_draws(self) -> dict[int, list[int | None]]:
        """The least that each type draws from like counters, over all groups. Counters of one total are alike."""
        least_by_total: dict[int, list[int | None]] = {}
        for shape in {group.shape: None for group in self.groups}:
            total_at = _counter_totals(shape)
            for choice in shape.choices:
                sums = dict.fromkeys(total_at.values(), 0)
                for place, amount in choice.draws:
                    if place in total_at:
                        sums[total_at[place]] += amount
                for total, amount in sums.items():
                    least = least_by_total.setdefault(total, [None] * self.kinds)
                    so_far = least[choice.kind]
                    least[choice.kind] = amount if so_far is None else min(so_far, amount)
        return least_by_total

    def _tails(self) -> list[list[int]]:
        """By position and weight, the most that the stocks and the groups from there on can give."""
        of_stocks = [
            sum(
                len(stock.devices) * max(weight[kind] for kind in stock.cost)
                for stock in self.split.stocks
            )
            for weight in self.weights
        ]
        tails = [of_stocks]
        most_of: dict[int, list[int]] = {}  # by identity of the part: groups of one shape share it
        for part in reversed(self.parts):
            if id(part) not in most_of:
                most_of[id(part)] = [
                    max(_dot(weight, vector) for vector in part) for weight in self.weights
                ]
            tails.append([a + b for a, b in zip(tails[-1], most_of[id(part)], strict=True)])
        tails.reverse()
        return tails

    def may_fit(self, position: int, missing: Vector) -> bool:
        """Whether stocks and the groups from a position on might give what is missing. False is certain."""
        tail = self.tails[position]
        return all(
            _dot(weight, missing) <= most for weight, most in zip(self.weights, tail, strict=True)
        )

    def stocks_for(self, missing: Vector) -> tuple[int, Spread] | None:
        """How the stocks give what is missing; None if they cannot."""
        counts = missing[: self.kinds]
        if counts not in self.stock_answers:
            self.stock_answers[counts] = spread(self.split.stocks, counts)
        return self.stock_answers[counts]

    # Method 1

    def cheapest(self) -> tuple[int, Picks] | None:
        """Group after group, the cheapest way to every vector that might still be missing.

        Exact: what later groups can do depends only on what is missing, so only the cheapest way to it matters.
        """
        layers: list[dict[Vector, _Step]] = [{self.demand: _Step(0, None, self.demand)}]
        for position, part in enumerate(self.parts):
            layers.append(self._next_layer(position, part, layers[-1]))
        best: tuple[int, Vector] | None = None
        for missing, step in layers[-1].items():
            from_stocks = self.stocks_for(missing)
            if from_stocks is None:
                continue
            cost = step.cost + from_stocks[0]
            if best is None or cost < best[0]:
                best = (cost, missing)
        return None if best is None else (best[0], self._traced(layers, best[1]))

    def _next_layer(
        self, position: int, part: Part, layer: dict[Vector, _Step]
    ) -> dict[Vector, _Step]:
        reached: dict[Vector, _Step] = {}
        for missing, step in layer.items():
            cost = step.cost
            self.budget.spend(1 + len(part) // 8)
            for vector, layout in part.items():
                after = _minus(missing, vector)
                if after is None or not self.may_fit(position + 1, after):
                    continue
                so_far = reached.get(after)
                if so_far is None or cost + layout.cost < so_far.cost:
                    reached[after] = _Step(cost + layout.cost, vector, missing)
            # Leaving the group out wins a tie: at the same cost an earlier group has given these devices.
            if self.may_fit(position + 1, missing):
                so_far = reached.get(missing)
                if so_far is None or cost <= so_far.cost:
                    reached[missing] = _Step(cost, None, missing)
        return reached

    def _traced(self, layers: list[dict[Vector, _Step]], missing: Vector) -> Picks:
        """The devices along the way, from the last group back to the first."""
        from_stocks = self.stocks_for(missing)
        picks = _stock_picks(self.split, from_stocks[1]) if from_stocks else []
        for position in range(len(self.parts) - 1, -1, -1):
            step = layers[position + 1][missing]
            if step.vector is not None:
                picks += self._group_picks(position, step.vector)
            missing = step.before
        return picks

    # Method 2

    def first(self) -> tuple[int, Picks] | None:
        """The first combination, each group's contributions at the lowest cost per device first.

        Depth-first with an explicit trail: there can be more groups than Python allows nested calls. Whether
        the groups from a position on can give what is missing does not depend on the way there, so failures are
        remembered by these two.
        """
        orders = [self._in_order(part) for part in self.parts]
        failed: set[tuple[int, Vector]] = set()
        trail: list[tuple[Vector, int]] = [
            (self.demand, 0)
        ]  # by position: missing, next way to try
        contributions: list[Vector | None] = []
        while trail:
            missing, way = trail[-1]
            position = len(trail) - 1
            step = self._next(position, missing, way, orders, failed)
            if step is None:
                failed.add((position, missing))
                trail.pop()
                if contributions:
                    contributions.pop()
                continue
            vector, after, way = step
            if vector is None and position == len(self.parts):
                return self._finished(contributions, missing)
            trail[-1] = (missing, way)
            trail.append((after, 0))
            contributions.append(vector)
        return None

    def _in_order(self, part: Part) -> list[Vector]:
        return sorted(
            part, key=lambda vector: (part[vector].cost // sum(vector[: self.kinds]), vector)
        )

    def _next(
        self,
        position: int,
        missing: Vector,
        way: int,
        orders: list[list[Vector]],
        failed: set[tuple[int, Vector]],
    ) -> tuple[Vector | None, Vector, int] | None:
        """The next way to continue from here; leaving the group out comes last."""
        if position == len(self.parts):
            return (None, missing, 1) if way == 0 and self.stocks_for(missing) is not None else None
        order = orders[position]
        while way <= len(order):
            self.budget.spend()
            vector = order[way] if way < len(order) else None
            after = missing if vector is None else _minus(missing, vector)
            way += 1
            if after is None or (position + 1, after) in failed:
                continue
            if self.may_fit(position + 1, after):
                return vector, after, way
        return None

    def _finished(self, contributions: list[Vector | None], missing: Vector) -> tuple[int, Picks]:
        from_stocks = self.stocks_for(missing)
        cost, picks = 0, []
        if from_stocks:
            cost, picks = from_stocks[0], _stock_picks(self.split, from_stocks[1])
        for position, vector in enumerate(contributions):
            if vector is not None:
                cost += self.parts[position][vector].cost
                picks += self._group_picks(position, vector)
        return cost, picks

    def _group_picks(self, position: int, vector: Vector) -> Picks:
        group = self.groups[position]
        used: dict[tuple[int, ...], int] = {}
        picks: Picks = []
        for number in self.parts[position][vector].picks:
            kind = group.shape.choices[number].kind
            devices = group.devices[number]
            if len(devices) == 1:
                picks.append((kind, devices[0]))
                continue
            picks.append((kind, devices[used.get(devices, 0)]))
            used[devices] = used.get(devices, 0) + 1
        return picks


def _counter_totals(shape: Shape) -> dict[int, int]:
    """The total of each counter of a shape's counter sets, by resource."""
    totals = {}
    for worth in shape.worths:
        if worth.partitions is not None:
            for position, place in worth.places:
                totals[place] = worth.partitions.totals[position]
    return totals


def _dot(weight: Vector, vector: Vector) -> int:
    return sum([a * b for a, b in zip(weight, vector, strict=True)])


def _minus(missing: Vector, vector: Vector) -> Vector | None:
    after = tuple([have - take for have, take in zip(missing, vector, strict=True)])
    return after if min(after) >= 0 else None
