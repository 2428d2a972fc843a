"""Prices allocations in thousandths of a GPU (milli-GPU): the one measure for quota, cost and waste.

The rules, each tested:
- A device that draws on no counters is a whole GPU: 1000.
- A partition costs its largest share of the counter set it draws on. Counters that differ only in a trailing number
  (memory-slice-0, memory-slice-1) count as one. Only counters that every device of the set draws on measure size:
  multiprocessors, copy engines and memory do; a video decoder that some profiles lack does not. Shares of several sets
  add up. Two partitions can cost more than 1000 together if each strands capacity that the other would need.
- A share of a device that allows multiple allocations costs its largest share of the device's capacities, times the
  cost of the device. If the device has no capacities, the size of a share is unknown and it costs the whole device.
- A claim is charged for what was allocated, never for what it requested: the chosen entry of firstAvailable, every
  device of All. Administrative access costs nothing. A claim that several pods share is charged once, in equal parts.
- A device plugin's replica costs 1000 divided by the replicas; a MIG resource the larger of compute and memory share.
- Devices of drivers that do not publish GPUs cost nothing. A device that is no longer published costs a whole GPU.

Given devices and allocations; never reads a cluster, never keeps accounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from dovetail import cache
from dovetail.kubetypes.resource import claims, slices
from dovetail.world.devices.device_columns import Devices, Template
from dovetail.world.views.node_view import PoolView

WHOLE: Final = 1000  # thousandths of a GPU
PLUGIN_GPUS: Final = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"  # written by GPU feature discovery
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"  # MiB of one GPU
MAX_STATES: Final = 4096  # states of use remembered for one interned group of templates
MIG_COMPUTE_SLICES: Final = 7  # on GPUs with fewer (A30: 4) the memory share is larger and decides

_MIG_RESOURCE: Final = re.compile(r"nvidia\.com/mig-([1-9])g\.([1-9][0-9]{0,3})gb(?:[.-].*)?")
_NUMBERED: Final = re.compile(r"(.*?)[0-9]+")

PoolKey = tuple[str, str]  # driver, pool
Family = Mapping[str, int]  # counter name without a trailing number -> nanos of all such counters


class Ledger:
    """Prices devices; caches prices per interned group of templates."""

    def __init__(self) -> None:
        self._prices_of: dict[tuple[int, int], _Prices] = {}

    def device_cost(self, devices: Devices, index: int) -> int:
        """What holding one device exclusively costs."""
        return self._prices(devices).costs[index] if publishes_gpus(devices.driver) else 0

    def result_cost(
        self, result: claims.DeviceRequestAllocationResult, devices: Devices | None
    ) -> int:
        """What one result of an allocation costs; `devices` is its pool, None if the pool is gone."""
        if result.admin_access or not publishes_gpus(result.driver):
            return 0
        if devices is None or result.device not in devices.names:
            return WHOLE
        index = devices.names.index(result.device)
        prices = self._prices(devices)
        if result.share_id is None:
            return prices.costs[index]
        part = _capacity_share(devices.templates[index], result)
        return _rounded(prices.shares[index] * part)

    def allocation_cost(
        self, allocation: claims.AllocationResult, pools: Mapping[PoolKey, Devices]
    ) -> int:
        """What all devices of an allocation cost together."""
        return sum(
            self.result_cost(result, pools.get((result.driver, result.pool)))
            for result in allocation.devices.results
        )

    def is_slice(
        self, result: claims.DeviceRequestAllocationResult, devices: Devices | None
    ) -> bool:
        """Whether a device is a part of a GPU that is cut as needed: it draws on counters, and not on all of them."""
        if devices is None or result.device not in devices.names:
            return False
        index = devices.names.index(result.device)
        is_cut = bool(devices.templates[index].consumes_counters)
        return is_cut and self._prices(devices).costs[index] < WHOLE

    def whole_milli_gpu(self, devices: Devices) -> int:
        """The size of a pool: every counter set is one GPU, and so is every device without counters."""
        if not publishes_gpus(devices.driver):
            return 0
        return WHOLE * self._prices(devices).gpus

    def free_milli_gpu(self, pool: PoolView) -> int:
        """What a node could still use of a pool: unused devices, free capacity of shared ones, remaining counters.

        Of a counter set the scarcest counter decides: a GPU without free memory is not free.
        """
        if not publishes_gpus(pool.driver) or not pool.is_complete or pool.problem:
            return 0
        prices = self._prices(pool.devices)
        key = _state(pool)
        milli_gpu = prices.free.get(key)
        if milli_gpu is None:
            if len(prices.free) >= MAX_STATES:
                prices.free.clear()
            milli_gpu = prices.free[key] = self._free_in(pool, prices)
        return milli_gpu

    def free_by_gpu(self, pool: PoolView) -> dict[str, int]:
        """The same GPU by GPU: by the name of a device, or of the counter set that partitions draw on."""
        if not publishes_gpus(pool.driver) or not pool.is_complete or pool.problem:
            return {}
        prices = self._prices(pool.devices)
        free: dict[str, int] = {}
        usable = pool.usable & ~pool.barred
        for index, template in enumerate(pool.devices.templates):
            if not usable >> index & 1:
                continue
            if not template.consumes_counters:
                part = 1 - _shared_out(template, pool.shared.get(index, {}))
                free[pool.devices.names[index]] = 0 if pool.used >> index & 1 else _rounded(part)
                continue
            for consumption in template.consumes_counters:
                name = consumption.counter_set
                if name not in free:
                    remaining = pool.counters_left.get(name, {})
                    part = _free_in_set(
                        remaining, prices.totals.get(name, {}), prices.measures[name]
                    )
                    free[name] = _rounded(part)
        return free

    def _free_in(self, pool: PoolView, prices: _Prices) -> int:
        free = Fraction(0)
        counter_sets: set[str] = set()
        usable = pool.usable & ~pool.barred
        for index, template in enumerate(pool.devices.templates):
            if not usable >> index & 1:
                continue
            if template.consumes_counters:
                counter_sets.update(
                    consumption.counter_set for consumption in template.consumes_counters
                )
            elif not pool.used >> index & 1:
                free += 1 - _shared_out(template, pool.shared.get(index, {}))
        for name in counter_sets:
            remaining = pool.counters_left.get(name, {})
            totals = prices.totals.get(name, {})
            free += _free_in_set(remaining, totals, prices.measures[name])
        return _rounded(free)

    def _prices(self, devices: Devices) -> _Prices:
        key = (id(devices.templates), id(devices.counter_sets))
        prices = self._prices_of.get(key)
        if prices is None:
            prices = self._prices_of[key] = _Prices(devices)
        return prices


class _Prices:
    """What depends only on templates and counter sets. Keeps both alive: the ledger looks prices up by their ids."""

    __slots__ = ("alive", "costs", "free", "gpus", "measures", "shares", "totals")

    def __init__(self, devices: Devices) -> None:
        templates = devices.templates
        self.alive = (templates, devices.counter_sets)
        self.free: dict[tuple[object, ...], int] = {}  # by state of use
        self.totals = {
            counter_set.name: _families(_nanos(counter_set.counters))
            for counter_set in devices.counter_sets
        }
        self.measures = _measures(templates)
        without_counters = sum(not template.consumes_counters for template in templates)
        self.gpus = len(self.measures) + without_counters
        self.shares = tuple(
            _counter_share(template, self.totals, self.measures) for template in templates
        )
        self.costs = tuple(map(_rounded, self.shares))


def _state(pool: PoolView) -> tuple[object, ...]:
    """Everything the free part of a pool depends on, besides its templates and counter sets."""
    shared: tuple[object, ...] = ()
    if pool.shared:
        shared = tuple((index, tuple(amounts.items())) for index, amounts in pool.shared.items())
    counters: tuple[object, ...] = ()
    if pool.counters_left:
        counters = tuple(tuple(amounts.items()) for amounts in pool.counters_left.values())
    return pool.usable & ~pool.barred, pool.used, shared, tuple(pool.counters_left), counters


def publishes_gpus(driver: str) -> bool:
    """Whether a driver's devices are GPUs: by convention its name begins with `gpu.`, as in gpu.nvidia.com."""
    return driver.startswith("gpu.")


