"""How the budgets of recorded prices stand, as metrics: what each may cost, has cost, and will have cost.

Given a store and the time. Money alone: measurements of use change nothing of it, and are not read. Never stores.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.answer.cost import budget_forecast
from dovetail.history import stores
from dovetail.model.accounting.records import Millis
from dovetail.ports import meter
from dovetail.telemetry import history_metrics


def states(location: str, now: Millis) -> tuple[budget_forecast.BudgetState, ...]:
    """The budgets of the prices that were recorded last. Takes a while: call it in a thread."""
    window = budget_forecast.needed(now)
    with stores.open_store(location) as store:
        recorded = store.records(window.start, window.end, has_usage=False)
    return budget_forecast.of_records(recorded, now)


def report(known: Iterable[budget_forecast.BudgetState], shown: meter.Meter) -> None:
    """Shows them. Without a whole day there is no forecast yet, and none is shown."""
    for state in known:
        labels = {"queue": state.queue, "currency": state.currency}
        shown.gauge(history_metrics.BUDGET, state.budget, **labels)
        shown.gauge(history_metrics.BUDGET_SPENT, state.spent, **labels)
        if state.forecast is not None:
            shown.gauge(history_metrics.BUDGET_FORECAST, state.forecast, **labels)
