"""Asks what GPUs cost, and how budgets stand, as people put the question.

Given where history and prices are, and the words of the question. Raises InputError for what cannot be read. Never
decides what anything costs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.answer.cost import (
    budget_forecast,
    cost_keys,
    cost_ledger,
    cost_table,
    cost_window,
    example_prices,
    gpu_utilisation,
    price_file,
    price_list,
)
from dovetail.ask import recorded_history
from dovetail.files import bounded_files
from dovetail.model.accounting import records

EXAMPLES: Final = "examples"  # as the name of a price file
DEFAULT_AGGREGATE: Final = "namespace"
DEFAULT_CLUSTER: Final = "cluster"
# A recorder at work confirms what it saw every few seconds: only a longer silence is worth a word.
SILENCE: Final = 2 * cost_window.MINUTE


class CostAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a question."""

    window: str
    aggregate: str = DEFAULT_AGGREGATE
    step: str = ""
    cluster: str = DEFAULT_CLUSTER


def prices(location: str | None) -> price_list.PriceList:
    """The price list: that of a file, the examples, or one without prices."""
    if location is None:
        return price_list.PriceList()
    if location == EXAMPLES:
        return example_prices.PRICES
    text = bounded_files.text(location)
    return price_file.read(text, bounded_files.display_name(location))


def question(
    asked: CostAsked, known: price_list.PriceList, now: records.Millis
) -> cost_ledger.Question:
    """What is asked of the records. Raises InputError for words that cannot be read."""
    window = cost_window.parse(asked.window, now)
    step = cost_window.parse_step(asked.step, window) if asked.step else None
    return cost_ledger.Question(
        prices=known,
        steps=cost_window.steps(window, step),
        keys=cost_keys.parse(asked.aggregate),
        cluster=asked.cluster,
    )


def cost(location: str, asked: cost_ledger.Question, now: records.Millis) -> cost_table.CostTable:
    """The table."""
    return table(recorded_history.account(location, asked, now), asked, now)


def table(
    account: recorded_history.Account, asked: cost_ledger.Question, now: records.Millis
) -> cost_table.CostTable:
    """The table, of the question's account."""
    until = account.until
    whole = cost_table.table(account.ledger, asked._replace(prices=account.prices), until)
    if until + SILENCE < min(now, asked.window.end):
        whole = msgspec.structs.replace(whole, notes=(*whole.notes, _ends_early(until)))
    return whole


def utilisation(
    location: str, asked: CostAsked, now: records.Millis
) -> gpu_utilisation.Utilisation:
    """How GPUs were used. Raises InputError for words that cannot be read."""
    put = question(asked, price_list.FREE, now)
    account = recorded_history.account(location, put, now)
    return gpu_utilisation.utilisation(
        account.ledger, put.keys, first=account.first, now=account.until
    )


def budgets(
    location: str, known: price_list.PriceList, now: records.Millis
) -> tuple[budget_forecast.BudgetState, ...]:
    """How the budgets of the price list stand."""
    until = recorded_history.until(location, now)
    asked = budget_forecast.question(known, until)
    account = recorded_history.account(location, asked, until)
    return budget_forecast.budgets(account.ledger, account.prices, first=account.first, now=until)


def _ends_early(until: records.Millis) -> cost_ledger.Note:
    last = timestamps.to_text(cost_window.moment_of(until))
    return cost_ledger.Note(code="api-gap", message=f"nothing was recorded after {last}")
