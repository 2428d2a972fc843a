"""Device usage: which devices are allocated, what shares consume, which claims hold them, and what is held in doubt.

Usage counts allocations, so a device taken twice must be returned twice. Holders index the same allocations by claim,
for questions about a single device and for finding overlaps. Administrative access counts in neither.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dovetail.kubetypes.resource import claims
from dovetail.world.devices.device_pools import PoolKey
from dovetail.world.events import ObjectKey

Results = tuple[claims.DeviceRequestAllocationResult, ...]
DeviceHolders = dict[ObjectKey, Results]  # claim -> what it has of one device
PoolHolders = dict[str, DeviceHolders]  # by device name


class PoolUsage:
    """Usage of one pool's devices."""

    __slots__ = ("exclusive", "shares", "version")

    def __init__(self) -> None:
        self.exclusive: dict[str, int] = {}  # device name -> allocations that hold it
        # device name -> capacity name -> nanos; under "" the number of shares
        self.shares: dict[str, dict[str, int]] = {}
        self.version = 0

    def change(self, result: claims.DeviceRequestAllocationResult, sign: int) -> None:
        """Takes (1) or returns (-1) what one result of an allocation holds."""
        self.version += 1
        if result.share_id is None:
            _add(self.exclusive, result.device, sign)
            return
        consumed = self.shares.setdefault(result.device, {})
        _add(consumed, "", sign)
        for name, amount in result.consumed_capacity.items():
            _add(consumed, name, sign * amount.nanos)
        if not consumed:
            del self.shares[result.device]

    @property
    def is_empty(self) -> bool:
        """Whether no device is in use."""
        return not self.exclusive and not self.shares


class Usage:
    """Usage of devices across the cluster, by pool."""

    __slots__ = ("pools",)

    def __init__(self) -> None:
        self.pools: dict[PoolKey, PoolUsage] = {}

    def of(self, key: PoolKey) -> PoolUsage:
        """The usage of one pool."""
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = PoolUsage()
        return pool

    def change(self, allocation: claims.AllocationResult, sign: int) -> set[PoolKey]:
        """Takes (1) or returns (-1) a whole allocation; returns the pools it touched."""
        touched: set[PoolKey] = set()
        for result in allocation.devices.results:
            if not result.admin_access:
                key = (result.driver, result.pool)
                self.of(key).change(result, sign)
                touched.add(key)
        return touched


class Holders:
    """The claims that hold devices, by status or by assumption, by pool and device."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[PoolKey, PoolHolders] = {}

    def of_device(self, key: PoolKey, device: str) -> DeviceHolders:
        """The claims that hold a device, and what they have of it."""
        return self._pools.get(key, {}).get(device, {})

    def of_pool(self, key: PoolKey) -> PoolHolders:
        """Every device of a pool that is held."""
        return self._pools.get(key, {})

    def add(self, claim: ObjectKey, allocation: claims.AllocationResult) -> None:
        """A claim was allocated."""
        for result in allocation.devices.results:
            if not result.admin_access:
                pool = self._pools.setdefault((result.driver, result.pool), {})
                holders = pool.setdefault(result.device, {})
                holders[claim] = (*holders.get(claim, ()), result)

    def remove(self, claim: ObjectKey, allocation: claims.AllocationResult) -> None:
        """A claim lost its allocation."""
        for result in allocation.devices.results:
            key = (result.driver, result.pool)
            pool = self._pools.get(key)
            holders = pool.get(result.device) if pool is not None else None
            if pool is None or holders is None:
                continue
            holders.pop(claim, None)
            if not holders:
                del pool[result.device]
            if not pool:
                del self._pools[key]


class UncertainHold(NamedTuple):
    """Why devices are held out of use without a claim: a pod was deleted by force and may still be using them."""

    pod: str  # namespace and name
    queue: str  # charged for the devices meanwhile; empty: none
    until: datetime.datetime


def of_claims(allocated: Iterable[claims.ResourceClaim]) -> Usage:
    """The usage of allocated claims."""
    usage = Usage()
    for claim in allocated:
        if claim.status.allocation is not None:
            usage.change(claim.status.allocation, 1)
    return usage


def of_listing(
    devices: Iterable[str], shared: Iterable[str], capacity: Mapping[str, Mapping[str, int]]
) -> Usage:
    """The usage in a listing: `driver/pool/device`, `driver/pool/device/share`, and nanos consumed per device."""
    usage = Usage()
    for text in devices:
        key, device = _split(text)
        _add(usage.of(key).exclusive, device, 1)
    for text in shared:
        key, device = _split(text.rpartition("/")[0])
        _add(usage.of(key).shares.setdefault(device, {}), "", 1)
    for text, amounts in capacity.items():
        key, device = _split(text)
        consumed = usage.of(key).shares.setdefault(device, {})
        for name, nanos in amounts.items():
            _add(consumed, name, nanos)
    return usage


def _split(text: str) -> tuple[PoolKey, str]:
    """Pool and device of `driver/pool/device`; the pool's name may contain slashes."""
    driver, _, pool_and_device = text.partition("/")
    pool, _, device = pool_and_device.rpartition("/")
    return (driver, pool), device


def _add(counts: dict[str, int], name: str, amount: int) -> None:
    total = counts.get(name, 0) + amount
    if total:
        counts[name] = total
    else:
        counts.pop(name, None)
