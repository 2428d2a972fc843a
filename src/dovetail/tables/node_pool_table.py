"""The table `dovetail get pools`: nodes by the pool of their labels, and the GPUs of each pool. Never prints."""

from typing import Any

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.schedule.node import node_fit
from dovetail.tables import listing, text

HEADERS = ("pool", "provider", "nodes", "gpus", "gpu", "spot", "taints")
WIDE_HEADERS = ("label", "names")


def rows(query: listing.Query) -> listing.Listing:
    """One row per pool. Nodes without a pool label are left to `get nodes`."""
    members: dict[tuple[str, str], list[nodes.Node]] = {}
    for stored in query.objects.listed("Node"):
        node = stored.struct
        assert isinstance(node, nodes.Node)
        pool = node_pools.pool_of(node)
        is_wanted = query.test(node.metadata.labels) and query.wants_node(node.metadata.name)
        if pool.name and is_wanted and query.wants_name(pool.name):
            members.setdefault((pool.name, pool.provider), []).append(node)

    ordered = sorted(members.items(), key=lambda item: (text.natural(item[0][0]), item[0][1]))
    table_rows = tuple(_row(key, pool_nodes) for key, pool_nodes in ordered)
    return listing.Listing(
        HEADERS,
        WIDE_HEADERS,
        table_rows,
        lambda: [_document(key, pool_nodes) for key, pool_nodes in ordered],
    )


def _row(key: tuple[str, str], members: list[nodes.Node]) -> listing.Row:
    name, provider = key
    pools = [node_pools.pool_of(node) for node in members]
    return listing.Row(
        f"pool/{name}",
        (
            name,
            provider,
            str(len(members)),
            str(sum(pool.gpu_count for pool in pools)),
            "; ".join(_offers(pools)),
            _spot(pools),
            ",".join(_taints(members)),
        ),
        (
            ",".join(sorted({f"{pool.label}={name}" for pool in pools})),
            ",".join(sorted((node.metadata.name for node in members), key=text.natural)),
        ),
    )


def _spot(pools: list[node_pools.NodePool]) -> str:
    spot = sum(pool.is_spot for pool in pools)
    if spot in (0, len(pools)):
        return "yes" if spot else ""
    return f"{spot} of {len(pools)}"


def _document(key: tuple[str, str], members: list[nodes.Node]) -> dict[str, Any]:
    name, provider = key
    return {
        "name": name,
        "provider": provider,
        "taints": _taints(members),
        "nodes": {
            node.metadata.name: msgspec.to_builtins(node_pools.pool_of(node)) for node in members
        },
    }


def _offers(pools: list[node_pools.NodePool]) -> list[str]:
    """The distinct GPU offers of the nodes."""
    return sorted({pool.offer for pool in pools} - {""})


def _taints(members: list[nodes.Node]) -> list[str]:
    """Taints that every node has, which are those of the pool."""
    taints = [{node_fit.taint_text(taint) for taint in node.spec.taints} for node in members]
    return sorted(set.intersection(*taints)) if taints else []


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    return (object_set.Read(registry.NODE, labels=query.labels),)


TABLE = listing.Table(
    name="pools",
    aliases=("pool",),
    listing=rows,
    reads=_reads,
    next_step="get gpus",
    shows_objects=False,
)
