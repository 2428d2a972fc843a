"""The World as plain data, facts and everything derived from them: two worlds are the same if their dumps are."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model import objects
from dovetail.world.events import Changed, Object
from dovetail.world.view import NodeView, PoolView
from dovetail.world.world import World


def dump(world: World) -> dict[str, Any]:
    """Everything a decision could depend on, in a fixed order, without identities."""
    return {
        "nodes": {name: _tree(node) for name, node in sorted(world.nodes.items())},
        "pods": {id_: _tree(pod) for id_, pod in sorted(world.pods.items())},
        "claims": {"/".join(key): _tree(claim) for key, claim in sorted(world.claims.items())},
        "templates": {"/".join(key): _tree(one) for key, one in sorted(world.templates.items())},
        "classes": {name: _tree(one) for name, one in sorted(world.classes.items())},
        "rules": {name: _tree(one) for name, one in sorted(world.rules.items())},
        "assumed": {
            id_: [
                a.node,
                msgspec.to_builtins(a.request),
                {"/".join(k): _tree(v) for k, v in a.allocations.items()},
                msgspec.to_builtins(a.volumes),
            ]
            for id_, a in sorted(world.assumed.items())
        },
        "storage": world.storage.dump(),
        "queues": {name: _tree(one) for name, one in sorted(world.queues.items())},
        "topologies": {name: _tree(one) for name, one in sorted(world.topologies.items())},
        "namespaces": {name: _tree(one) for name, one in sorted(world.namespaces.items())},
        "images": sorted(world.images.items()),
        "crowd": world.crowd.dump(),
        "held": {name: _tree(one) for name, one in sorted(world.held.items())},
        "pending": sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in world.pending()),
        "free": {name: msgspec.to_builtins(world.free(name)) for name in sorted(world.nodes)},
        "overlaps": [list(map(str, one)) for one in world.overlaps()],
        "views": {name: _view(world.view(name)) for name in sorted(world.nodes)},
    }


def rebuilt(facts: list[Object], assumed_from: World) -> World:
    """A fresh World from a list of objects and another's assumptions and holds: what the other should be equal to."""
    fresh = World()
    for one in facts:
        fresh.apply(Changed(one))
    for id_, assumption in assumed_from.assumed.items():
        fresh.take_over(id_, assumption)
    for name, allocation in assumed_from.held.items():
        fresh.hold(name, allocation)
    return fresh


def _tree(found: msgspec.Struct) -> Any:
    try:
        return objects.tree_of(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # parameters of a claim may hold anything
        return objects.encode_struct(found)


def _view(view: NodeView) -> list[Any]:
    return [_pool(pool) for pool in view.pools]


def _pool(pool: PoolView) -> dict[str, Any]:
    return {
        "driver": pool.driver,
        "name": pool.name,
        "devices": [objects.tree_of(pool.devices.device(i)) for i in range(len(pool.devices))],
        "usable": pool.usable,
        "used": pool.used,
        "shared": {str(i): dict(sorted(amounts.items())) for i, amounts in sorted(pool.shared.items())},
        "counters": {name: dict(sorted(left.items())) for name, left in sorted(pool.counters_left.items())},
        "taints": {str(i): [_tree(t) for t in taints] for i, taints in sorted(pool.extra_taints.items())},
        "rules": {str(i): list(names) for i, names in sorted(pool.rules.items())},
        "complete": pool.is_complete,
        "problem": pool.problem,
    }
