"""What each budget was spent on so far this month, and what the month will have cost at its end.

Given records, prices with budgets, and the time of the question. The forecast goes on at the mean cost of the last
whole days, at most 14 of them: spent + mean x days left. Its interval holds nine months in ten if days are independent
and alike: quantile x s x sqrt(r + r^2 / n) for r days left and n days seen with standard deviation s. Days that follow
each other resemble each other, so true intervals are wider. Never acts on a budget.
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.answer.cost import (
    cost_keys,
    cost_ledger,
    cost_window,
    price_list,
    recorded_prices,
)
from dovetail.answer.cost.cost_ledger import CURRENCY, Line
from dovetail.answer.cost.cost_window import DAY, Window
from dovetail.model.accounting import records

MOST_DAYS: Final = 14
# Two-sided 90 % quantiles of Student's t for 1 to 13 degrees of freedom.
_FEW: Final = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895)
_QUANTILES: Final = (*_FEW, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771)
METHOD: Final = "spent + mean of the last whole days x days left; 90 % interval by Student's t"

OK: Final = "ok"
AT_RISK: Final = "at risk"  # the interval reaches beyond the budget
FORECAST: Final = "forecast to exceed"
EXCEEDED: Final = "exceeded"


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One budget in the month of the question."""

    queue: str
    currency: str
    month: str
    budget: float
    spent: float
    forecast: float | None  # None: no whole day was seen yet
    lowest: float | None
    highest: float | None
    days_seen: int
    days_left: float
    state: str
    method: str
    partial: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        """Whether it is exceeded, or will be."""
        return self.state in (EXCEEDED, FORECAST)


def needed(now: records.Millis) -> Window:
    """The window whose records the forecast reads."""
    midnight = now - now % DAY
    start = min(cost_window.month_of(now).start, midnight - MOST_DAYS * DAY)
    return Window(start, max(now, start + 1))


def question(prices: price_list.PriceList, now: records.Millis) -> cost_ledger.Question:
    """What is asked of the records: days by queue, this month and a while before."""
    window = needed(now)
    midnight = now - now % DAY
    edges = [*range(window.start, midnight + 1, DAY), now]
    days = tuple(Window(start, end) for start, end in itertools.pairwise(edges) if start < end)
    if not days:
        days = (window,)
    return cost_ledger.Question(prices, days, cost_keys.parse("queue"))


def of_records(recorded: records.Records, now: records.Millis) -> tuple[BudgetState, ...]:
    """The state of every budget of the prices that were recorded last."""
    prices = recorded_prices.in_force(price_list.PriceList(), recorded.prices, needed(now))
    account = cost_ledger.ledger(recorded, question(prices, now), now)
    first = min((asset.start for asset in recorded.assets), default=now)
    return budgets(account, prices, first=first, now=now)


def budgets(
    account: cost_ledger.Ledger,
    prices: price_list.PriceList,
    *,
    first: records.Millis,
    now: records.Millis,
) -> tuple[BudgetState, ...]:
    """The state of every budget of the price list, in its order. `first`: since when there are records of GPUs."""
    return tuple(_state(budget, prices, account, first, now) for budget in prices.budgets)


def _state(
    budget: price_list.Budget,
    prices: price_list.PriceList,
    account: cost_ledger.Ledger,
    first: records.Millis,
    now: records.Millis,
) -> BudgetState:
    month = cost_window.month_of(now)
    midnight = now - now % DAY
    costs = [(step.window, *_cost(step, budget.queue)) for step in account.steps]
    spent = sum(cost for window, cost, _ in costs if window.start >= month.start)
    whole_days = [
        cost
        for window, cost, _ in costs
        if window.start >= first and window.end <= midnight and window.end - window.start == DAY
    ]
    seen = [float(cost) / CURRENCY for cost in whole_days[-MOST_DAYS:]]
    days_left = (month.end - now) / DAY
    amount = budget.nano_per_month / price_list.NANO
    forecast, margin = _forecast(spent / CURRENCY, seen, days_left)
    is_exceeded = spent > budget.nano_per_month * cost_ledger.GPU_HOUR
    reasons: dict[str, None] = {}
    for _, _, why in costs:
        reasons |= why
    return BudgetState(
        queue=budget.queue,
        currency=prices.currency,
        month=datetime.datetime.strftime(cost_window.moment_of(month.start), "%Y-%m"),
        budget=round(amount, 2),
        spent=round(spent / CURRENCY, 2),
        forecast=_rounded(forecast),
        lowest=_rounded(_below(forecast, margin, spent / CURRENCY)),
        highest=_rounded(None if forecast is None or margin is None else forecast + margin),
        days_seen=len(seen),
        days_left=round(days_left, 2),
        state=_word(is_exceeded=is_exceeded, amount=amount, forecast=forecast, margin=margin),
        method=METHOD,
        partial=tuple(reasons),
    )


def _cost(step: cost_ledger.Step, queue: str) -> tuple[int, dict[str, None]]:
    """What work of the queue cost in a step, and why that is not complete."""
    total = 0
    reasons: dict[str, None] = {}
    for key, row in step.rows.items():
        if key[0] != cost_keys.IDLE and fnmatch.fnmatchcase(key[0], queue):
            total += row.money[Line.USED] + row.money[Line.IDLE] + row.money[Line.UNMEASURED]
            reasons |= row.reasons
    return total, reasons


def _forecast(
    spent: float, seen: Sequence[float], days_left: float
) -> tuple[float | None, float | None]:
    """The cost at the month's end, and half the width of its interval."""
    if not seen:
        return None, None
    expected = spent + statistics.fmean(seen) * days_left
    if len(seen) < 2:
        return expected, None
    deviation = statistics.stdev(seen)
    spread = math.sqrt(days_left + days_left**2 / len(seen))
    return expected, _QUANTILES[len(seen) - 2] * deviation * spread


def _below(forecast: float | None, margin: float | None, spent: float) -> float | None:
    """Costs only grow: the month cannot end below what was spent."""
    return None if forecast is None or margin is None else max(spent, forecast - margin)


def _word(*, is_exceeded: bool, amount: float, forecast: float | None, margin: float | None) -> str:
    if is_exceeded:
        return EXCEEDED
    if forecast is None:
        return OK
    if forecast > amount:
        return FORECAST
    return AT_RISK if margin is not None and forecast + margin > amount else OK


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 2)
