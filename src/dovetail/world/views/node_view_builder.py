"""Builds the view of a node that allocation reads, from pools, device usage and DeviceTaintRules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail import cache
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.world.devices.device_columns import Interner
from dovetail.world.devices.device_pools import Generation, Pool, PoolKey, part_of
from dovetail.world.devices.device_usage import PoolUsage, Usage
from dovetail.world.devices.taint_rule_index import Rules
from dovetail.world.views.node_view import NodeView, PoolView

_UNUSED: Final = PoolUsage()
_NO_RULES: Final = Rules()


def node_view(
    node: nodes.Node,
    pools: Iterable[Pool],
    usage: Usage,
    rules: Rules = _NO_RULES,
) -> NodeView:
    """The node with every pool it can see, in kube-scheduler's order: pools with binding conditions last."""
    ranked = [
        ranked_view
        for pool in pools
        if (ranked_view := _ranked_view(node, pool, usage, rules)) is not None
    ]
    ranked.sort(key=lambda ranked_view: ranked_view[0])
    return NodeView(node, tuple(view for _, view in ranked))


def _ranked_view(
    node: nodes.Node, pool: Pool, usage: Usage, rules: Rules
) -> tuple[tuple[bool, str, str], PoolView] | None:
    """One pool as the node sees it, with the rank it is sorted by; None if the node does not see it."""
    visible = pool.seen_from(node)
    if visible is None:
        return None
    pool_usage = usage.pools.get(pool.key, _UNUSED)
    generation = visible.generation
    tainted = rules.of_devices(pool.key, generation.devices.names) if rules else {}
    view = PoolView(
        name=pool.key[1],
        devices=generation.devices,
        usable=visible.usable,
        is_complete=visible.is_complete,
        problem=visible.problem,
        used=_used(generation, pool_usage),
        shared=_shared(generation, pool_usage),
        counters_left=_counters_left(generation, pool_usage),
        extra_taints={index: ruled.taints for index, ruled in tainted.items()},
        rules={index: ruled.names for index, ruled in tainted.items()},
    )
    has_conditions = bool(generation.waits & visible.usable)
    return (has_conditions, *pool.key), view


def _used(generation: Generation, usage: PoolUsage) -> int:
    mask = 0
    for name in usage.exclusive:
        index = generation.places.get(name)
        if index is not None:
            mask |= 1 << index
    return mask


def _shared(generation: Generation, usage: PoolUsage) -> dict[int, Mapping[str, int]]:
    return {
        generation.places[name]: {
            capacity: nanos for capacity, nanos in amounts.items() if capacity
        }
        for name, amounts in usage.shares.items()
        if name in generation.places
    }


def _counters_left(generation: Generation, usage: PoolUsage) -> dict[str, dict[str, int]]:
    devices = generation.devices
    if not devices.counter_sets:
        return {}
    if usage.is_empty:
        return _full(devices.counter_sets)
    remaining = {name: dict(counters) for name, counters in _full(devices.counter_sets).items()}
    # A device draws on its counters once, however many shares of it are allocated.
    for name in {*usage.exclusive, *usage.shares}:
        index = generation.places.get(name)
        if index is None:
            continue
        for consumption in devices.templates[index].consumes_counters:
            counters = remaining.get(consumption.counter_set)
            if counters is None:
                continue
            for counter, amount in consumption.counters.items():
                if counter in counters:
                    counters[counter] -= amount.value.nanos
    return remaining


_FULL: Final = cache.Memo[int, dict[str, dict[str, int]]](10_000)


def _full(sets: tuple[slices.CounterSet, ...]) -> dict[str, dict[str, int]]:
    """What counter sets hold when nothing is in use; shared, never changed."""
    amounts = _FULL.get(id(sets))
    if amounts is None:
        amounts = {
            one.name: {name: c.value.nanos for name, c in one.counters.items()} for one in sets
        }
        _FULL.put(id(sets), amounts, alive=sets)
    return amounts


def gathered(
    published: Iterable[slices.ResourceSlice], interner: Interner | None = None
) -> dict[PoolKey, Pool]:
    """The pools that a list of slices publishes."""
    interner = interner or Interner()
    pools: dict[PoolKey, Pool] = {}
    for slice_ in published:
        key = (slice_.spec.driver, slice_.spec.pool.name)
        pools.setdefault(key, Pool(key, interner)).put(part_of(interner, slice_))
    return pools
