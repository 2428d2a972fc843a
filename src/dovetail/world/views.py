"""Builds what allocation sees of a node from pools, their use and the taint rules of administrators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.model import nodes, slices
from dovetail.world.devices import Interner
from dovetail.world.pools import Generation, Pool, PoolKey, part_of
from dovetail.world.rules import Rules
from dovetail.world.usage import PoolUsage, Usage
from dovetail.world.view import NodeView, PoolView

_UNUSED: Final = PoolUsage()
_NO_RULES: Final = Rules()


def node_view(
    node: nodes.Node,
    pools: Iterable[Pool],
    usage: Usage,
    rules: Rules = _NO_RULES,
) -> NodeView:
    """The node with every pool it can see, in upstream's order."""
    found = [view for pool in pools if (view := _ranked_view(node, pool, usage, rules)) is not None]
    return NodeView(node, tuple(view for _, view in sorted(found, key=lambda one: one[0])))


def _ranked_view(
    node: nodes.Node, pool: Pool, usage: Usage, rules: Rules
) -> tuple[tuple[bool, str, str], PoolView] | None:
    """One pool from the node with its rank: driver and name, those that wait for conditions last."""
    seen = pool.seen_from(node)
    if seen is None:
        return None
    held = usage.pools.get(pool.key, _UNUSED)
    generation = seen.generation
    ruled = rules.of_devices(pool.key, generation.devices.names) if rules else {}
    view = PoolView(
        name=pool.key[1],
        devices=generation.devices,
        usable=seen.usable,
        is_complete=seen.is_complete,
        problem=seen.problem,
        used=_used(generation, held),
        shared=_shared(generation, held),
        counters_left=_counters_left(generation, held),
        extra_taints={index: one.taints for index, one in ruled.items()},
        rules={index: one.names for index, one in ruled.items()},
    )
    return (bool(generation.waits & seen.usable), *pool.key), view


def _used(generation: Generation, held: PoolUsage) -> int:
    mask = 0
    for name in held.exclusive:
        index = generation.places.get(name)
        if index is not None:
            mask |= 1 << index
    return mask


def _shared(generation: Generation, held: PoolUsage) -> dict[int, Mapping[str, int]]:
    return {
        generation.places[name]: {key: nanos for key, nanos in amounts.items() if key}
        for name, amounts in held.shares.items()
        if name in generation.places
    }


def _counters_left(generation: Generation, held: PoolUsage) -> dict[str, dict[str, int]]:
    devices = generation.devices
    if not devices.counter_sets:
        return {}
    if held.is_empty:
        return _full(devices.counter_sets)
    left = {name: dict(counters) for name, counters in _full(devices.counter_sets).items()}
    for name in {*held.exclusive, *held.shares}:
        index = generation.places.get(name)
        if index is None:
            continue
        for consumption in devices.templates[index].consumes_counters:
            counters = left.get(consumption.counter_set)
            for counter, amount in consumption.counters.items():
                if counters is not None and counter in counters:
                    counters[counter] -= amount.value.nanos
    return left


_FULL: dict[int, tuple[object, dict[str, dict[str, int]]]] = {}


def _full(sets: tuple[slices.CounterSet, ...]) -> dict[str, dict[str, int]]:
    """What counter sets hold when nothing is in use; shared, never changed."""
    known = _FULL.get(id(sets))
    if known is None or known[0] is not sets:
        amounts = {one.name: {name: c.value.nanos for name, c in one.counters.items()} for one in sets}
        if len(_FULL) > 10_000:
            _FULL.clear()
        known = _FULL[id(sets)] = (sets, amounts)
    return known[1]


def gathered(published: Iterable[slices.ResourceSlice], interner: Interner | None = None) -> dict[PoolKey, Pool]:
    """The pools a list of slices makes."""
    interner = interner or Interner()
    pools: dict[PoolKey, Pool] = {}
    for one in published:
        key = (one.spec.driver, one.spec.pool.name)
        pools.setdefault(key, Pool(key, interner)).put(part_of(interner, one))
    return pools
