"""What it takes to give one device to one type: every limit as a resource, every cost that does not depend on others.

Resources are devices themselves, counters, capacities, requests that want different devices, and values that must
stay distinct. A use that is too much even alone is no use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from dovetail.allocate import capacity
from dovetail.allocate.demand import UNKNOWN_ELEMENT, Taken, Type
from dovetail.allocate.ground import Ground
from dovetail.allocate.score import UNIT
from dovetail.model.policy import AllocationPolicy

Resource = tuple[Hashable, ...]
Draws = tuple[tuple[Resource, int], ...]
Role = tuple[Hashable, Hashable]


class Use(NamedTuple):
    """One device for one type: what it draws, what the first of several users draws besides, what it costs."""

    kind: int
    draws: Draws
    first: Draws
    opening: Resource | None
    cost: int


class Uses:
    """Tells uses, and keeps the limits of the resources it has come across."""

    def __init__(
        self, ground: Ground, types: list[Type], taken: Taken, *, policy: AllocationPolicy, fractional: bool
    ) -> None:
        self.ground = ground
        self.types = types
        self.taken = taken
        self.policy = policy
        self.fractional = fractional
        self.has_admin = any(kind.option.is_admin for kind in types)
        self.limits: dict[Resource, int] = {}
        self.sizes = [ground.sizes(kind.needs[0].offered) for kind in types]

    def of(self, device: int) -> tuple[Use, ...]:
        """What the device can do for each type."""
        found = (self._use(number, device) for number in range(len(self.types)))
        return tuple(use for use in found if use is not None)

    def _use(self, number: int, device: int) -> Use | None:
        """None if the device is not the type's, or alone is too much already."""
        kind = self.types[number]
        if not kind.mask >> device & 1:
            return None
        shareable = self.ground.shareable >> device & 1
        draws: list[tuple[Resource, int]] = []
        first: Draws = ()
        opening: Resource | None = None
        if shareable:
            draws += self._share_draws(number, device)
            if self._is_to_open(kind, device):
                first = self._counter_draws(device)
                opening = ("open", device)
                self.limits[opening] = 1
        else:
            if self._is_gone(kind, device):
                return None
            if self.has_admin:
                draws += self._owner_draws(kind, device)
            if not kind.option.is_admin:
                draws += self._counter_draws(device)
        if not self._add_elements(kind, device, draws):
            return None
        if any(self.limits[resource] < amount for resource, amount in (*draws, *first)):
            return None
        return Use(number, tuple(draws), first, opening, self._cost(number, device))

    def _is_gone(self, kind: Type, device: int) -> bool:
        mine = self.taken.by_claim.get(kind.option.claim, 0)
        return bool((mine if kind.option.is_admin else mine | self.taken.exclusive) >> device & 1)

    def _owner_draws(self, kind: Type, device: int) -> Draws:
        """With administrators about, one claim never has a device twice, and one pod never exclusively twice."""
        claim: Resource = ("claim", kind.option.claim, device)
        self.limits[claim] = 1
        if kind.option.is_admin:
            return ((claim, 1),)
        pod: Resource = ("pod", device)
        self.limits[pod] = 1
        return ((claim, 1), (pod, 1))

    def _is_to_open(self, kind: Type, device: int) -> bool:
        if kind.option.is_admin or not self.ground.charged >> device & 1:
            return False
        return not self.ground.is_shared_already(device) and device not in self.taken.opened

    def _counter_draws(self, device: int) -> Draws:
        found: list[tuple[Resource, int]] = []
        for key, amount in self.ground.charges(device):
            resource: Resource = ("counter", *key)
            if resource not in self.limits:
                self.limits[resource] = self.taken.left(self.ground, key)
            found.append((resource, amount))
        return tuple(found)

    def _share_draws(self, number: int, device: int) -> list[tuple[Resource, int]]:
        kind = self.types[number]
        template = self.ground.template(device)
        share = capacity.share_of(template, kind.option, fractional=self.fractional) or {}
        held = self.taken.held(self.ground, device)
        found: list[tuple[Resource, int]] = []
        for name, amount in share.items():
            resource: Resource = ("capacity", device, name)
            self.limits[resource] = template.capacity[name].value.nanos - held.get(name, 0)
            found.append((resource, amount.nanos))
        once: Resource = ("request", device, number)
        self.limits[once] = kind.repeat
        return [*found, (once, 1)]

    def _add_elements(self, kind: Type, device: int, draws: list[tuple[Resource, int]]) -> bool:
        for constraint in kind.distinct:
            values = self.ground.values(constraint.attribute)[device]
            if values is None:
                return False
            gone = self.taken.elements.get(constraint, ())
            for element in sorted(values or (UNKNOWN_ELEMENT,), key=repr):
                resource: Resource = ("element", id(constraint), element)
                self.limits[resource] = 0 if element in gone else 1
                draws.append((resource, 1))
        return True

    def _cost(self, number: int, device: int) -> int:
        template = self.ground.template(device)
        cost = self.policy.binding * UNIT if template.binding_conditions else 0
        return cost + capacity.oversize(template, self.sizes[number], self.policy)

    def is_short(self, found: Iterable[tuple[Use, ...]]) -> bool:
        """Whether some counter or capacity, all devices together, cannot do for what the types draw at least."""
        total: dict[Role, int] = {}
        for resource, left in self.limits.items():
            if (role := _role(resource)) is not None:
                total[role] = total.get(role, 0) + max(left, 0)
        if not total:
            return False
        least: list[dict[Role, int] | None] = [None] * len(self.types)
        for use in (use for uses in found for use in uses):
            drawn: dict[Role, int] = {}
            for resource, amount in use.draws:
                if (role := _role(resource)) is not None:
                    drawn[role] = drawn.get(role, 0) + amount
            known = least[use.kind]
            # What some device does without, the type does without.
            least[use.kind] = drawn if known is None else {r: min(a, drawn[r]) for r, a in known.items() if r in drawn}
        need: dict[Role, int] = {}
        for kind, amounts in zip(self.types, least, strict=True):
            for role, amount in (amounts or {}).items():
                need[role] = need.get(role, 0) + kind.count * amount
        return any(amount > total[role] for role, amount in need.items())


def _role(resource: Resource) -> Role | None:
    """Resources that stand for the same on different devices: counters and capacities by name."""
    return (resource[0], resource[-1]) if resource[0] in ("counter", "capacity") else None