def split(cost: int, holders: Iterable[str]) -> dict[str, int]:
    """The cost of a shared claim in equal parts that add up; the remainder goes to the first holders by name."""
    names = sorted(set(holders))
    if not names:
        return {}
    part, remainder = divmod(cost, len(names))
    return {name: part + (place < remainder) for place, name in enumerate(names)}


def plugin_cost(resource: str, count: int, labels: Mapping[str, str]) -> int:
    """What `count` of a device plugin's extended resource cost on a node with these labels; 0 if it is no GPU."""
    if resource in PLUGIN_GPUS:
        return _rounded(Fraction(count, max(_number(labels, REPLICAS_LABEL), 1)))
    profile = _MIG_RESOURCE.fullmatch(resource)
    if profile is None:
        return 0
    compute = Fraction(int(profile[1]), MIG_COMPUTE_SLICES)
    mebibytes = _number(labels, MEMORY_LABEL)
    memory = Fraction(int(profile[2]) * 1024, mebibytes) if mebibytes else Fraction(0)
    return _rounded(min(max(compute, memory), Fraction(1)) * count)


def _measures(templates: Sequence[Template]) -> dict[str, frozenset[str]]:
    """By counter set, the counters that all of its devices draw on: only these measure size."""
    common: dict[str, frozenset[str]] = {}
    for template in templates:
        for consumption in template.consumes_counters:
            amounts = _families(_nanos(consumption.counters))
            drawn = frozenset(name for name, nanos in amounts.items() if nanos)
            name = consumption.counter_set
            common[name] = common[name] & drawn if name in common else drawn
    return common


