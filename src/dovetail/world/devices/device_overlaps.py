"""Decides whether claims hold more of a pool than it has: a device twice, too large shares, overdrawn counters.

Only schedulers keep claims apart: the API server accepts two claims that hold the same device. Given a pool and the
claims that hold its devices; names the claims involved. Never says which of them has the better right.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dovetail.world.devices.device_pools import Generation, PoolKey
from dovetail.world.devices.device_usage import DeviceHolders, PoolHolders
from dovetail.world.events import ObjectKey


class Kind(enum.StrEnum):
    """What is exceeded."""

    DEVICE = "Device"  # a claim holds it exclusively, and others hold it too
    CAPACITY = "Capacity"  # shares add up to more than the device has
    COUNTERS = "Counters"  # devices in use draw more from a counter set than it has


class Overlap(NamedTuple):
    """Claims that cannot all have what they hold."""

    kind: Kind
    driver: str
    pool: str
    device: str  # empty if a counter set is overdrawn
    counter_set: str  # empty if a device is held too often
    claims: tuple[ObjectKey, ...]  # sorted
    detail: str

    def __str__(self) -> str:
        what = f"device {self.device}" if self.device else f"counter set {self.counter_set}"
        names = ", ".join(f"{namespace}/{name}" for namespace, name in self.claims)
        return f"{what} of pool {self.driver}/{self.pool}: {self.detail} (claims {names})"


def overlaps_of_pool(
    key: PoolKey, holders: PoolHolders, generation: Generation | None
) -> tuple[Overlap, ...]:
    """Every overlap of one pool, devices first. Sizes are in `generation`; None if the pool is not published."""
    overlaps = list(_held_twice(key, holders))
    if generation is not None:
        overlaps += _over_capacity(key, holders, generation)
        overlaps += _overdrawn(key, holders, generation)
    return tuple(overlaps)


def _held_twice(key: PoolKey, holders: PoolHolders) -> Iterator[Overlap]:
    for device, by_claim in sorted(holders.items()):
        if len(by_claim) <= 1:
            continue
        is_exclusive = any(
            result.share_id is None for results in by_claim.values() for result in results
        )
        if is_exclusive:
            detail = f"held by {len(by_claim)} claims, not all of which share it"
            yield Overlap(Kind.DEVICE, *key, device, "", tuple(sorted(by_claim)), detail)


def _over_capacity(key: PoolKey, holders: PoolHolders, generation: Generation) -> Iterator[Overlap]:
    for device, by_claim in sorted(holders.items()):
        place = generation.places.get(device)
        if place is None:
            continue
        consumed = _consumed(by_claim)
        for name, offered in generation.devices.templates[place].capacity.items():
            if consumed.get(name, 0) > offered.value.nanos:
                detail = f"shares take more {name} than its {offered.value}"
                yield Overlap(Kind.CAPACITY, *key, device, "", tuple(sorted(by_claim)), detail)
                break


def _consumed(by_claim: DeviceHolders) -> dict[str, int]:
    """What the shares of one device consume together."""
    total: dict[str, int] = {}
    for results in by_claim.values():
        for result in results:
            if result.share_id is None:
                continue
            for name, amount in result.consumed_capacity.items():
                total[name] = total.get(name, 0) + amount.nanos
    return total


def _overdrawn(key: PoolKey, holders: PoolHolders, generation: Generation) -> Iterator[Overlap]:
    for counter_set in generation.devices.counter_sets:
        drawn, users = _drawn_from(counter_set.name, holders, generation)
        overdrawn = [
            name
            for name, counter in counter_set.counters.items()
            if drawn.get(name, 0) > counter.value.nanos
        ]
        if overdrawn:
            detail = f"devices in use draw more {_listed(overdrawn)} than it has"
            yield Overlap(Kind.COUNTERS, *key, "", counter_set.name, tuple(sorted(users)), detail)


def _drawn_from(
    counter_set: str, holders: PoolHolders, generation: Generation
) -> tuple[dict[str, int], set[ObjectKey]]:
    """What devices in use draw from a counter set, and the claims that hold these devices."""
    drawn: dict[str, int] = {}
    users: set[ObjectKey] = set()
    for device, by_claim in holders.items():
        place = generation.places.get(device)
        if place is None:
            continue
        for consumption in generation.devices.templates[place].consumes_counters:
            if consumption.counter_set != counter_set:
                continue
            users.update(by_claim)
            for name, amount in consumption.counters.items():
                drawn[name] = drawn.get(name, 0) + amount.value.nanos
    return drawn, users


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    listed = ", ".join(ordered[:3])
    return listed if len(ordered) <= 3 else f"{listed} and {len(ordered) - 3} more counters"
