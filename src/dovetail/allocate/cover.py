"""Puts groups and stocks together: who gives how much, so that every type is served at the lowest cost.

Given the parts of a problem; proves "no" by adding up what the groups can give, exactly. Small problems are solved
to the optimum, large ones to the first solution in order of cost; both are complete.
"""

from __future__ import annotations

from math import prod

from dovetail.allocate.budget import Budget, Exhausted
from dovetail.allocate.flat import Flat
from dovetail.allocate.flow import Spread, spread
from dovetail.allocate.groups import Group, Shape, Split
from dovetail.allocate.layouts import Layout, Vector, layouts
from dovetail.model.policy import AllocationPolicy

Picks = list[tuple[int, int]]  # type, device
Part = dict[Vector, Layout]
_FIRST_ATTEMPT = 10  # the part of the budget for the search that knows costs; the rest is for the last resort


def cover(split: Split, wanted: Vector, *, policy: AllocationPolicy, budget: Budget) -> tuple[int, Picks] | None:
    """The devices for each type and their cost; None if there is no way."""
    if not split.groups:
        return _stocks_alone(split, wanted)
    attempt = budget.part(_FIRST_ATTEMPT)
    try:
        return _by_groups(split, wanted, policy=policy, budget=attempt)
    except Exhausted:
        pass
    finally:
        budget.spend(attempt.steps)
    return Flat(split, wanted, policy=policy, budget=budget).solve()


def _by_groups(split: Split, wanted: Vector, *, policy: AllocationPolicy, budget: Budget) -> tuple[int, Picks] | None:
    problem = _Cover(split, wanted, policy, budget)
    if not problem.may_fit(0, problem.wanted):
        return None
    size = prod(one + 1 for one in problem.wanted) * sum(map(len, problem.parts))
    return problem.cheapest() if size <= policy.exact_states else problem.first()


def _stocks_alone(split: Split, wanted: Vector) -> tuple[int, Picks] | None:
    found = spread(split.stocks, wanted)
    return None if found is None else (found[0], _stock_picks(split, found[1]))


def _stock_picks(split: Split, given: Spread) -> Picks:
    picks: Picks = []
    used = [0] * len(split.stocks)
    for kind, stock in sorted(given):
        number = given[kind, stock]
        devices = split.stocks[stock].devices[used[stock] : used[stock] + number]
        used[stock] += number
        picks.extend((kind, device) for device in devices)
    return picks


