"""What has to be found once options and common values are settled: types of need, and what is spoken for already.

Requests that want the same of the same devices are one type, however many they are: their permutations are never
tried. Devices of requests for all devices are taken beforehand: there is nothing to choose about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.allocate import capacity
from dovetail.allocate.constraints import Constraint
from dovetail.allocate.ground import CounterKey, Ground
from dovetail.allocate.requests import Option

UNKNOWN_ELEMENT = ("unknown", "")  # what values of no known type have in common


class Need:
    """So many devices of a mask for one option."""

    __slots__ = ("count", "mask", "offered", "option")

    def __init__(self, option: Option, count: int, mask: int, *, offered: int) -> None:
        self.option = option
        self.count = count
        self.mask = mask
        self.offered = offered  # its devices before a common value was asked for: sizes are compared with these


class Type:
    """Needs that cannot be told apart."""

    __slots__ = ("count", "distinct", "mask", "needs", "option")

    def __init__(self, need: Need, distinct: tuple[Constraint, ...]) -> None:
        self.option = need.option  # any of them: they ask for the same
        self.mask = need.mask
        self.distinct = distinct
        self.count = 0
        self.needs: list[Need] = []

    @property
    def repeat(self) -> int:
        """How many of its requests may share one shareable device."""
        return len(self.needs)


class Taken:
    """What requests for all devices have taken before anything is chosen."""

    __slots__ = ("by_claim", "elements", "exclusive", "opened", "picks", "shares", "spent")

    def __init__(self) -> None:
        self.picks: list[tuple[Option, int]] = []
        self.exclusive = 0
        self.by_claim: dict[int, int] = {}
        self.spent: dict[CounterKey, int] = {}
        self.shares: dict[int, dict[str, int]] = {}
        self.opened: set[int] = set()
        self.elements: dict[Constraint, set[object]] = {}

    def left(self, ground: Ground, key: CounterKey) -> int:
        """What is left of a counter."""
        return ground.left(key) - self.spent.get(key, 0)

    def held(self, ground: Ground, device: int) -> Mapping[str, int]:
        """What is taken of a device's capacities."""
        held, more = ground.held(device), self.shares.get(device)
        return held if more is None else {name: held.get(name, 0) + more.get(name, 0) for name in {*held, *more}}

    def take(
        self, ground: Ground, option: Option, device: int, *, distinct: Iterable[Constraint], fractional: bool
    ) -> bool:
        """Takes one device for a request of all; False if something stands against it."""
        shareable = bool(ground.shareable >> device & 1)
        if not shareable:
            mine = self.by_claim.get(option.claim, 0)
            if mine >> device & 1 or (not option.is_admin and self.exclusive >> device & 1):
                return False
            self.by_claim[option.claim] = mine | 1 << device
            if not option.is_admin:
                self.exclusive |= 1 << device
        elif not self._take_share(ground, option, device, fractional=fractional):
            return False
        charged = not option.is_admin and not (
            shareable and (device in self.opened or ground.is_shared_already(device))
        )
        if charged:
            self.opened.add(device)
            for key, amount in ground.charges(device):
                if self.left(ground, key) < amount:
                    return False
                self.spent[key] = self.spent.get(key, 0) + amount
        self.picks.append((option, device))
        return all(self._add_elements(ground, constraint, device) for constraint in distinct)

    def _take_share(self, ground: Ground, option: Option, device: int, *, fractional: bool) -> bool:
        template = ground.template(device)
        share = capacity.share_of(template, option, fractional=fractional)
        if share is None or not capacity.is_room(template, share, self.held(ground, device)):
            return False
        mine = self.shares.setdefault(device, {})
        for name, amount in share.items():
            mine[name] = mine.get(name, 0) + amount.nanos
        return True

    def _add_elements(self, ground: Ground, constraint: Constraint, device: int) -> bool:
        found = ground.values(constraint.attribute)[device]
        if found is None:
            return False
        known = self.elements.setdefault(constraint, set())
        if not known.isdisjoint(found or (UNKNOWN_ELEMENT,)):
            return False
        known.update(found or (UNKNOWN_ELEMENT,))
        return True


def types_of(ground: Ground, needs: Iterable[Need], distinct: Iterable[Constraint], *, has_admin: bool) -> list[Type]:
    """The needs by type. Shared devices keep needs of different counts apart: see `assigned`."""
    rules = tuple(distinct)
    found: dict[tuple[object, ...], Type] = {}
    for need in needs:
        if need.count <= 0:
            continue
        option = need.option
        covering = tuple(constraint for constraint in rules if constraint.covers(option))
        shareable = bool(need.mask & ground.shareable)
        key = (
            need.mask,
            need.offered,
            covering,
            (option.claim, option.is_admin) if has_admin else (),
            (option.capacity_key, need.count) if shareable else (),
        )
        kind = found.get(key)
        if kind is None:
            kind = found[key] = Type(need, covering)
        kind.needs.append(need)
        kind.count += need.count
    return list(found.values())


def assigned(kind: Type, devices: list[int]) -> list[tuple[Option, int]]:
    """Deals a type's devices out to its requests, so that none gets a shareable device twice.

    Shares of one device are neighbours and are dealt round: requests of equal counts then get different devices.
    Where devices are not shared every way of dealing is right.
    """
    left = [need.count for need in kind.needs]
    dealt: list[tuple[Option, int]] = []
    turn = 0
    for device in sorted(devices):
        while left[turn % len(left)] == 0:
            turn += 1
        left[turn % len(left)] -= 1
        dealt.append((kind.needs[turn % len(left)].option, device))
        turn += 1
    return dealt
