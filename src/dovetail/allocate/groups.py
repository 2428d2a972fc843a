"""Splits the devices in question into groups that share nothing, each a small problem of its own.

Whatever limits a choice is a resource: a device itself, a counter, a capacity, a value that must stay distinct.
Devices that draw on a common resource are of one group; devices free of all that become stocks. Groups of the same
shape are recognised, whatever their devices are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.allocate import counters
from dovetail.allocate.demand import Taken, Type
from dovetail.allocate.facts import bits
from dovetail.allocate.flow import Stock
from dovetail.allocate.ground import Ground
from dovetail.allocate.uses import Draws, Resource, Use, Uses
from dovetail.model.policy import AllocationPolicy

Member = tuple[tuple[Use, ...], list[int]]  # what can be done with a device, and all devices like it


class Choice(NamedTuple):
    """A use inside a group, resources by position there."""

    kind: int
    draws: tuple[tuple[int, int], ...]
    first: tuple[tuple[int, int], ...]
    opening: int


class Worth(NamedTuple):
    """How to value what is left: partitions of a counter set, or the free part of a shareable device."""

    partitions: counters.Partitions | None
    base: tuple[int, ...]  # counters left, or capacities in total
    places: tuple[tuple[int, int], ...]  # position in base -> resource


class Shape(NamedTuple):
    """All that matters of a group. Equal shapes have equal solutions."""

    limits: tuple[int, ...]
    choices: tuple[Choice, ...]
    costs: tuple[int, ...]
    worths: tuple[Worth, ...]
    shared: tuple[tuple[int, int], ...]  # resource -> number of a value that other groups may use instead


class Group(NamedTuple):
    """A shape and the devices behind each choice, several where they are interchangeable."""

    shape: Shape
    devices: tuple[tuple[int, ...], ...]


class Split(NamedTuple):
    """The problem in parts."""

    groups: list[Group]
    stocks: list[Stock]
    shared: int = 0  # values that several groups could use, but only one may


class Splitter:
    """Builds groups and stocks for one set of types."""

    def __init__(
        self, ground: Ground, types: list[Type], taken: Taken, *, policy: AllocationPolicy, fractional: bool
    ) -> None:
        self.ground = ground
        self.types = types
        self.taken = taken
        self.policy = policy
        self.uses = Uses(ground, types, taken, policy=policy, fractional=fractional)
        self.shared: dict[Resource, int] = {}

    def split(self) -> Split | None:
        """Groups and stocks, in the order of their first devices; None if adding up shows there is too little."""
        merged: dict[tuple[object, ...], Member] = {}
        stocks: dict[tuple[tuple[int, int], ...], list[int]] = {}
        union = 0
        for kind in self.types:
            union |= kind.mask
        every = {device: uses for device in bits(union) if (uses := self.uses.of(device))}
        if self.uses.is_short(every.values()):
            return None
        for device, uses in every.items():
            shareable = self.ground.shareable >> device & 1
            if not shareable and not self.uses.has_admin and not any(use.draws for use in uses):
                stocks.setdefault(tuple((use.kind, use.cost) for use in uses), []).append(device)
            elif shareable or self.uses.has_admin:
                merged[device, uses] = (uses, [device])
            else:
                merged.setdefault(uses, (uses, []))[1].append(device)
        groups = self._groups(list(merged.values()))
        stocked = [Stock(tuple(devices), dict(costs)) for costs, devices in stocks.items()]
        return Split(groups, stocked, len(self.shared))

    def _groups(self, members: list[Member]) -> list[Group]:
        """Members that meet in a resource are of one group. Values that must stay distinct do not tie groups
        together: where several groups could use one, it is counted across them."""
        roots = _Roots(len(members))
        owner: dict[Resource, int] = {}
        for number, (uses, _) in enumerate(members):
            for resource in _resources(uses):
                if resource[0] != "element":
                    roots.join(owner.setdefault(resource, number), number)
        users: dict[Resource, set[int]] = {}
        for number, (uses, _) in enumerate(members):
            for resource in _resources(uses):
                if resource[0] == "element":
                    users.setdefault(resource, set()).add(roots.root(number))
        self.shared = {one: place for place, one in enumerate(r for r, found in users.items() if len(found) > 1)}
        together: dict[int, list[Member]] = {}
        for number, member in enumerate(members):
            together.setdefault(roots.root(number), []).append(member)
        return [self._group(found) for found in together.values()]

    def _group(self, members: list[Member]) -> Group:
        limits: list[int] = []
        places: dict[Resource, int] = {}

        def placed(draws: Draws) -> tuple[tuple[int, int], ...]:
            found = []
            for resource, amount in draws:
                if resource not in places:
                    places[resource] = len(limits)
                    limits.append(self.uses.limits[resource])
                found.append((places[resource], amount))
            return tuple(found)

        listed: list[tuple[int, int, Choice, int, tuple[int, ...]]] = []
        for uses, devices in members:
            is_counted = not self.ground.shareable >> devices[0] & 1 and not self.uses.has_admin
            if is_counted:
                limits.append(len(devices))
            own: tuple[tuple[int, int], ...] = ((len(limits) - 1, 1),) if is_counted else ()
            for use in uses:
                opening = -1 if use.opening is None else placed(((use.opening, 1),))[0][0]
                choice = Choice(use.kind, (*own, *placed(use.draws)), placed(use.first), opening)
                listed.append((use.kind, devices[0], choice, use.cost, tuple(devices)))
        listed.sort(key=lambda one: one[:2])
        worths = self._worths(places)
        shared = tuple((place, self.shared[resource]) for resource, place in places.items() if resource in self.shared)
        shape = Shape(tuple(limits), tuple(one[2] for one in listed), tuple(one[3] for one in listed), worths, shared)
        return Group(shape, tuple(one[4] for one in listed))

    def _worths(self, places: dict[Resource, int]) -> tuple[Worth, ...]:
        sets: dict[tuple[int, str], list[tuple[str, int]]] = {}
        shares: dict[int, list[tuple[str, int]]] = {}
        for resource, place in places.items():
            if resource[0] == "counter":
                sets.setdefault((resource[1], resource[2]), []).append((resource[3], place))  # type: ignore[arg-type]
            elif resource[0] == "capacity":
                shares.setdefault(resource[1], []).append((resource[2], place))  # type: ignore[arg-type]
        return tuple(
            [self._set_worth(pool, name, found) for (pool, name), found in sets.items()]
            + [self._share_worth(device, found) for device, found in shares.items()]
        )

    def _set_worth(self, pool: int, name: str, found: list[tuple[str, int]]) -> Worth:
        devices = self.ground.pools[pool].devices
        counter_set = next(one for one in devices.counter_sets if one.name == name)
        partitions = counters.partitions_of(devices, counter_set, self.policy)
        left = tuple(self.taken.left(self.ground, (pool, name, counter)) for counter in partitions.counters)
        where = {counter: place for place, counter in enumerate(partitions.counters)}
        return Worth(partitions, left, tuple((where[counter], place) for counter, place in found))

    def _share_worth(self, device: int, found: list[tuple[str, int]]) -> Worth:
        capacities = self.ground.template(device).capacity
        totals = tuple(capacities[name].value.nanos for name, _ in found)
        return Worth(None, totals, tuple((number, place) for number, (_, place) in enumerate(found)))


def _resources(uses: Iterable[Use]) -> Iterable[Resource]:
    for use in uses:
        for resource, _ in (*use.draws, *use.first):
            yield resource


class _Roots:
    """Who is of one group with whom."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def root(self, member: int) -> int:
        while self.parent[member] != member:
            self.parent[member] = member = self.parent[self.parent[member]]
        return member

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low
