"""Alerts about the record of the past and what it costs: a recorder that stopped, gaps, budgets."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules.rule import Alert, Group, Severity

GROUP: Final = Group(
    name="dovetail-history",
    rules=(
        Alert(
            name="DovetailHistoryStopped",
            # Over a day, so that a recorder that is gone counts, and a cluster without one does not.
            expr=(
                "time() - max(max_over_time(dovetail_history_watched_until_timestamp_seconds[1d]))"
                " > 600"
            ),
            hold="5m",
            severity=Severity.WARNING,
            summary="History has not been recorded for {{ $value | humanizeDuration }}.",
            description=(
                "The recorder is down, cannot store, or does not watch the API server: what happens to GPUs"
                " meanwhile becomes a gap, and costs of that time are partial."
            ),
        ),
        Alert(
            name="DovetailHistoryGaps",
            expr="sum by (source) (increase(dovetail_history_gap_seconds_total[1d])) > 3600",
            severity=Severity.WARNING,
            summary="History lacks {{ $value | humanizeDuration }} of the last day ({{ $labels.source }}).",
            description=(
                "Times without a watch (source api) or without samples (source metrics) add up to more than an"
                " hour in a day. Costs that touch them are marked partial."
            ),
        ),
        Alert(
            name="QueueBudgetForecast",
            expr=("dovetail_queue_budget_forecast > on (queue, currency) dovetail_queue_budget"),
            hold="1h",
            severity=Severity.WARNING,
            summary="Queue {{ $labels.queue }} will exceed its budget this month.",
            description=(
                "At the pace of the last days the month will have cost {{ $value | humanize }}"
                " {{ $labels.currency }}, more than the budget of queue {{ $labels.queue }}."
            ),
        ),
    ),
)
