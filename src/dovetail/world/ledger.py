"""Decides what an allocation costs in silicon, in thousandths of a GPU: the one measure for quota, cost and waste.

The rules, each tested:
- A device that draws on no counters is a whole GPU: 1000.
- A partition costs its largest share of the counter set it draws on. Counters that differ in a trailing number only
  (memory-slice-0, memory-slice-1) are one counter. Only counters that every device of the set draws on measure size:
  multiprocessors, copy engines and memory do; a video decoder that some profiles lack does not. Shares of several sets
  add up. Two partitions can cost more than 1000 together where each strands something of the other's.
- A share of a device that may be allocated several times costs its largest share of the device's capacities, times
  what the device itself costs. Without any capacity nothing says how small a share is, and it costs the whole device.
- A claim is charged for what it was given, never for what it asked: the chosen entry of firstAvailable, every device
  of All. Administrative access costs nothing. A claim several pods share is charged once, in equal parts.
- A device plugin's replica costs 1000 divided by the replicas, its MIG resource the larger of compute and memory share.
- Devices of drivers that do not publish GPUs cost nothing. A device that is published no more is charged as whole.

Given devices and allocations; never reads a cluster, never keeps accounts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from dovetail.model import claims, slices
from dovetail.world.devices import Devices, Template
from dovetail.world.view import PoolView

WHOLE: Final = 1000  # thousandths of a GPU
PLUGIN_GPUS: Final = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"  # written by GPU feature discovery
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"  # MiB of one GPU
MAX_STATES: Final = 4096  # of use, remembered for one interned group of templates
MIG_COMPUTE_SLICES: Final = 7  # where there are fewer (A30: 4) the memory share is the larger one and decides

_MIG_RESOURCE: Final = re.compile(r"nvidia\.com/mig-([1-9])g\.([1-9][0-9]{0,3})gb(?:[.-].*)?")
_NUMBERED: Final = re.compile(r"(.*?)[0-9]+")

PoolKey = tuple[str, str]  # driver, pool
Family = Mapping[str, int]  # counter, or counters by their name without a trailing number -> nanos


class Ledger:
    """Prices devices, and remembers what it worked out for each interned group of templates."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Prices] = {}

    def device_cost(self, devices: Devices, index: int) -> int:
        """What holding one device exclusively costs."""
        return self._prices(devices).costs[index] if publishes_gpus(devices.driver) else 0

    def result_cost(self, result: claims.DeviceRequestAllocationResult, devices: Devices | None) -> int:
        """What one result of an allocation costs; `devices` is its pool, None if that is gone."""
        if result.admin_access or not publishes_gpus(result.driver):
            return 0
        if devices is None or result.device not in devices.names:
            return WHOLE
        index = devices.names.index(result.device)
        if result.share_id is None:
            return self._prices(devices).costs[index]
        return _rounded(self._share(devices, index) * _capacity_share(devices.templates[index], result))

    def allocation_cost(self, allocation: claims.AllocationResult, pools: Mapping[PoolKey, Devices]) -> int:
        """What everything a claim was given costs."""
        return sum(self.result_cost(one, pools.get((one.driver, one.pool))) for one in allocation.devices.results)

    def whole_milli_gpu(self, devices: Devices) -> int:
        """What all of a pool's devices are together: every set of counters is a GPU, and every device without one."""
        if not publishes_gpus(devices.driver):
            return 0
        return WHOLE * self._prices(devices).gpus

    def free_milli_gpu(self, pool: PoolView) -> int:
        """What a node could still use of a pool: whole devices, capacity not shared out, what counter sets have left.

        Of a counter set the scarcest counter counts: a GPU without free memory is not free.
        """
        if not publishes_gpus(pool.driver) or not pool.is_complete or pool.problem:
            return 0
        prices = self._prices(pool.devices)
        key = _state(pool)
        known = prices.free.get(key)
        if known is None:
            if len(prices.free) >= MAX_STATES:
                prices.free.clear()
            known = prices.free[key] = self._free_in(pool, prices)
        return known

    def _free_in(self, pool: PoolView, prices: _Prices) -> int:
        left = Fraction(0)
        reached: set[str] = set()
        for index, template in enumerate(pool.devices.templates):
            if not (pool.usable & ~pool.barred) >> index & 1:
                continue
            if template.consumes_counters:
                reached.update(one.counter_set for one in template.consumes_counters)
            elif not pool.used >> index & 1:
                left += 1 - _shared_out(template, pool.shared.get(index, {}))
        for name in reached:
            left += _left_of_set(pool.counters_left.get(name, {}), prices.totals.get(name, {}), prices.measures[name])
        return _rounded(left)

    def _share(self, devices: Devices, index: int) -> Fraction:
        return self._prices(devices).shares[index]

    def _prices(self, devices: Devices) -> _Prices:
        key = (id(devices.templates), id(devices.counter_sets))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Prices(devices)
        return known


