"""The table `dovetail get gpus --summary`: one row per type of GPU, with what is free, in use and not to be had.

Every GPU counts in exactly one column, so the columns of a row add up to its GPUs, and the rows to the total. Given the
nodes that the query selects. Never prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dovetail.tables import listing, text
from dovetail.tables.gpus import gpu_table, gpu_tiles

BLOCKS: Final = (8, 4, 2, 1)  # sizes that jobs ask for
TOTAL: Final = "total"
HEADERS: Final = (
    "gpu",
    "nodes",
    "gpus",
    "free",
    "in use",
    "in slices",
    "shared",
    "tainted",
    "reserved",
    "largest free",
    *(f">={size} free" for size in BLOCKS),
)


class TypeSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The GPUs of one type. `nodes_with_free` counts nodes with at least so many free ones, by that number."""

    gpu: str
    nodes: int
    gpus: int
    free: int
    in_use: int
    in_slices: int
    shared: int
    tainted: int
    reserved: int
    largest_free: int  # on one node
    nodes_with_free: dict[int, int]

    @property
    def counted(self) -> int:
        """The GPUs of all states together."""
        states = (self.free, self.in_use, self.in_slices, self.shared, self.tainted, self.reserved)
        return sum(states)


def summaries(shown: Sequence[gpu_tiles.NodeGpus]) -> list[TypeSummary]:
    """One for each type, in counting order."""
    by_type: dict[str, list[list[gpu_tiles.Gpu]]] = {}
    for node in shown:
        of_node: dict[str, list[gpu_tiles.Gpu]] = {}
        for gpu in node.gpus:
            of_node.setdefault(text.product(gpu.product), []).append(gpu)
        for product, gpus in of_node.items():
            by_type.setdefault(product, []).append(gpus)
    ordered = sorted(by_type.items(), key=lambda item: text.natural(item[0]))
    return [_summary(product, per_node) for product, per_node in ordered]


def total_of(shown: Sequence[gpu_tiles.NodeGpus]) -> TypeSummary:
    """All GPUs together; a block is of GPUs on one node, whatever their type."""
    return _summary(TOTAL, [list(node.gpus) for node in shown])


def rows(query: listing.Query) -> listing.Listing:
    """One row per type, and one for all where there are several."""
    shown = gpu_table.wanted_nodes(query)
    by_type = summaries(shown)
    lines = [*by_type, total_of(shown)] if len(by_type) > 1 else by_type

    def documents() -> list[dict[str, Any]]:
        trees: list[dict[str, Any]] = msgspec.to_builtins(by_type, str_keys=True)
        return trees

    return listing.Listing(HEADERS, (), tuple(map(_row, lines)), documents)


def _summary(product: str, per_node: Sequence[Sequence[gpu_tiles.Gpu]]) -> TypeSummary:
    states = Counter(_column(gpu) for gpus in per_node for gpu in gpus)
    free = [sum(gpu.state == gpu_tiles.FREE for gpu in gpus) for gpus in per_node]
    return TypeSummary(
        gpu=product,
        nodes=len(per_node),
        gpus=sum(map(len, per_node)),
        free=states[gpu_tiles.FREE],
        in_use=states[gpu_tiles.USED],
        in_slices=states[gpu_tiles.SLICED],
        shared=states[gpu_tiles.SHARED],
        tainted=states[gpu_tiles.TAINTED],
        reserved=states[gpu_tiles.RESERVED],
        largest_free=max(free, default=0),
        nodes_with_free={size: sum(count >= size for count in free) for size in BLOCKS},
    )


def _column(gpu: gpu_tiles.Gpu) -> str:
    """The state as it is counted: a GPU that can be had only in parts counts with those in parts."""
    if gpu.state != gpu_tiles.PARTS:
        return gpu.state
    return gpu_tiles.SHARED if gpu.offers_shares else gpu_tiles.SLICED


def _row(summary: TypeSummary) -> listing.Row:
    numbers = (
        summary.nodes,
        summary.gpus,
        summary.free,
        summary.in_use,
        summary.in_slices,
        summary.shared,
        summary.tainted,
        summary.reserved,
        summary.largest_free,
        *summary.nodes_with_free.values(),
    )
    return listing.Row(f"gpu/{summary.gpu}", (summary.gpu, *map(str, numbers)))


TABLE = msgspec.structs.replace(gpu_table.TABLE, listing=rows, next_step="get gpus")
