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
    Metric(
        "dovetail_heal_passes_total", "counter", "Times the healer looked at the cluster's GPUs."
    ),
    Metric(
        "dovetail_heal_nodes",
        "gauge",
        "Nodes with faulty GPUs by what the healer does there: draining, requested, stuck, refused, advised.",
        ("state",),
    ),
    Metric(
        "dovetail_heal_remedies_total",
        "counter",
        "Remedies by rung and result: begun, healed, failed, not-needed, or refused by the node.",
        ("rung", "result"),
    ),
    Metric(
        "dovetail_heal_refusals_total",
        "counter",
        "Remedies that are due and that a rule forbids, once for each reason.",
        ("rule",),
    ),
    Metric(
        "dovetail_heal_evictions_total",
        "counter",
        "Evictions before remedies: done, or refused after a dry run had succeeded.",
        ("result",),
    ),
    Metric(
        "dovetail_heal_breaker_open",
        "gauge",
        "1 while the breaker of a pool holds remedies back.",
        ("pool",),
    ),
    Metric(ERRORS, "counter", "Values that could not be reported, by reason.", ("reason",)),
)
