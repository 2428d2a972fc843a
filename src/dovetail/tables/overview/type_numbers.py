"""GPUs by type: how many there are, in use, free, closed, and how many waiting work asks for. Data and sums only.

Given the picture of the fleet. Every GPU counts once: `allocated + free + tainted + reserved` is the total. A GPU of
which a slice or share is in use counts as allocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.answer.capacity import waiting_demand
from dovetail.tables import text
from dovetail.tables.fleet import fleet_memory
from dovetail.tables.gpus import gpu_tiles

ANY_TYPE: Final = ""  # of work that several types could take, or none
ALLOCATED: Final = (gpu_tiles.USED, gpu_tiles.SLICED, gpu_tiles.SHARED)
FREE: Final = (gpu_tiles.FREE, gpu_tiles.PARTS)


class TypeNumbers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The GPUs of one type. An empty type is that of work which is bound to none."""

    type: str
    total: int = 0
    allocated: int = 0
    used: float | None = None  # busy, where metrics say so
    idle: float | None = None  # allocated and not busy
    free: int = 0
    unusable: float | None = None  # of the free ones, by the work that runs and waits; in silicon
    waiting: float = 0.0
    tainted: int = 0
    reserved: int = 0


def numbers(
    whole: fleet_memory.FleetMap,
    *,
    unusable: Mapping[str, float] | None,
    waiting: Mapping[str, float],
) -> tuple[TypeNumbers, ...]:
    """One row for each type, in counting order; then one for waiting work of no single type."""
    states: dict[str, Counter[str]] = {}
    for node in whole.nodes:
        for gpu, product in zip(node.gpus, whole.products[node.name], strict=True):
            states.setdefault(product, Counter())[gpu.state] += 1
    rows = [
        TypeNumbers(
            type=product,
            total=counts.total(),
            allocated=sum(counts[state] for state in ALLOCATED),
            free=sum(counts[state] for state in FREE),
            unusable=None if unusable is None else unusable.get(product, 0.0),
            waiting=waiting.get(product, 0.0),
            tainted=counts[gpu_tiles.TAINTED],
            reserved=counts[gpu_tiles.RESERVED],
        )
        for product, counts in sorted(states.items(), key=lambda item: text.natural(item[0]))
    ]
    if left := round(sum(waiting.values()) - sum(row.waiting for row in rows), 3):
        rows.append(TypeNumbers(type=ANY_TYPE, unusable=0.0, waiting=left))
    return tuple(rows)


def waiting_by_type(
    demands: Iterable[waiting_demand.Demand], whole: fleet_memory.FleetMap
) -> dict[str, float]:
    """The demand by the only type that could take it; of no type where several could, or none."""
    type_of = {node.name: node.type for node in whole.nodes}
    by_type: dict[str, float] = {}
    for each in demands:
        types = {type_of[name] for name in each.nodes if name in type_of}
        product = types.pop() if len(types) == 1 else ANY_TYPE
        by_type[product] = round(by_type.get(product, 0.0) + each.gpus, 3)
    return by_type
