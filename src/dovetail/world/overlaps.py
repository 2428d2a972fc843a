"""Decides whether claims hold more of a pool than there is: a device twice, too large shares, overdrawn counters.

Nobody but schedulers keeps claims apart: an API server accepts two claims that hold the same device. Given a pool and
who holds its devices; names the claims involved. Never says which of them is in the right.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dovetail.world.events import ObjectKey
from dovetail.world.holders import DeviceHolders, PoolHolders
from dovetail.world.pools import Generation, PoolKey


class Kind(enum.StrEnum):
    """What there is too little of."""

    DEVICE = "Device"  # it is one claim's alone, and others hold it too
    CAPACITY = "Capacity"  # shares add up to more than the device has
    COUNTERS = "Counters"  # devices in use draw more from a counter set than it has


class Overlap(NamedTuple):
    """Claims that cannot all have what they hold."""

    kind: Kind
    driver: str
    pool: str
    device: str  # empty where a counter set is overdrawn
    counter_set: str  # empty where a device is held too often
    claims: tuple[ObjectKey, ...]  # sorted
    detail: str

    def __str__(self) -> str:
        what = f"device {self.device}" if self.device else f"counter set {self.counter_set}"
        named = ", ".join(f"{namespace}/{name}" for namespace, name in self.claims)
        return f"{what} of pool {self.driver}/{self.pool}: {self.detail} (claims {named})"


def found_in(key: PoolKey, holders: PoolHolders, generation: Generation | None) -> tuple[Overlap, ...]:
    """Every overlap of one pool, devices first. `generation` tells sizes; None where the pool is not published."""
    found = list(_held_twice(key, holders))
    if generation is not None:
        found += _over_capacity(key, holders, generation)
        found += _overdrawn(key, holders, generation)
    return tuple(found)


def _held_twice(key: PoolKey, holders: PoolHolders) -> Iterator[Overlap]:
    for device, held in sorted(holders.items()):
        if len(held) > 1 and any(result.share_id is None for results in held.values() for result in results):
            detail = f"held by {len(held)} claims, not all of which share it"
            yield Overlap(Kind.DEVICE, *key, device, "", tuple(sorted(held)), detail)


def _over_capacity(key: PoolKey, holders: PoolHolders, generation: Generation) -> Iterator[Overlap]:
    for device, held in sorted(holders.items()):
        place = generation.places.get(device)
        if place is None:
            continue
        consumed = _consumed(held)
        for name, offered in generation.devices.templates[place].capacity.items():
            if consumed.get(name, 0) > offered.value.nanos:
                detail = f"shares take more {name} than its {offered.value}"
                yield Overlap(Kind.CAPACITY, *key, device, "", tuple(sorted(held)), detail)
                break


def _consumed(held: DeviceHolders) -> dict[str, int]:
    total: dict[str, int] = {}
    for result in (result for results in held.values() for result in results if result.share_id is not None):
        for name, amount in result.consumed_capacity.items():
            total[name] = total.get(name, 0) + amount.nanos
    return total


def _overdrawn(key: PoolKey, holders: PoolHolders, generation: Generation) -> Iterator[Overlap]:
    devices = generation.devices
    for counter_set in devices.counter_sets:
        drawn: dict[str, int] = {}
        users: set[ObjectKey] = set()
        for device, held in holders.items():
            place = generation.places.get(device)
            for consumption in devices.templates[place].consumes_counters if place is not None else ():
                if consumption.counter_set == counter_set.name:
                    users.update(held)
                    for name, amount in consumption.counters.items():
                        drawn[name] = drawn.get(name, 0) + amount.value.nanos
        short = [name for name, one in counter_set.counters.items() if drawn.get(name, 0) > one.value.nanos]
        if short:
            detail = f"devices in use draw more {_listed(short)} than there is"
            yield Overlap(Kind.COUNTERS, *key, "", counter_set.name, tuple(sorted(users)), detail)


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more counters" if len(ordered) > 3 else "")