class _Prices:
    """What can be said of a pool's devices once and for all. Keeps alive what the ledger knows by identity."""

    __slots__ = ("costs", "free", "gpus", "kept", "measures", "shares", "totals")

    def __init__(self, devices: Devices) -> None:
        self.kept = (devices.templates, devices.counter_sets)
        self.free: dict[tuple[object, ...], int] = {}  # by state of use
        self.totals = {one.name: _families(_nanos(one.counters)) for one in devices.counter_sets}
        self.measures = _measures(devices.templates)
        self.gpus = len(self.measures) + sum(not one.consumes_counters for one in devices.templates)
        self.shares = tuple(_counter_share(one, self.totals, self.measures) for one in devices.templates)
        self.costs = tuple(map(_rounded, self.shares))


def _state(pool: PoolView) -> tuple[object, ...]:
    """All that what is free of a pool depends on, its templates and counter sets aside."""
    shared = tuple((index, tuple(held.items())) for index, held in pool.shared.items()) if pool.shared else ()
    counters = tuple(tuple(left.items()) for left in pool.counters_left.values()) if pool.counters_left else ()
    return pool.usable & ~pool.barred, pool.used, shared, tuple(pool.counters_left), counters


def publishes_gpus(driver: str) -> bool:
    """Whether a driver's devices are GPUs: by convention its name begins with `gpu.`, as gpu.nvidia.com does."""
    return driver.startswith("gpu.")


def split(cost: int, holders: Iterable[str]) -> dict[str, int]:
    """The cost of a shared claim in equal parts that add up; what cannot be divided goes to the first by name."""
    names = sorted(set(holders))
    if not names:
        return {}
    part, rest = divmod(cost, len(names))
    return {name: part + (place < rest) for place, name in enumerate(names)}


def plugin_cost(resource: str, count: int, labels: Mapping[str, str]) -> int:
    """What so many of a device plugin's extended resource cost on a node with these labels; 0 if it is no GPU."""
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
    """Per counter set, the counters that every device which draws on the set draws on."""
    found: dict[str, frozenset[str]] = {}
    for template in templates:
        for consumption in template.consumes_counters:
            drawn = frozenset(name for name, nanos in _families(_nanos(consumption.counters)).items() if nanos)
            name = consumption.counter_set
            found[name] = found[name] & drawn if name in found else drawn
    return found


def _counter_share(
    template: Template, totals: Mapping[str, Family], measures: Mapping[str, frozenset[str]]
) -> Fraction:
    if not template.consumes_counters:
        return Fraction(1)
    return sum(
        (
            _largest(_families(_nanos(one.counters)), totals.get(one.counter_set, {}), measures[one.counter_set])
            for one in template.consumes_counters
        ),
        Fraction(0),
    )


def _largest(drawn: Family, total: Family, measures: frozenset[str]) -> Fraction:
    """The largest share of a set; all of it where no counter measures the size."""
    shares = [Fraction(drawn[name], total[name]) for name in measures if total.get(name)]
    return max(shares, default=Fraction(1))


def _left_of_set(left: Family, total: Family, measures: frozenset[str]) -> Fraction:
    remaining = _families(left)
    shares = [Fraction(max(remaining.get(name, 0), 0), total[name]) for name in measures if total.get(name)]
    return min(shares, default=Fraction(0))


def _nanos(counters: Mapping[str, slices.Counter]) -> Family:
    return {name: counter.value.nanos for name, counter in counters.items()}


def _families(counters: Family) -> Family:
    found: dict[str, int] = {}
    for name, nanos in counters.items():
        family = _family(name)
        found[family] = found.get(family, 0) + nanos
    return found


@functools.lru_cache(maxsize=4096)
def _family(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else name


def _shared_out(template: Template, held: Mapping[str, int]) -> Fraction:
    """The largest part of a capacity that shares already hold."""
    shares = [
        Fraction(held.get(name, 0), capacity.value.nanos)
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
    """Thousandths, halves up: a hair of silicon is not lost half of the time."""
    return (2 * WHOLE * share.numerator + share.denominator) // (2 * share.denominator)