class _Cover:
    def __init__(self, split: Split, wanted: Vector, policy: AllocationPolicy, budget: Budget) -> None:
        self.split = split
        self.kinds = len(wanted)
        self.wanted = wanted + (1,) * split.shared  # values to be used once at most come after the types
        self.budget = budget
        self.groups, self.parts = self._parts(policy)
        self.weights = self._weights()
        self.tails = self._tails()
        self.rests: dict[Vector, tuple[int, Spread] | None] = {}

    def _parts(self, policy: AllocationPolicy) -> tuple[list[Group], list[Part]]:
        """What each group can give. Of one shape never more groups than devices are wanted can be of use."""
        known: dict[Shape, Part] = {}
        number: dict[Shape, int] = {}
        groups: list[Group] = []
        parts: list[Part] = []
        types = self.wanted[: self.kinds]
        most = sum(types)
        for group in self.split.groups:
            shape = group.shape
            if shape not in known:
                known[shape] = layouts(shape, types, shared=self.split.shared, policy=policy, budget=self.budget)
            number[shape] = number.get(shape, 0) + 1
            if number[shape] <= most and known[shape]:
                groups.append(group)
                parts.append(known[shape])
        return groups, parts

    def _weights(self) -> list[Vector]:
        """What to add up for bounds: each type, all types, and what the types draw at least of like counters."""
        kinds = self.kinds
        nothing = (0,) * self.split.shared
        found = [tuple(int(kind == other) for other in range(kinds)) + nothing for kind in range(kinds)]
        if kinds == 1:
            return found
        found.append((1,) * kinds + nothing)
        drawn: dict[int, list[int | None]] = {}  # total of a counter -> least amount drawn by each type
        for shape in {group.shape: None for group in self.groups}:
            totals = {
                place: worth.partitions.totals[position]
                for worth in shape.worths
                if worth.partitions is not None
                for position, place in worth.places
            }
            for choice in shape.choices:
                sums = dict.fromkeys(totals.values(), 0)
                for place, amount in choice.draws:
                    if place in totals:
                        sums[totals[place]] += amount
                for total, amount in sums.items():
                    least = drawn.setdefault(total, [None] * kinds)
                    known = least[choice.kind]
                    least[choice.kind] = amount if known is None else min(known, amount)
        return [*found, *(tuple(amount or 0 for amount in least) + nothing for least in drawn.values())]

    def _tails(self) -> list[list[int]]:
        """For each position and weight, the most that stocks and the groups from there on can give."""
        last = [
            sum(len(stock.devices) * max(weight[kind] for kind in stock.cost) for stock in self.split.stocks)
            for weight in self.weights
        ]
        tails = [last]
        most: dict[int, list[int]] = {}
        for part in reversed(self.parts):
            if id(part) not in most:
                most[id(part)] = [max(_dot(weight, vector) for vector in part) for weight in self.weights]
            tails.append([a + b for a, b in zip(tails[-1], most[id(part)], strict=True)])
        tails.reverse()
        return tails

    def may_fit(self, position: int, rest: Vector) -> bool:
        """A bound: False is certain, True is not."""
        tail = self.tails[position]
        return all(_dot(weight, rest) <= most for weight, most in zip(self.weights, tail, strict=True))

    def stocks_for(self, rest: Vector) -> tuple[int, Spread] | None:
        """What the stocks must give for the rest."""
        missing = rest[: self.kinds]
        if missing not in self.rests:
            self.rests[missing] = spread(self.split.stocks, missing)
        return self.rests[missing]

    def cheapest(self) -> tuple[int, Picks] | None:
        """Group after group, the cheapest way to every rest that can still be served."""
        layers: list[dict[Vector, tuple[int, Vector | None, Vector]]] = [{self.wanted: (0, None, self.wanted)}]
        for position, part in enumerate(self.parts):
            reached: dict[Vector, tuple[int, Vector | None, Vector]] = {}
            for rest, (cost, _, _) in layers[-1].items():
                self.budget.spend(1 + len(part) // 8)
                for vector, layout in part.items():
                    after = _minus(rest, vector)
                    if after is None or not self.may_fit(position + 1, after):
                        continue
                    known = reached.get(after)
                    if known is None or cost + layout.cost < known[0]:
                        reached[after] = (cost + layout.cost, vector, rest)
                known = reached.get(rest)
                # Leaving a group out wins a tie: what could be had from an earlier one is.
                if self.may_fit(position + 1, rest) and (known is None or cost <= known[0]):
                    reached[rest] = (cost, None, rest)
            layers.append(reached)
        best: tuple[int, Vector] | None = None
        for rest, (cost, _, _) in layers[-1].items():
            stocked = self.stocks_for(rest)
            if stocked is not None and (best is None or cost + stocked[0] < best[0]):
                best = (cost + stocked[0], rest)
        return None if best is None else (best[0], self._traced(layers, best[1]))

    def _traced(self, layers: list[dict[Vector, tuple[int, Vector | None, Vector]]], rest: Vector) -> Picks:
        stocked = self.stocks_for(rest)
        picks = _stock_picks(self.split, stocked[1]) if stocked else []
        for position in range(len(self.parts) - 1, -1, -1):
            _, vector, before = layers[position + 1][rest]
            if vector is not None:
                picks += self._group_picks(position, vector)
            rest = before
        return picks

    def first(self) -> tuple[int, Picks] | None:
        """The first complete way, each group's cheapest contributions per device first; failures remembered."""
        orders = [self._in_order(part) for part in self.parts]
        failed: set[tuple[int, Vector]] = set()
        trail: list[tuple[Vector, int]] = [(self.wanted, 0)]  # rest at a position, next way to try there
        taken: list[Vector | None] = []
        while trail:
            rest, way = trail[-1]
            position = len(trail) - 1
            step = self._next(position, rest, way, orders, failed)
            if step is None:
                failed.add((position, rest))
                trail.pop()
                if taken:
                    taken.pop()
                continue
            vector, after, way = step
            if vector is None and position == len(self.parts):
                return self._finished(taken, rest)
            trail[-1] = (rest, way)
            trail.append((after, 0))
            taken.append(vector)
        return None

    def _in_order(self, part: Part) -> list[Vector]:
        return sorted(part, key=lambda vector: (part[vector].cost // sum(vector[: self.kinds]), vector))

    def _next(
        self, position: int, rest: Vector, way: int, orders: list[list[Vector]], failed: set[tuple[int, Vector]]
    ) -> tuple[Vector | None, Vector, int] | None:
        """The next way to go on from here; leaving the group out comes last."""
        if position == len(self.parts):
            return (None, rest, 1) if way == 0 and self.stocks_for(rest) is not None else None
        order = orders[position]
        while way <= len(order):
            self.budget.spend()
            vector = order[way] if way < len(order) else None
            after = rest if vector is None else _minus(rest, vector)
            way += 1
            if after is not None and (position + 1, after) not in failed and self.may_fit(position + 1, after):
                return vector, after, way
        return None

    def _finished(self, taken: list[Vector | None], rest: Vector) -> tuple[int, Picks]:
        stocked = self.stocks_for(rest)
        cost, picks = (stocked[0], _stock_picks(self.split, stocked[1])) if stocked else (0, [])
        for position, vector in enumerate(taken):
            if vector is not None:
                cost += self.parts[position][vector].cost
                picks += self._group_picks(position, vector)
        return cost, picks

    def _group_picks(self, position: int, vector: Vector) -> Picks:
        group = self.groups[position]
        used: dict[tuple[int, ...], int] = {}
        picks: Picks = []
        for number in self.parts[position][vector].picks:
            devices = group.devices[number]
            if len(devices) == 1:
                picks.append((group.shape.choices[number].kind, devices[0]))
                continue
            picks.append((group.shape.choices[number].kind, devices[used.get(devices, 0)]))
            used[devices] = used.get(devices, 0) + 1
        return picks


def _dot(weight: Vector, vector: Vector) -> int:
    return sum([a * b for a, b in zip(weight, vector, strict=True)])


def _minus(rest: Vector, vector: Vector) -> Vector | None:
    after = tuple([have - take for have, take in zip(rest, vector, strict=True)])
    return after if min(after) >= 0 else None
