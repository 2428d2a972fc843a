"""The demand once options and common values are fixed: types of need, and devices that are taken beforehand.

Requests that want the same of the same devices are one type, however many they are, so their permutations are never
tried. The devices of requests for all devices are taken first: there is no choice about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.allocate.ask.constraints import Constraint
from dovetail.allocate.ask.device_requests import Option
from dovetail.allocate.index import consumed_capacity
from dovetail.allocate.index.device_bits import CounterKey, NodeDevices

UNKNOWN_ELEMENT = ("unknown", "")  # the element shared by all values of unknown type


class Need:
    """A number of devices out of a mask, for one option."""

    __slots__ = ("count", "mask", "offered", "option")

    def __init__(self, option: Option, count: int, mask: int, *, offered: int) -> None:
        self.option = option
        self.count = count
        self.mask = mask
        # The mask before common values narrowed it: device sizes are compared among these.
        self.offered = offered


class NeedType:
    """Needs that are interchangeable."""

    __slots__ = ("count", "distinct", "mask", "needs", "option")

    def __init__(self, need: Need, distinct: tuple[Constraint, ...]) -> None:
        self.option = need.option  # of any of the needs: they request the same
        self.mask = need.mask
        self.distinct = distinct
        self.count = 0
        self.needs: list[Need] = []

    @property
    def repeat(self) -> int:
        """How many of its requests may share one shareable device."""
        return len(self.needs)


class Preallocated:
    """What requests for all devices take before anything is chosen."""

    __slots__ = ("by_claim", "elements", "exclusive", "opened", "picks", "shares", "spent")

    def __init__(self) -> None:
        self.picks: list[tuple[Option, int]] = []
        self.exclusive = 0  # mask of devices taken exclusively
        self.by_claim: dict[int, int] = {}  # claim -> mask of its devices
        self.spent: dict[CounterKey, int] = {}
        self.shares: dict[int, dict[str, int]] = {}  # device -> capacity -> nanos
        self.opened: set[int] = set()  # devices whose counters are drawn here
        self.elements: dict[Constraint, set[object]] = {}  # values used under distinctAttribute

    def left(self, node: NodeDevices, key: CounterKey) -> int:
        """What remains of a counter."""
        return node.left(key) - self.spent.get(key, 0)

    def held(self, node: NodeDevices, device: int) -> Mapping[str, int]:
        """What is consumed of a device's capacities, before this attempt and by it."""
        before, added = node.held(device), self.shares.get(device)
        if added is None:
            return before
        return {name: before.get(name, 0) + added.get(name, 0) for name in {*before, *added}}

    def take(
        self,
        node: NodeDevices,
        option: Option,
        device: int,
        *,
        distinct: Iterable[Constraint],
        fractional: bool,
    ) -> bool:
        """Takes one device for a request for all devices; False if it cannot be taken.

        A pick that fails only by a distinctAttribute constraint is recorded: the caller distinguishes the cases by it.
        """
        shareable = bool(node.shareable >> device & 1)
        if shareable:
            if not self._take_share(node, option, device, fractional=fractional):
                return False
        elif not self._take_exclusively(option, device):
            return False
        # The first share of a device draws on its counters for all that follow.
        is_open = shareable and (device in self.opened or node.is_shared_already(device))
        if not option.is_admin and not is_open and not self._draw(node, device):
            return False
        self.picks.append((option, device))
        return all(self._add_elements(node, constraint, device) for constraint in distinct)

    def _take_exclusively(self, option: Option, device: int) -> bool:
        """No claim gets a device twice; beyond that, administrative access does not exclude others."""
        of_claim = self.by_claim.get(option.claim, 0)
        if of_claim >> device & 1:
            return False
        if not option.is_admin:
            if self.exclusive >> device & 1:
                return False
            self.exclusive |= 1 << device
        self.by_claim[option.claim] = of_claim | 1 << device
        return True

    def _draw(self, node: NodeDevices, device: int) -> bool:
        self.opened.add(device)
        for key, amount in node.charges(device):
            if self.left(node, key) < amount:
                return False
            self.spent[key] = self.spent.get(key, 0) + amount
        return True

    def _take_share(
        self, node: NodeDevices, option: Option, device: int, *, fractional: bool
    ) -> bool:
        template = node.template(device)
        share = consumed_capacity.share_of(template, option, fractional=fractional)
        if share is None:
            return False
        if not consumed_capacity.is_room(template, share, self.held(node, device)):
            return False
        consumed = self.shares.setdefault(device, {})
        for name, amount in share.items():
            consumed[name] = consumed.get(name, 0) + amount.nanos
        return True

    def _add_elements(self, node: NodeDevices, constraint: Constraint, device: int) -> bool:
        """Marks a device's values as used; False if one of them was, or the device has none."""
        values = node.values(constraint.attribute)[device]
        if values is None:
            return False
        used = self.elements.setdefault(constraint, set())
        elements = values or (UNKNOWN_ELEMENT,)
        if not used.isdisjoint(elements):
            return False
        used.update(elements)
        return True


def types_of(
    node: NodeDevices, needs: Iterable[Need], distinct: Iterable[Constraint], *, has_admin: bool
) -> list[NeedType]:
    """The needs grouped by type: needs that agree in everything a solution could depend on.

    Shareable devices keep needs of different counts apart: see `assigned`.
    """
    rules = tuple(distinct)
    types: dict[tuple[object, ...], NeedType] = {}
    for need in needs:
        if need.count <= 0:
            continue
        option = need.option
        covering = tuple(constraint for constraint in rules if constraint.covers(option))
        shareable = bool(need.mask & node.shareable)
        key = (
            need.mask,
            need.offered,
            covering,
            (option.claim, option.is_admin) if has_admin else (),
            (option.capacity_key, need.count) if shareable else (),
        )
        kind = types.get(key)
        if kind is None:
            kind = types[key] = NeedType(need, covering)
        kind.needs.append(need)
        kind.count += need.count
    return list(types.values())


def assigned(kind: NeedType, devices: list[int]) -> list[tuple[Option, int]]:
    """Deals a type's devices out to its requests, so that no request gets a shareable device twice.

    Shares of one device are adjacent after sorting and are dealt round robin: a device is used at most as often as
    there are requests (`Type.repeat`), and requests of equal counts stay in step, so all of its shares go to different
    requests. Exclusive devices may be dealt in any way.
    """
    missing = [need.count for need in kind.needs]
    dealt: list[tuple[Option, int]] = []
    turn = 0
    for device in sorted(devices):
        while missing[turn % len(missing)] == 0:
            turn += 1
        missing[turn % len(missing)] -= 1
        dealt.append((kind.needs[turn % len(missing)].option, device))
        turn += 1
    return dealt
