"""Transfers an allocation from one node to another that looks the same: the same positions, other pool names.

Given the results of an allocation and the view it was made on. Transfers only what follows from the node's look: shares
have ids, and node selectors other than the node's name cannot be rewritten. Never allocates.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dovetail import cache
from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.resource import claims
from dovetail.world.views.node_view import NodeView


class Pick(NamedTuple):
    """Devices allocated on one node, and the pools it sees."""

    results: tuple[claims.AllocationResult, ...]
    pools: tuple[str, ...]


def transferable(results: tuple[claims.AllocationResult, ...], view: NodeView) -> Pick | None:
    """The allocation, if it can be transferred."""
    only = _only(view.node.metadata.name)
    for result in results:
        if result.node_selector != only or any(
            device.share_id is not None for device in result.devices.results
        ):
            return None
    return Pick(results, tuple(pool.name for pool in view.pools))


def transferred(
    pick: Pick, node: str, pools: tuple[str, ...]
) -> tuple[claims.AllocationResult, ...]:
    """The same allocation on a node that looks the same and sees these pools."""
    if pools == pick.pools:
        return pick.results
    names = dict(zip(pick.pools, pools, strict=True))
    only = _only(node)
    replace = msgspec.structs.replace
    return tuple(
        claims.AllocationResult(
            devices=claims.DeviceAllocationResult(
                results=tuple(
                    replace(device, pool=names[device.pool]) for device in result.devices.results
                ),
                config=result.devices.config,
            ),
            node_selector=only,
        )
        for result in pick.results
    )


@cache.remembered(16_384)
def _only(name: str) -> node_selectors.NodeSelector:
    requirement = node_selectors.NodeSelectorRequirement(
        key=node_selectors.FIELD_NODE_NAME, operator="In", values=(name,)
    )
    return node_selectors.NodeSelector(
        node_selector_terms=(node_selectors.NodeSelectorTerm(match_fields=(requirement,)),)
    )
