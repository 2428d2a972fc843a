"""`dovetail cost`: tables, JSON, CSV, budgets, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import running

HISTORY = str(running.EXAMPLES / "cost" / "week.json")
PRICES = str(running.EXAMPLES / "cost" / "prices.yaml")
WEEK = ("--window", "2026-11-02,2026-11-09")


def ran(*words: str) -> running.Run:
    return running.inside(running.ROOT / "no-state", *words)  # costs need no cluster


def cost(*words: str, prices: str | None = PRICES) -> running.Run:
    given = () if prices is None else ("--prices", prices)
    return ran("cost", "--history", HISTORY, *given, *words)


def test_the_table_has_a_row_for_each_namespace_and_a_total() -> None:
    run = cost(*WEEK)
    assert run.code == 0
    assert run.column("NAMESPACE") == ["research", "serving", "edge", "batch", "__idle__", "total"]
    assert run.column("USED")[0] == "93.60"
    assert run.column("COST USD")[-1] == "1,301.80*"
    assert run.column("WAITING GPU-HOURS")[0] == "48.00"
    assert "n3 was not watched" in run.err
    wide = cost(*WEEK, "-o", "wide")
    assert wide.column("KWH")[0] == "20.000"
    assert wide.column("CO2E KG")[0] == "7.600"


def test_json_and_csv_are_the_same_figures() -> None:
    tree: dict[str, Any] = json.loads(cost(*WEEK, "--step", "1d", "-o", "json").out)
    assert tree["currency"] == "USD"
    assert tree["assetCost"] == tree["total"]["exactCost"] == "1301.800000000"
    lines = list(csv.DictReader(io.StringIO(cost(*WEEK, "--step", "1d", "-o", "csv").out)))
    rows = [row | {"start": step["start"]} for step in tree["steps"] for row in step["rows"]]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert (line["start"], line["namespace"]) == (row["start"], row["name"])
        assert float(line["cost.total"]) == row["cost"]["total"]
        assert float(line["gpuHours.unmeasured"]) == row["gpuHours"]["unmeasured"]
    assert round(sum(float(line["cost.total"]) for line in lines), 2) == 1301.80


def test_without_prices_gpu_hours_are_shown_and_no_money() -> None:
    run = cost(*WEEK, prices=None)
    assert run.code == 0
    assert run.column("GPU-HOURS")[-1] == "1,140.33"
    assert set(run.column("COST")) == {"-"}
    assert "no price for Tesla T4: 672.00 GPU-hours of 4 GPUs count no money" in run.err
    assert run.err.rstrip().endswith("--prices examples")


def test_examples_are_used_by_name_only_and_say_so() -> None:
    run = cost(*WEEK, prices="examples")
    assert "prices are placeholders of no provider" in run.err
    assert run.column("COST USD")[-1] != "-"


def test_names_that_a_spreadsheet_would_compute_are_text(tmp_path: Path) -> None:
    recorded = json.loads(Path(HISTORY).read_text())
    recorded["allocations"][0]["owner"]["labels"]["team"] = "=1+1"
    history = tmp_path / "history.json"
    history.write_text(json.dumps(recorded))
    words = ("--prices", PRICES, *WEEK, "--aggregate", "label:team", "-o", "csv")
    run = ran("cost", "--history", str(history), *words)
    assert "'=1+1" in run.out


@pytest.mark.parametrize(
    ("at", "code", "states"),
    [
        ("2026-11-09T00:00:00Z", 1, ["forecast to exceed", "ok"]),
        ("2026-11-01T12:00:00Z", 0, ["ok", "ok"]),
    ],
)
def test_a_check_of_budgets_fails_if_one_will_be_exceeded(
    at: str, code: int, states: list[str]
) -> None:
    run = cost("--check", "--at", at)
    assert (run.code, run.column("STATE")) == (code, states)
    assert cost("--budgets", "--at", at).code == 0
    tree = json.loads(cost("--budgets", "--at", at, "-o", "json").out)
    assert [budget["state"] for budget in tree] == states
    assert "forecast: spent + mean" in run.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--window", "soon"), 'window "soon": expected today'),
        (("--aggregate", "quee"), 'unknown key "quee"; did you mean "queue"?'),
        (("--step", "x"), 'step "x": expected a duration'),
        (("--at", "noon"), '--at "noon": expected a time'),
        (("--check", "-o", "csv"), "budgets are shown as table"),
    ],
)
def test_bad_words_are_refused(words: tuple[str, ...], problem: str) -> None:
    run = cost(*words)
    assert (run.code, run.out) == (2, "")
    assert problem in run.err


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("history", "{", "not JSON"),
        ("history", '{"asset": []}', 'asset: unknown field; did you mean "assets"?'),
        ("prices", "currency: USD\nprices:\n- perHour: x", "line 3: prices[0].perHour"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    name: str, content: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.txt"
    file.write_text(content)
    given = {"history": HISTORY, "prices": PRICES, name: str(file)}
    run = ran("cost", "--history", given["history"], "--prices", given["prices"])
    assert (run.code, run.out) == (2, "")
    assert f"{file}: {problem}" in run.err


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_records_may_come_from_standard_input(words: tuple[str, ...]) -> None:
    given = ("cost", "--history", "-", "--prices", PRICES, "--at", "2026-11-09T00:00:00Z", *words)
    run = running.inside(running.ROOT / "no-state", *given, stdin=Path(HISTORY).read_text())
    assert "research" in run.out


def test_a_missing_file_or_budget_is_said() -> None:
    run = ran("cost", "--history", "no-such-file")
    assert run.code == 2
    assert "no-such-file: cannot be read" in run.err
    assert "there are no budgets" in cost("--check", prices="examples").err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--prices", PRICES), "--prices are for the records of --history: give both"),
        (("--history", HISTORY, "--prices", HISTORY), "unknown field"),
    ],
)
def test_a_dashboard_does_not_start_with_prices_it_cannot_use(
    words: tuple[str, ...], problem: str
) -> None:
    run = ran("dashboard", "--no-open", *words)
    assert run.code == 2
    assert problem in run.err