def _counter_share(
    template: Template, totals: Mapping[str, Family], measures: Mapping[str, frozenset[str]]
) -> Fraction:
    if not template.consumes_counters:
        return Fraction(1)
    share = Fraction(0)
    for consumption in template.consumes_counters:
        name = consumption.counter_set
        drawn = _families(_nanos(consumption.counters))
        share += _largest(drawn, totals.get(name, {}), measures[name])
    return share


def _largest(drawn: Family, total: Family, measures: frozenset[str]) -> Fraction:
    """The largest share of a counter set; all of it if no counter measures size."""
    shares = [Fraction(drawn[name], total[name]) for name in measures if total.get(name)]
    return max(shares, default=Fraction(1))


def _free_in_set(remaining: Family, total: Family, measures: frozenset[str]) -> Fraction:
    """The free share of a counter set, by its scarcest counter."""
    amounts = _families(remaining)
    shares = [
        Fraction(max(amounts.get(name, 0), 0), total[name]) for name in measures if total.get(name)
    ]
    return min(shares, default=Fraction(0))


def _nanos(counters: Mapping[str, slices.Counter]) -> Family:
    return {name: counter.value.nanos for name, counter in counters.items()}


def _families(counters: Family) -> Family:
    """Counters that differ only in a trailing number, added up."""
    totals: dict[str, int] = {}
    for name, nanos in counters.items():
        family = _family(name)
        totals[family] = totals.get(family, 0) + nanos
    return totals


@cache.remembered(4096)
def _family(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else name


def _shared_out(template: Template, consumed: Mapping[str, int]) -> Fraction:
    """The largest part of a capacity that existing shares consume."""
    shares = [
        Fraction(consumed.get(name, 0), capacity.value.nanos)
        for name, capacity in template.capacity.items()
        if capacity.value.nanos
    ]
    return min(max(shares, default=Fraction(0)), Fraction(1))


def _capacity_share(template: Template, result: claims.DeviceRequestAllocationResult) -> Fraction:
    shares = [
        Fraction(result.consumed_capacity[name].nanos, capacity.value.nanos)
        for name, capacity in template.capacity.items()
        if name in result.consumed_capacity and capacity.value.nanos
    ]
    return max(shares, default=Fraction(1))


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(name, "")
    return int(text[:12]) if text.isdecimal() and text.isascii() else 0


def _rounded(share: Fraction) -> int:
    """In thousandths, halves rounded up: exact integer arithmetic, no float and no banker's rounding."""
    return (2 * WHOLE * share.numerator + share.denominator) // (2 * share.denominator)
