"""Decides what is ours to give out: nodes by label or taint, devices by the DeviceTaintRules that mark them.

Given the operator's ownership settings. To other schedulers our rules are taints; to us they are none, and devices that
none of them marks cannot be allocated, whatever a claim tolerates. Never reads pods.
"""

from __future__ import annotations

from dovetail.kubetypes.core import nodes
from dovetail.model import policy
from dovetail.world.views.node_view import NodeView, PoolView


def is_ours(node: nodes.Node, ownership: policy.Ownership) -> bool:
    """Whether pods may be placed on the node."""
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in ownership.node_labels.items()):
        return False
    key = ownership.node_taint
    return not key or any(taint.key == key for taint in node.spec.taints)


def seen_as_owner(view: NodeView, rules: tuple[str, ...]) -> NodeView:
    """The node's devices as the owner of those that these rules mark sees them."""
    return view._replace(pools=tuple(_pool(pool, frozenset(rules)) for pool in view.pools))


def _pool(pool: PoolView, rules: frozenset[str]) -> PoolView:
    marked = sum(1 << index for index, names in pool.rules.items() if not rules.isdisjoint(names))
    taints = {
        index: tuple(
            taint
            for taint, name in zip(pool.extra_taints[index], names, strict=True)
            if name not in rules
        )
        for index, names in pool.rules.items()
    }
    return pool._replace(
        barred=pool.usable & ~marked,
        extra_taints={index: some for index, some in taints.items() if some},
    )
