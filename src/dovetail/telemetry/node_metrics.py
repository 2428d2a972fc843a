"""The node agent's metrics: names, labels and help texts, in addition to none of the scheduler's."""

from __future__ import annotations

from typing import Final

from dovetail.telemetry.metrics import ERRORS, Metric, doubling_buckets

_OPERATIONS: Final = ("prepare", "unprepare")
_RESULTS: Final = ("ok", "failed")

DECLARED: Final = (
    Metric(
        "dovetail_node_claims_total",
        "counter",
        "Claims the kubelet asked about, by operation and result.",
        ("operation", "result"),
        series=tuple((operation, result) for operation in _OPERATIONS for result in _RESULTS),
    ),
    Metric(
        "dovetail_node_claim_seconds",
        "histogram",
        "One request of the kubelet, from its arrival to its response.",
        ("operation",),
        doubling_buckets(0.005, 14),  # 5 ms to 41 s; the kubelet gives a request 45 s
    ),
    Metric(
        "dovetail_node_restarts_total",
        "counter",
        "Background work of the agent that failed by a defect and was started again.",
        ("work",),
    ),
    Metric(
        "dovetail_node_device_readings_total",
        "counter",
        "Readings of the use of all GPUs: ok, partly with GPUs left out, failed.",
        ("result",),
        series=(("ok",), ("partly",), ("failed",)),
    ),
    Metric(
        "dovetail_node_device_reading_seconds",
        "gauge",
        "How long the last reading of the use of all GPUs took.",
    ),
    Metric(
        "dovetail_node_gpus",
        "gauge",
        "GPUs that the last reading of their use covered, and those it did not.",
        ("state",),
        series=(("read",), ("unread",)),
    ),
    Metric(
        ERRORS,
        "counter",
        "Reports under a name, kind or label that is not declared.",
        ("reason",),
    ),
)
