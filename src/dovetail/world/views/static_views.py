"""Node views built straight from lists, for questions about a single state: no events, no trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices, taint_rules
from dovetail.world.devices.device_usage import Usage
from dovetail.world.devices.taint_rule_index import Rules
from dovetail.world.views import node_view_builder
from dovetail.world.views.node_view import NodeView


def node_views(
    listed: Iterable[nodes.Node],
    published: Iterable[slices.ResourceSlice],
    *,
    in_use: Usage | None = None,
    device_taint_rules: Sequence[taint_rules.DeviceTaintRule] = (),
) -> dict[str, NodeView]:
    """What allocation sees of each node; `device_usage.of_claims` and `of_listing` build `in_use`."""
    pools = node_view_builder.gathered(published)
    usage = in_use or Usage()
    rules = Rules(device_taint_rules)
    return {
        node.metadata.name: node_view_builder.node_view(node, pools.values(), usage, rules)
        for node in listed
    }
