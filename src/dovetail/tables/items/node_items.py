"""Nodes as rows: what `dovetail get nodes -o wide` shows, as structs. Never prints."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.tables import listing, node_table, text


class NodeItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node."""

    name: str
    status: str  # Ready, NotReady, Unknown; with SchedulingDisabled where it is cordoned
    pool: str
    gpus: int
    gpu: str  # the product
    cpu: str  # quantities, as the node states what pods may use
    memory: str
    created: str | None
    provider: str
    is_spot: bool
    offers: str
    arch: str
    labels: dict[str, str]


def items_of(objects: object_set.ObjectSet) -> tuple[NodeItem, ...]:
    """All nodes, in natural order."""
    structs = [stored.struct for stored in objects.listed(registry.NODE.name)]
    found = [node for node in structs if isinstance(node, nodes.Node)]
    found.sort(key=lambda node: text.natural(node.metadata.name))
    return tuple(map(item_of, found))


def item_of(node: nodes.Node) -> NodeItem:
    """One node."""
    pool = node_pools.pool_of(node)
    counted = node_table.gpu_count(node)
    is_number = counted.isdecimal() and counted.isascii() and len(counted) < 10
    return NodeItem(
        name=node.metadata.name,
        status=node_table.status_of(node),
        pool=pool.name,
        gpus=int(counted) if is_number else 0,  # a label may say anything
        gpu=pool.accelerator,
        cpu=listing.allocatable(node, "cpu"),
        memory=listing.allocatable(node, "memory"),
        created=node.metadata.creation_timestamp,
        provider=pool.provider,
        is_spot=pool.is_spot,
        offers=pool.offer,
        arch=node.metadata.labels.get("kubernetes.io/arch", ""),
        labels=node.metadata.labels,
    )
