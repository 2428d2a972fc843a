"""The rows of `dovetail get pools`: nodes gathered by the pool their labels name, with what the pool offers.

Given what the user asked for, returns a `Listing`. Never prints.
"""

from typing import Any

import msgspec

from dovetail.cli import rows, text
from dovetail.model import nodes, pools
from dovetail.schedule import fit
from dovetail.sim import cluster as clusters

HEADERS = ("pool", "provider", "nodes", "gpus", "gpu", "spot", "taints")
WIDE_HEADERS = ("label", "names")


def pool_rows(asked: rows.Asked) -> rows.Listing:
    """One row per pool. Nodes no label puts into a pool are left to `get nodes`."""
    members: dict[tuple[str, str], list[nodes.Node]] = {}
    for stored in clusters.listed(asked.cluster, "Node"):
        node = stored.struct
        assert isinstance(node, nodes.Node)
        found = pools.of(node)
        is_wanted = asked.test(node.metadata.labels) and asked.node in (None, node.metadata.name)
        if found.name and is_wanted and (not asked.names or found.name in asked.names):
            members.setdefault((found.name, found.provider), []).append(node)
    ordered = sorted(members.items(), key=lambda item: (text.natural(item[0][0]), item[0][1]))
    made = [_row(key, found) for key, found in ordered]
    documents = tuple(_document(key, found) for key, found in ordered)
    return rows.Listing(HEADERS, WIDE_HEADERS, tuple(made), documents)


def _row(key: tuple[str, str], members: list[nodes.Node]) -> rows.Row:
    name, provider = key
    seen = [pools.of(node) for node in members]
    spot = sum(one.is_spot for one in seen)
    return rows.Row(
        f"pool/{name}",
        (
            name,
            provider,
            str(len(members)),
            str(sum(one.gpu_count for one in seen)),
            "; ".join(_offers(seen)),
            "" if not spot else "yes" if spot == len(seen) else f"{spot} of {len(seen)}",
            ",".join(_taints(members)),
        ),
        (
            ",".join(sorted({f"{one.label}={name}" for one in seen})),
            ",".join(sorted((node.metadata.name for node in members), key=text.natural)),
        ),
    )


def _document(key: tuple[str, str], members: list[nodes.Node]) -> dict[str, Any]:
    name, provider = key
    return {
        "name": name,
        "provider": provider,
        "taints": _taints(members),
        "nodes": {node.metadata.name: msgspec.to_builtins(pools.of(node)) for node in members},
    }


def _offers(seen: list[pools.NodePool]) -> list[str]:
    """What the nodes offer, each way once."""
    return sorted({one.offer for one in seen} - {""})


def _taints(members: list[nodes.Node]) -> list[str]:
    """Taints every node of the pool has: those that were put on the pool."""
    found = [{fit.taint_text(taint) for taint in node.spec.taints} for node in members]
    return sorted(set.intersection(*found)) if found else []
