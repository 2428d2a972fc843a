"""The World as plain data, facts and indexes: two worlds are equal if their dumps are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.kubetypes import codec
from dovetail.world.events import Changed, Object, ObjectKey
from dovetail.world.views.node_view import NodeView, PoolView
from dovetail.world.world import Assumption, World


def dump(world: World) -> dict[str, Any]:
    """Everything a decision could depend on, in a fixed order, without object identities."""
    return {
        "nodes": _by_name(world.nodes),
        "pods": _by_name(world.pods),
        "claims": _by_key(world.claims),
        "templates": _by_key(world.templates),
        "classes": _by_name(world.classes),
        "rules": _by_name(world.rules),
        "assumed": {pod_id: _assumption(a) for pod_id, a in sorted(world.assumed.items())},
        "storage": world.storage.dump(),
        "queues": _by_name(world.queues),
        "topologies": _by_name(world.topologies),
        "namespaces": _by_name(world.namespaces),
        "images": sorted(world.images.items()),
        "crowd": world.pod_index.dump(),
        "held": _by_name(world.held),
        "pending": sorted(
            f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in world.pending()
        ),
        "free": {name: msgspec.to_builtins(world.free(name)) for name in sorted(world.nodes)},
        "overlaps": [list(map(str, overlap)) for overlap in world.overlaps()],
        "views": {name: _view(world.view(name)) for name in sorted(world.nodes)},
    }


def rebuilt(facts: list[Object], assumed_from: World) -> World:
    """A fresh World from a list of objects and another World's assumptions and holds; the other should equal it."""
    fresh = World()
    for fact in facts:
        fresh.apply(Changed(fact))
    for pod_id, assumption in assumed_from.assumed.items():
        fresh.adopt_assumption(pod_id, assumption)
    for name, allocation in assumed_from.held.items():
        fresh.hold(name, allocation)
    return fresh


def _by_name(table: Mapping[str, msgspec.Struct]) -> dict[str, Any]:
    return {name: _tree(stored) for name, stored in sorted(table.items())}


def _by_key(table: Mapping[ObjectKey, msgspec.Struct]) -> dict[str, Any]:
    return {"/".join(key): _tree(stored) for key, stored in sorted(table.items())}


def _assumption(assumption: Assumption) -> list[Any]:
    allocations = {"/".join(key): _tree(value) for key, value in assumption.allocations.items()}
    return [
        assumption.node,
        msgspec.to_builtins(assumption.request),
        allocations,
        msgspec.to_builtins(assumption.volumes),
    ]


def _tree(struct: msgspec.Struct) -> Any:
    try:
        return codec.tree_of(struct)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return codec.encode_struct(struct)  # opaque parameters of a claim may hold any bytes


def _view(view: NodeView) -> list[Any]:
    return [_pool(pool) for pool in view.pools]


def _pool(pool: PoolView) -> dict[str, Any]:
    shared = {str(index): _sorted(amounts) for index, amounts in sorted(pool.shared.items())}
    counters = {name: _sorted(amounts) for name, amounts in sorted(pool.counters_left.items())}
    taints = {
        str(index): [_tree(taint) for taint in taints]
        for index, taints in sorted(pool.extra_taints.items())
    }
    return {
        "driver": pool.driver,
        "name": pool.name,
        "devices": [codec.tree_of(pool.devices.device(i)) for i in range(len(pool.devices))],
        "usable": pool.usable,
        "used": pool.used,
        "shared": shared,
        "counters": counters,
        "taints": taints,
        "rules": {str(index): list(names) for index, names in sorted(pool.rules.items())},
        "complete": pool.is_complete,
        "problem": pool.problem,
    }


def _sorted(amounts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(amounts.items()))
