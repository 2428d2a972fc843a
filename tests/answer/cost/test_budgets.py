"""Budgets of queues: what is spent, what the month will have cost, and when that is too much."""

from __future__ import annotations

import math
import statistics

import pytest

from dovetail.answer.cost import budget_forecast, cost_ledger, cost_window
from dovetail.model.accounting import records
from tests.answer.cost import accounts

# November 2026: Monday the 2nd is day 2 of 30.
TEAM = accounts.owner("team", "train-0", queue="research")


def prices(per_month: float, queue: str = "research") -> str:
    return f"currency: USD\nprices: [{{perHour: 1}}]\nbudgets: [{{queue: {queue}, perMonth: {per_month}}}]"


def held_daily(hours: list[float]) -> records.Records:
    """One GPU from Monday on; the queue has it for so many hours of each day."""
    allocations = [
        accounts.held("g0", TEAM, 24 * day, 24 * day + amount) for day, amount in enumerate(hours)
    ]
    return records.Records(assets=(accounts.gpu("g0"),), allocations=tuple(allocations))


def state(
    recorded: records.Records, per_month: float, *, hours: float, queue: str = "research"
) -> budget_forecast.BudgetState:
    return state_of(recorded, prices(per_month, queue), accounts.at(hours))


def state_of(recorded: records.Records, text: str, now: int) -> budget_forecast.BudgetState:
    known = accounts.prices(text)
    account = cost_ledger.ledger(recorded, budget_forecast.question(known, now), now)
    first = min(asset.start for asset in recorded.assets)
    (only,) = budget_forecast.budgets(account, known, first=first, now=now)
    return only


def test_the_forecast_goes_on_at_the_mean_of_whole_days() -> None:
    seen = [10.0, 14.0, 12.0, 16.0]
    now = state(held_daily(seen), 1000, hours=96)
    # Four days of 13 on average; 25 days are left on Friday the 6th at 00:00.
    assert now.spent == 52.00
    assert now.days_left == 25.0
    assert now.forecast == (52 + 13 * 25)
    margin = 2.353 * statistics.stdev(seen) * math.sqrt(25 + 25**2 / 4)
    assert now.highest == pytest.approx(377 + margin, abs=0.01)
    assert now.lowest == pytest.approx(377 - margin, abs=0.01)
    assert (now.month, now.days_seen, now.state) == ("2026-11", 4, "ok")


@pytest.mark.parametrize(
    ("per_month", "word", "is_over"),
    [
        (51, "exceeded", True),
        (376, "forecast to exceed", True),
        (378, "at risk", False),
        (600, "ok", False),
    ],
)
def test_budgets_are_compared_with_what_is_spent_then_expected_then_possible(
    per_month: float, word: str, is_over: bool
) -> None:
    now = state(held_daily([10.0, 14.0, 12.0, 16.0]), per_month, hours=96)
    assert (now.state, now.is_over) == (word, is_over)


def test_the_day_that_has_begun_is_spent_but_not_part_of_the_mean() -> None:
    now = state(held_daily([10.0, 10.0, 6.0]), 1000, hours=48 + 6)
    assert now.spent == 26.00
    assert now.days_seen == 2
    assert now.forecast == round(26 + 10 * now.days_left, 2)


def test_without_a_whole_day_there_is_no_forecast() -> None:
    now = state(held_daily([10.0]), 5, hours=12)
    assert (now.forecast, now.highest, now.state) == (None, None, "exceeded")
    assert state(held_daily([10.0]), 50, hours=12).state == "ok"


def test_days_before_the_month_teach_the_mean_and_are_not_spent() -> None:
    """On Tuesday 1 December the last fourteen days are November's."""
    days = [8.0] * 30
    now = state(held_daily(days), 100, hours=29 * 24 + 12)
    assert cost_window.month_of(accounts.at(29 * 24 + 12)).start == accounts.at(29 * 24)
    assert (now.month, now.spent, now.days_seen) == ("2026-12", 8.00, 14)
    assert now.forecast == round(8 + 8 * 30.5, 2)
    assert now.lowest == now.highest == now.forecast  # all days were alike


def test_a_pattern_sums_queues_and_other_queues_do_not_count() -> None:
    other = accounts.owner("team", "other-0", queue="production")
    near = accounts.owner("team", "near-0", queue="research-b")
    recorded = records.Records(
        assets=(accounts.gpu("g0"), accounts.gpu("g1"), accounts.gpu("g2")),
        allocations=(
            accounts.held("g0", TEAM, 0, 4),
            accounts.held("g1", near, 0, 5),
            accounts.held("g2", other, 0, 6),
        ),
    )
    assert state(recorded, 100, hours=24, queue="research*").spent == 9.00
    assert state(recorded, 100, hours=24).spent == 4.00


def test_what_has_no_price_marks_the_budget() -> None:
    only = state_of(
        held_daily([10.0, 10.0]),
        "currency: USD\nprices: [{product: '*A100*', perHour: 1}]\n"
        "budgets: [{queue: research, perMonth: 1}]",
        accounts.at(48),
    )
    assert only.spent == 0.00
    assert only.partial == (f"no price for {accounts.H100}",)
