"""The counters of the process that carries out upgrades. Declarations only, apart from the scheduler's."""

from __future__ import annotations

from typing import Final

from dovetail.telemetry.metrics import ERRORS, Metric

DECLARED: Final = (
    Metric("dovetail_lifecycle_leading", "gauge", "1 while this replica carries out upgrades."),
    Metric("dovetail_lifecycle_passes_total", "counter", "Times all upgrades were looked at."),
    Metric(
        "dovetail_lifecycle_writes_total",
        "counter",
        "What was written for upgrades: status, fence, evict, ...; failed and refused writes too.",
        ("write",),
    ),
    Metric(ERRORS, "counter", "Values that could not be reported, by reason.", ("reason",)),
)
