"""Prices that history recorded: each counts for its time, and those of the question count instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.answer.cost import budget_forecast, cost_keys, cost_ledger, cost_table, price_file
from dovetail.answer.cost import price_list as price_lists
from dovetail.answer.cost.cost_window import DAY, HOUR, Window
from dovetail.cli import main
from dovetail.history import stores
from dovetail.model.accounting import records

GPU = records.Asset("GPU-a", "n", "NVIDIA H100", 0)
NOTHING = price_lists.PriceList()


def document(per_hour: float, *more: str, currency: str = "USD") -> str:
    return "\n".join([f"currency: {currency}", f"prices: [{{perHour: {per_hour}}}]", *more])


def recorded(*prices: records.PriceList) -> records.Records:
    return records.Records(assets=(GPU,), prices=prices)


def cost(
    given: records.Records, prices: price_lists.PriceList = NOTHING, *, hours: int = 4
) -> cost_table.CostTable:
    steps = (Window(0, hours * HOUR),)
    question = cost_ledger.Question(prices, steps, cost_keys.parse("node"))
    return cost_table.cost(given, question, hours * HOUR)


CHANGED = recorded(
    records.PriceList("prices.yaml", document(2), HOUR, 3 * HOUR),
    records.PriceList("prices.yaml", document(5), 3 * HOUR),
)


def test_a_change_of_prices_leaves_the_past_as_it_was() -> None:
    table = cost(CHANGED)
    assert (table.currency, table.total.cost.total) == ("USD", 2 * 2 + 5)
    assert table.total.unpriced_gpu_hours == 1, "nothing is known of the first hour"
    assert [note.code for note in table.notes] == ["no-price"]


def test_prices_of_the_question_count_instead() -> None:
    given = price_file.read(document(1), "mine.yaml")
    assert cost(CHANGED, given).total.cost.total == 4


def test_an_entry_counts_within_its_own_dates_and_those_of_its_document() -> None:
    dated = 'currency: USD\nprices: [{perHour: 9, until: "1970-01-01T02:00:00Z"}, {perHour: 1}]'
    table = cost(recorded(records.PriceList("p", dated, HOUR)))
    assert table.total.cost.total == 9 + 2


def test_two_currencies_are_not_added_up() -> None:
    given = recorded(
        records.PriceList("p", document(1), 0, HOUR),
        records.PriceList("p", document(1, currency="EUR"), HOUR),
    )
    with pytest.raises(errors.InputError, match="in EUR since 1970-01-01T01:00:00Z"):
        cost(given)
    assert cost(given, hours=1).currency == "USD"


def test_budgets_are_those_of_the_last_document() -> None:
    old, new = (f"budgets: [{{queue: q, perMonth: {amount}}}]" for amount in (10, 20))
    given = recorded(
        records.PriceList("p", document(1, old), 0, HOUR),
        records.PriceList("p", document(1, new), HOUR),
    )
    [state] = budget_forecast.of_records(given, 2 * DAY)
    assert (state.queue, state.budget) == ("q", 20)


def test_the_command_uses_the_prices_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "history.sqlite")
    with stores.open_store(store, create=True) as opened:
        opened.append(CHANGED, watched_until=DAY)
    command = ["cost", "--history", store, "--window", "1970-01-01T01:00:00Z,1970-01-01T04:00:00Z"]
    assert main.main([*command, "-o", "json"]) in (0, None)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["currency"], answer["total"]["cost"]["total"]) == ("USD", 9)
    assert main.main([*command[:3], "--budgets"]) == 2
    assert "there are no budgets" in capsys.readouterr().err
