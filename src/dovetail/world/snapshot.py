"""Node views straight from lists, for questions about one moment: no events, no trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.model import nodes, slices, taintrules
from dovetail.world import views
from dovetail.world.rules import Rules
from dovetail.world.usage import Usage
from dovetail.world.view import NodeView


def node_views(
    listed: Iterable[nodes.Node],
    published: Iterable[slices.ResourceSlice],
    *,
    in_use: Usage | None = None,
    device_taint_rules: Sequence[taintrules.DeviceTaintRule] = (),
) -> dict[str, NodeView]:
    """What allocation sees of each node. See `usage.of_claims` and `usage.of_listing` for what is in use."""
    pools = views.gathered(published)
    usage = in_use or Usage()
    rules = Rules(device_taint_rules)
    return {node.metadata.name: views.node_view(node, pools.values(), usage, rules) for node in listed}
