"""What it takes to give one device to one type: every limit as a resource, and the cost that depends on no other pick.

Resources are the devices themselves, counters, capacities, requests that need different devices, and values that must
stay distinct. With every limit in one form, the search needs no special case for any of them. A use that exceeds a
limit even alone is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from dovetail.allocate.ask.demand import UNKNOWN_ELEMENT, NeedType, Preallocated
from dovetail.allocate.index import consumed_capacity
from dovetail.allocate.index.consumed_capacity import UNIT
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.model.policy import AllocationPolicy

Resource = tuple[Hashable, ...]  # what it is, then which one
Draws = tuple[tuple[Resource, int], ...]  # resource, amount
Role = tuple[Hashable, Hashable]  # what a resource is, and its name


class Use(NamedTuple):
    """One device for one type."""

    kind: int
    draws: Draws
    first: Draws  # drawn in addition by the first share of a device: its counters
    opening: Resource | None  # the resource that makes this happen only once
    cost: int


class Uses:
    """Works out uses, and collects the limits of the resources they draw on."""

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
        self.fractional = fractional
        self.has_admin = any(kind.option.is_admin for kind in types)
        self.limits: dict[Resource, int] = {}
        self.sizes = [node.sizes(kind.needs[0].offered) for kind in types]

    def of(self, device: int) -> tuple[Use, ...]:
        """What the device can do for each type."""
        uses = (self._use(number, device) for number in range(len(self.types)))
        return tuple(use for use in uses if use is not None)

    def _use(self, number: int, device: int) -> Use | None:
        """None if the device is no candidate of the type, or exceeds a limit even alone."""
        kind = self.types[number]
        if not kind.mask >> device & 1:
            return None
        shareable = self.node.shareable >> device & 1
        draws: list[tuple[Resource, int]] = []
        first: Draws = ()
        opening: Resource | None = None
        if shareable:
            draws += self._share_draws(number, device)
            if self._needs_opening(kind, device):
                first = self._counter_draws(device)
                opening = ("open", device)
                self.limits[opening] = 1
        else:
            if self._is_taken(kind, device):
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

    def _is_taken(self, kind: NeedType, device: int) -> bool:
        """Whether a request for all devices has it already, of the same claim or exclusively."""
        unavailable = self.preallocated.by_claim.get(kind.option.claim, 0)
        if not kind.option.is_admin:
            unavailable |= self.preallocated.exclusive
        return bool(unavailable >> device & 1)

    def _owner_draws(self, kind: NeedType, device: int) -> Draws:
        """With administrative access, a claim still gets a device once, and a pod gets it exclusively once."""
        claim: Resource = ("claim", kind.option.claim, device)
        self.limits[claim] = 1
        if kind.option.is_admin:
            return ((claim, 1),)
        pod: Resource = ("pod", device)
        self.limits[pod] = 1
        return ((claim, 1), (pod, 1))

    def _needs_opening(self, kind: NeedType, device: int) -> bool:
        """Whether the first share would draw on the device's counters: it does unless a share exists already."""
        if kind.option.is_admin or not self.node.charged >> device & 1:
            return False
        return not self.node.is_shared_already(device) and device not in self.preallocated.opened

    def _counter_draws(self, device: int) -> Draws:
        draws: list[tuple[Resource, int]] = []
        for key, amount in self.node.charges(device):
            resource: Resource = ("counter", *key)
            if resource not in self.limits:
                self.limits[resource] = self.preallocated.left(self.node, key)
            draws.append((resource, amount))
        return tuple(draws)

    def _share_draws(self, number: int, device: int) -> list[tuple[Resource, int]]:
        kind = self.types[number]
        template = self.node.template(device)
        share = consumed_capacity.share_of(template, kind.option, fractional=self.fractional) or {}
        in_use = self.preallocated.held(self.node, device)
        draws: list[tuple[Resource, int]] = []
        for name, amount in share.items():
            resource: Resource = ("capacity", device, name)
            self.limits[resource] = template.capacity[name].value.nanos - in_use.get(name, 0)
            draws.append((resource, amount.nanos))
        # A request needs different devices, so a type uses one device at most once per request.
        per_request: Resource = ("request", device, number)
        self.limits[per_request] = kind.repeat
        return [*draws, (per_request, 1)]

    def _add_elements(self, kind: NeedType, device: int, draws: list[tuple[Resource, int]]) -> bool:
        """Draws on the values that must stay distinct, each of which exists once; False without a value."""
        for constraint in kind.distinct:
            values = self.node.values(constraint.attribute)[device]
            if values is None:
                return False
            used = self.preallocated.elements.get(constraint, ())
            for element in sorted(values or (UNKNOWN_ELEMENT,), key=repr):
                resource: Resource = ("element", id(constraint), element)
                self.limits[resource] = 0 if element in used else 1
                draws.append((resource, 1))
        return True

    def _cost(self, number: int, device: int) -> int:
        template = self.node.template(device)
        cost = self.policy.binding * UNIT if template.binding_conditions else 0
        return cost + consumed_capacity.oversize(template, self.sizes[number], self.policy)

    def is_short(self, uses_of_devices: Iterable[tuple[Use, ...]]) -> bool:
        """Whether a counter or capacity, summed over all devices, is less than the types draw at least.

        A bound that proves "no" in linear time: every device of a type draws at least the type's minimum, wherever it
        is, so the sum over all devices is the most that can be served.
        """
        supply: dict[Role, int] = {}
        for resource, limit in self.limits.items():
            if (role := _role(resource)) is not None:
                supply[role] = supply.get(role, 0) + max(limit, 0)
        if not supply:
            return False
        demand: dict[Role, int] = {}
        for kind, amounts in zip(self.types, self._least_draws(uses_of_devices), strict=True):
            for role, amount in amounts.items():
                demand[role] = demand.get(role, 0) + kind.count * amount
        return any(amount > supply[role] for role, amount in demand.items())

    def _least_draws(self, uses_of_devices: Iterable[tuple[Use, ...]]) -> list[dict[Role, int]]:
        """What each type draws at least, over all devices it could get."""
        least: list[dict[Role, int] | None] = [None] * len(self.types)
        for uses in uses_of_devices:
            for use in uses:
                drawn = _drawn(use)
                so_far = least[use.kind]
                if so_far is None:
                    least[use.kind] = drawn
                    continue
                # What some device does without, the type does without.
                least[use.kind] = {
                    role: min(amount, drawn[role])
                    for role, amount in so_far.items()
                    if role in drawn
                }
        return [amounts or {} for amounts in least]


def _drawn(use: Use) -> dict[Role, int]:
    drawn: dict[Role, int] = {}
    for resource, amount in use.draws:
        if (role := _role(resource)) is not None:
            drawn[role] = drawn.get(role, 0) + amount
    return drawn


def _role(resource: Resource) -> Role | None:
    """What resources of different devices have in common: counters and capacities by name; None for others."""
    return (resource[0], resource[-1]) if resource[0] in ("counter", "capacity") else None
