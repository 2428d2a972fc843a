"""What is taken: devices in use by name, what shares consume. Counts, so that taking twice needs giving back twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model import claims
from dovetail.world.pools import PoolKey


class PoolUsage:
    """Use of one pool's devices."""

    __slots__ = ("exclusive", "shares", "version")

    def __init__(self) -> None:
        self.exclusive: dict[str, int] = {}  # device name -> how many allocations hold it
        self.shares: dict[str, dict[str, int]] = {}  # device name -> capacity name -> nanos; "" counts the shares
        self.version = 0

    def change(self, result: claims.DeviceRequestAllocationResult, sign: int) -> None:
        """Takes (1) or gives back (-1) what one result of an allocation holds."""
        self.version += 1
        if result.share_id is None:
            _add(self.exclusive, result.device, sign)
            return
        held = self.shares.setdefault(result.device, {})
        _add(held, "", sign)
        for name, amount in result.consumed_capacity.items():
            _add(held, name, sign * amount.nanos)
        if not held:
            del self.shares[result.device]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is taken."""
        return not self.exclusive and not self.shares


class Usage:
    """Use of devices across the cluster, by pool."""

    __slots__ = ("pools",)

    def __init__(self) -> None:
        self.pools: dict[PoolKey, PoolUsage] = {}

    def of(self, key: PoolKey) -> PoolUsage:
        """The use of one pool."""
        known = self.pools.get(key)
        if known is None:
            known = self.pools[key] = PoolUsage()
        return known

    def change(self, allocation: claims.AllocationResult, sign: int) -> set[PoolKey]:
        """Takes or gives back a whole allocation; which pools it touched. Administrative access takes nothing."""
        touched: set[PoolKey] = set()
        for result in allocation.devices.results:
            if not result.admin_access:
                key = (result.driver, result.pool)
                self.of(key).change(result, sign)
                touched.add(key)
        return touched


def of_claims(allocated: Iterable[claims.ResourceClaim]) -> Usage:
    """What allocated claims take."""
    usage = Usage()
    for claim in allocated:
        if claim.status.allocation is not None:
            usage.change(claim.status.allocation, 1)
    return usage


def of_listing(devices: Iterable[str], shared: Iterable[str], capacity: Mapping[str, Mapping[str, int]]) -> Usage:
    """What a listing names: `driver/pool/device`, `driver/pool/device/share`, and nanos consumed per device."""
    usage = Usage()
    for text in devices:
        key, device = _split(text)
        _add(usage.of(key).exclusive, device, 1)
    for text in shared:
        key, device = _split(text.rpartition("/")[0])
        _add(usage.of(key).shares.setdefault(device, {}), "", 1)
    for text, amounts in capacity.items():
        key, device = _split(text)
        held = usage.of(key).shares.setdefault(device, {})
        for name, nanos in amounts.items():
            _add(held, name, nanos)
    return usage


def _split(text: str) -> tuple[PoolKey, str]:
    """Pool and device of `driver/pool/device`; the pool's name may hold slashes itself."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return (driver, pool), device


def _add(counts: dict[str, int], name: str, amount: int) -> None:
    total = counts.get(name, 0) + amount
    if total:
        counts[name] = total
    else:
        counts.pop(name, None)
