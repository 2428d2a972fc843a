"""How many GPUs are free, and how many of these the observed mix of work cannot use, as metrics.

Given the engine's measure of fragmentation and when it was made. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.capacity.fragmentation import Fragmentation
from dovetail.model.exposition import Family, Series

FAMILIES: Final = (
    Family("dovetail_gpus_free", "gauge", "GPUs that no work holds, by type."),
    Family(
        "dovetail_gpus_unusable",
        "gauge",
        "Free GPUs that the work which runs and waits could not use, by type.",
    ),
    Family("dovetail_pool_gpus_free", "gauge", "GPUs that no work holds, by node pool."),
    Family(
        "dovetail_pool_gpus_unusable",
        "gauge",
        "Free GPUs that the work which runs and waits could not use, by node pool.",
    ),
    Family(
        "dovetail_fragmentation_measured_timestamp_seconds",
        "gauge",
        "When unusable GPUs were last measured, in seconds since 1970.",
    ),
)


def series(measured: Fragmentation, at: float) -> Iterator[Series]:
    """All of them."""
    for prefix, label, groups in (
        ("dovetail_gpus", "product", measured.by_type),
        ("dovetail_pool_gpus", "pool", measured.by_pool),
    ):
        for group in groups:
            labels = {label: group.name}
            yield Series(f"{prefix}_free", labels, group.free)
            yield Series(f"{prefix}_unusable", labels, group.unusable)
    yield Series("dovetail_fragmentation_measured_timestamp_seconds", {}, at)
