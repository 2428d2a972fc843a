"""Splits the devices in question into groups that share nothing, each a small problem by itself.

Whatever limits a choice is a resource: the device itself, a counter, a capacity, a value that must stay distinct.
Devices that draw on a common resource belong to one group; devices without such resources become stocks. Groups of the
same shape are recognised whatever their devices are called, so eight identical GPUs are enumerated once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.allocate.ask.demand import NeedType, Preallocated
from dovetail.allocate.index import counter_sets
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import bits
from dovetail.allocate.solve.device_uses import Draws, Resource, Use, Uses
from dovetail.allocate.solve.flow import Stock
from dovetail.model.policy import AllocationPolicy

PlacedDraws = tuple[tuple[int, int], ...]  # resource by position in a group, amount


class _Member(NamedTuple):
    """Interchangeable devices of a group: what can be done with each of them."""

    uses: tuple[Use, ...]
    devices: list[int]


class Choice(NamedTuple):
    """A use inside a group, resources by position there."""

    kind: int
    draws: PlacedDraws
    first: PlacedDraws
    opening: int


class LeftoverValue(NamedTuple):
    """How to value what remains: of a counter set by its partitions, of a shareable device by its free part."""

    partitions: counter_sets.Partitions | None
    base: tuple[int, ...]  # remaining counters, or capacities in total
    places: tuple[tuple[int, int], ...]  # position in base -> resource


class Shape(NamedTuple):
    """Everything that matters about a group. Equal shapes have equal solutions."""

    limits: tuple[int, ...]
    choices: tuple[Choice, ...]
    costs: tuple[int, ...]
    worths: tuple[LeftoverValue, ...]
    shared: tuple[tuple[int, int], ...]  # resource -> number of a value that other groups could use


class Group(NamedTuple):
    """A shape and the devices of each choice, several if they are interchangeable."""

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
        self,
        node: NodeDevices,
        types: list[NeedType],
        preallocated: Preallocated,
        *,
        policy: AllocationPolicy,
        fractional: bool,
    ) -> None:
        self.node = node
        self.types = types
        self.preallocated = preallocated
        self.policy = policy
        self.uses = Uses(node, types, preallocated, policy=policy, fractional=fractional)
        self.shared: dict[Resource, int] = {}

    def split(self) -> Split | None:
        """Groups and stocks, in the order of their first devices; None if adding up proves a shortage."""
        union = 0
        for kind in self.types:
            union |= kind.mask
        uses_of = {device: uses for device in bits(union) if (uses := self.uses.of(device))}
        if self.uses.is_short(uses_of.values()):
            return None

        stocks: dict[tuple[tuple[int, int], ...], list[int]] = {}
        members: dict[object, _Member] = {}
        for device, uses in uses_of.items():
            # Exclusive devices with the same uses are interchangeable. Shares, and devices with administrative
            # access next to others, have limits per device, so each of these is a member by itself.
            is_counted = self._is_counted(device)
            if not is_counted:
                members[device, uses] = _Member(uses, [device])
            elif any(use.draws for use in uses):
                members.setdefault(uses, _Member(uses, [])).devices.append(device)
            else:
                costs = tuple((use.kind, use.cost) for use in uses)
                stocks.setdefault(costs, []).append(device)
        groups = self._groups(list(members.values()))
        stocked = [Stock(tuple(devices), dict(costs)) for costs, devices in stocks.items()]
        return Split(groups, stocked, len(self.shared))

    def _is_counted(self, device: int) -> bool:
        """Whether a device can be used once and by one type: then it is only a number among its like."""
        return not self.node.shareable >> device & 1 and not self.uses.has_admin

    def _groups(self, members: list[_Member]) -> list[Group]:
        """Members that meet in a resource form one group.

        Values that must stay distinct do not join groups: one value would tie all GPUs of a node together and leave
        nothing to divide. A value that several groups could use is counted across them instead (`shared`).
        """
        roots = _Roots(len(members))
        owner: dict[Resource, int] = {}
        for number, member in enumerate(members):
            for resource in _resources(member.uses):
                if resource[0] != "element":
                    roots.join(owner.setdefault(resource, number), number)

        groups_with: dict[Resource, set[int]] = {}
        for number, member in enumerate(members):
            for resource in _resources(member.uses):
                if resource[0] == "element":
                    groups_with.setdefault(resource, set()).add(roots.root(number))
        shared = [resource for resource, groups in groups_with.items() if len(groups) > 1]
        self.shared = {resource: number for number, resource in enumerate(shared)}

        by_root: dict[int, list[_Member]] = {}
        for number, member in enumerate(members):
            by_root.setdefault(roots.root(number), []).append(member)
        return [self._group(group_members) for group_members in by_root.values()]

    def _group(self, members: list[_Member]) -> Group:
        """Numbers the resources of a group by first appearance, so that like groups get equal shapes."""
        limits: list[int] = []
        places: dict[Resource, int] = {}

        def placed(draws: Draws) -> PlacedDraws:
            numbered = []
            for resource, amount in draws:
                if resource not in places:
                    places[resource] = len(limits)
                    limits.append(self.uses.limits[resource])
                numbered.append((places[resource], amount))
            return tuple(numbered)

        listed: list[tuple[int, int, Choice, int, tuple[int, ...]]] = []
        for uses, devices in members:
            own: PlacedDraws = ()
            if self._is_counted(devices[0]):
                own = ((len(limits), 1),)
                limits.append(len(devices))
            for use in uses:
                opening = -1 if use.opening is None else placed(((use.opening, 1),))[0][0]
                choice = Choice(use.kind, (*own, *placed(use.draws)), placed(use.first), opening)
                listed.append((use.kind, devices[0], choice, use.cost, tuple(devices)))
        listed.sort(key=lambda entry: entry[:2])  # by type, then by first device

        worths = self._worths(places)
        shared = tuple(
            (place, self.shared[resource])
            for resource, place in places.items()
            if resource in self.shared
        )
        choices = tuple(choice for _, _, choice, _, _ in listed)
        costs = tuple(cost for _, _, _, cost, _ in listed)
        shape = Shape(tuple(limits), choices, costs, worths, shared)
        return Group(shape, tuple(devices for _, _, _, _, devices in listed))

    def _worths(self, places: dict[Resource, int]) -> tuple[LeftoverValue, ...]:
        sets: dict[tuple[int, str], list[tuple[str, int]]] = {}
        shares: dict[int, list[tuple[str, int]]] = {}
        for resource, place in places.items():
            if resource[0] == "counter":
                sets.setdefault((resource[1], resource[2]), []).append((resource[3], place))  # type: ignore[arg-type]
            elif resource[0] == "capacity":
                shares.setdefault(resource[1], []).append((resource[2], place))  # type: ignore[arg-type]
        of_sets = [self._set_worth(pool, name, counters) for (pool, name), counters in sets.items()]
        of_shares = [self._share_worth(device, names) for device, names in shares.items()]
        return (*of_sets, *of_shares)

    def _set_worth(self, pool: int, name: str, counters: list[tuple[str, int]]) -> LeftoverValue:
        devices = self.node.pools[pool].devices
        counter_set = next(
            counter_set for counter_set in devices.counter_sets if counter_set.name == name
        )
        partitions = counter_sets.partitions_of(devices, counter_set, self.policy)
        remaining = tuple(
            self.preallocated.left(self.node, (pool, name, counter))
            for counter in partitions.counters
        )
        position_of = {counter: position for position, counter in enumerate(partitions.counters)}
        places = tuple((position_of[counter], place) for counter, place in counters)
        return LeftoverValue(partitions, remaining, places)

    def _share_worth(self, device: int, capacities: list[tuple[str, int]]) -> LeftoverValue:
        offered = self.node.template(device).capacity
        totals = tuple(offered[name].value.nanos for name, _ in capacities)
        places = tuple((number, place) for number, (_, place) in enumerate(capacities))
        return LeftoverValue(None, totals, places)


def _resources(uses: Iterable[Use]) -> Iterable[Resource]:
    for use in uses:
        for resource, _ in (*use.draws, *use.first):
            yield resource


class _Roots:
    """Union-find over members; the lowest number of a group is its root."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def root(self, member: int) -> int:
        while self.parent[member] != member:
            self.parent[member] = member = self.parent[self.parent[member]]
        return member

    def join(self, first: int, second: int) -> None:
        low, high = sorted((self.root(first), self.root(second)))
        self.parent[high] = low
