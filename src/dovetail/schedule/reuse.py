"""Carries a choice of devices over from one node to another that looks the same: the same places, other names.

Given results of an allocation and the view it was made on. Only what depends on nothing but the node's look is carried
over: shares carry an identity of their own, and selectors other than the node's name are not ours to move. Never
chooses.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import msgspec

from dovetail.model import claims, selectors
from dovetail.world.view import NodeView


class Pick(NamedTuple):
    """Devices chosen on one node, and the pools it sees."""

    results: tuple[claims.AllocationResult, ...]
    pools: tuple[str, ...]


def kept(results: tuple[claims.AllocationResult, ...], view: NodeView) -> Pick | None:
    """The choice, if it may be carried over."""
    only = _only(view.node.metadata.name)
    for result in results:
        if result.node_selector != only or any(one.share_id is not None for one in result.devices.results):
            return None
    return Pick(results, tuple(pool.name for pool in view.pools))


def moved(pick: Pick, node: str, pools: tuple[str, ...]) -> tuple[claims.AllocationResult, ...]:
    """The same choice on a node that looks the same and sees these pools."""
    if pools == pick.pools:
        return pick.results
    names = dict(zip(pick.pools, pools, strict=True))
    only = _only(node)
    replace = msgspec.structs.replace
    return tuple(
        claims.AllocationResult(
            devices=claims.DeviceAllocationResult(
                results=tuple(replace(one, pool=names[one.pool]) for one in result.devices.results),
                config=result.devices.config,
            ),
            node_selector=only,
        )
        for result in pick.results
    )


@functools.lru_cache(maxsize=16_384)
def _only(name: str) -> selectors.NodeSelector:
    named = selectors.NodeSelectorRequirement(key=selectors.FIELD_NODE_NAME, operator="In", values=(name,))
    return selectors.NodeSelector(node_selector_terms=(selectors.NodeSelectorTerm(match_fields=(named,)),))
