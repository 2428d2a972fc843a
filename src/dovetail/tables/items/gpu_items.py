"""Nodes with GPUs as rows: what `dovetail get gpus` shows, as structs. Never prints."""

from __future__ import annotations

import msgspec

from dovetail.model import node_pools
from dovetail.tables.gpus import gpu_tiles


class GpuNodeItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node with GPUs: how many there are and are free, and the state of each."""

    node: str
    gpu: str  # the product, without its maker's name
    gpus: int
    free: int  # that a pod can have whole
    tiles: str = ""  # one sign for each GPU
    states: tuple[str, ...] = ()  # of each: free, used, parts, sliced, shared, tainted, reserved
    memory_bytes: int = 0  # of one GPU
    offers: str = ""  # whole, mig, shared
    pool: str = ""
    clique: str = ""
    rack: str = ""


def item_of(node: gpu_tiles.NodeGpus) -> GpuNodeItem:
    """One node."""
    return GpuNodeItem(
        node=node.name,
        gpu=node.products,
        gpus=len(node.gpus),
        free=node.free,
        tiles=node.tiles,
        states=tuple(gpu.state for gpu in node.gpus),
        memory_bytes=node.memory_bytes,
        offers=node.offers,
        pool=node.pool,
        clique=node.label(node_pools.CLIQUE),
        rack=node.label(node_pools.RACK),
    )
