"""Who holds which device: claims by their status or by assumption, device by device.

Given allocations as claims get and lose them; an index for those who ask about one device or audit a pool.
Administrative access holds nothing. Never says what is free: see `usage`.
"""

from __future__ import annotations

from dovetail.model import claims
from dovetail.world.events import ObjectKey
from dovetail.world.pools import PoolKey

Results = tuple[claims.DeviceRequestAllocationResult, ...]
DeviceHolders = dict[ObjectKey, Results]  # what each claim has of one device
PoolHolders = dict[str, DeviceHolders]  # by device name


class Holders:
    """Claims by pool and device."""

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
        """A claim got devices."""
        for result in allocation.devices.results:
            if not result.admin_access:
                pool = self._pools.setdefault((result.driver, result.pool), {})
                held = pool.setdefault(result.device, {})
                held[claim] = (*held.get(claim, ()), result)

    def remove(self, claim: ObjectKey, allocation: claims.AllocationResult) -> None:
        """A claim lost its devices."""
        for result in allocation.devices.results:
            key = (result.driver, result.pool)
            pool = self._pools.get(key)
            held = pool.get(result.device) if pool is not None else None
            if pool is None or held is None:
                continue
            held.pop(claim, None)
            if not held:
                del pool[result.device]
            if not pool:
                del self._pools[key]
