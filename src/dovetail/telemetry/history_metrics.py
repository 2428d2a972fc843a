"""The metrics of the recorder of history, and of budgets, which it alone knows the cost for.

Declarations only, apart from the scheduler's: a recorder that showed the scheduler's names would look like one.
"""

from __future__ import annotations

from typing import Final

from dovetail.model.accounting.records import GapSource
from dovetail.telemetry.metrics import ERRORS, Metric

RECORDING: Final = "dovetail_history_recording"
WATCHED_UNTIL: Final = "dovetail_history_watched_until_timestamp_seconds"
PENDING: Final = "dovetail_history_pending_records"
GAPS: Final = "dovetail_history_gaps_total"
GAP_SECONDS: Final = "dovetail_history_gap_seconds_total"
STORE_ERRORS: Final = "dovetail_history_store_errors_total"
BUDGET: Final = "dovetail_queue_budget"
BUDGET_SPENT: Final = "dovetail_queue_budget_spent"
BUDGET_FORECAST: Final = "dovetail_queue_budget_forecast"

_SOURCES: Final = tuple((source.value,) for source in GapSource)
_OF_BUDGET: Final = ("queue", "currency")

DECLARED: Final = (
    Metric(RECORDING, "gauge", "1 while this replica records, else 0."),
    Metric(
        WATCHED_UNTIL,
        "gauge",
        "Until when all that is stored was seen to be true, in seconds since 1970.",
    ),
    Metric(PENDING, "gauge", "Records that wait for the store."),
    Metric(
        GAPS, "counter", "Times recorded as not watched or not measured.", ("source",), (), _SOURCES
    ),
    Metric(GAP_SECONDS, "counter", "How long these were.", ("source",), (), _SOURCES),
    Metric(STORE_ERRORS, "counter", "Attempts to store that failed."),
    Metric(BUDGET, "gauge", "What the queue may cost this month.", _OF_BUDGET),
    Metric(BUDGET_SPENT, "gauge", "What the queue has cost this month.", _OF_BUDGET),
    Metric(
        BUDGET_FORECAST, "gauge", "What the queue will have cost at the month's end.", _OF_BUDGET
    ),
    Metric(ERRORS, "counter", "Values that could not be reported, by reason.", ("reason",)),
)
