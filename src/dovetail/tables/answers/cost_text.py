"""The tables of `dovetail cost`: rows by step, budgets, notes; and the same rows as CSV.

Given the answer. An amount of which a part has no price ends with *, one without any price is a dash. Never computes
one, never prints.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.answer.cost import budget_forecast, cost_table
from dovetail.tables import text

SPLIT: Final = cost_table.Split.__struct_fields__
BUDGET_HEADERS: Final = (
    "queue",
    "month",
    "budget",
    "spent",
    "forecast",
    "90 % interval",
    "days seen",
    "state",
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute them


def rows(table: cost_table.CostTable, *, is_wide: bool = False) -> list[str]:
    """The lines of the table; the total last."""
    return text.table(*cells(table, is_wide=is_wide))


def cells(
    table: cost_table.CostTable, *, is_wide: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows; the total last."""
    has_steps = len(table.steps) > 1
    names = table.aggregate or ("all",)
    lines = []
    for step in table.steps:
        start = [timestamps.to_text(step.start)] if has_steps else []
        for row in step.rows:
            keys = list(row.keys.values()) or [row.name]
            figures = _figures(row, is_wide=is_wide)
            if set(figures) != {_hours(0)}:  # a millionth of a GPU is nothing to look at
                lines.append([*start, *keys, *figures])
        if has_steps:
            padding = [""] * (len(names) - 1)
            lines.append([*start, "total", *padding, *_figures(step.total, is_wide=is_wide)])
    padding = [""] * (len(names) - 1)
    start = ["all"] if has_steps else []
    lines.append([*start, "total", *padding, *_figures(table.total, is_wide=is_wide)])
    headers = [*(["from"] if has_steps else []), *names, *_headers(table.currency, is_wide=is_wide)]
    return headers, lines


def notes(table: cost_table.CostTable) -> list[str]:
    """Why figures are not complete, and what their window was."""
    start, end = timestamps.to_text(table.start), timestamps.to_text(table.end)
    until = timestamps.to_text(table.as_of)
    known = f"; known until {until}" if table.as_of < table.end else ""
    return [f"from {start} to {end}{known}", *(note.message for note in table.notes)]


def budget_rows(states: Sequence[budget_forecast.BudgetState]) -> list[str]:
    """One line per budget."""
    currency = states[0].currency if states else ""
    headers = [f"{name} {currency}" if name == "budget" else name for name in BUDGET_HEADERS]
    return text.table(headers, [*map(budget_cells, states)])


def budget_cells(state: budget_forecast.BudgetState) -> list[str]:
    """One line about a budget."""
    interval = ""
    if state.lowest is not None and state.highest is not None:
        interval = f"{state.lowest:,.2f} to {state.highest:,.2f}"
    return [
        state.queue,
        state.month,
        f"{state.budget:,.2f}",
        f"{state.spent:,.2f}{'*' if state.partial else ''}",
        "" if state.forecast is None else f"{state.forecast:,.2f}",
        interval,
        str(state.days_seen),
        state.state,
    ]


def csv_text(table: cost_table.CostTable) -> str:
    """One line per row and step, without totals."""
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator="\n")
    hours = [f"gpuHours.{name}" for name in SPLIT]
    costs = [f"cost.{name}" for name in SPLIT]
    head = ["start", "end", *(table.aggregate or ("all",)), *hours, *costs]
    more = ["currency", "unpricedGpuHours", "waitingGpuHours", "energyKwh", "co2eKg", "partial"]
    writer.writerow([*head, *more])
    for step in table.steps:
        for row in step.rows:
            writer.writerow(list(_csv_cells(table, step, row)))
    return written.getvalue()


def _csv_cells(
    table: cost_table.CostTable, step: cost_table.CostStep, row: cost_table.CostRow
) -> Iterator[str]:
    yield timestamps.to_text(step.start)
    yield timestamps.to_text(step.end)
    for value in row.keys.values() or (row.name,):
        yield _plain(value)
    for name in SPLIT:
        yield f"{getattr(row.gpu_hours, name):.6f}"
    for name in SPLIT:
        yield f"{getattr(row.cost, name):.2f}"
    yield _plain(table.currency)
    yield f"{row.unpriced_gpu_hours:.6f}"
    yield f"{row.waiting_gpu_hours:.6f}"
    yield "" if row.energy_kwh is None else f"{row.energy_kwh:.6f}"
    yield "" if row.co2e_kg is None else f"{row.co2e_kg:.6f}"
    yield _plain("; ".join(row.partial))


def _plain(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) else value


def _headers(currency: str, *, is_wide: bool) -> list[str]:
    headers = ["gpu-hours", "used", "idle", "unmeasured", "unallocated", "unusable"]
    headers += [f"cost {currency}".strip(), "waiting gpu-hours"]
    return [*headers, "kwh", "co2e kg", "partial"] if is_wide else headers


def _figures(row: cost_table.CostRow, *, is_wide: bool) -> list[str]:
    lines = SPLIT[:-1]
    cells = [_hours(row.gpu_hours.total)]
    cells += [_money(row, line) for line in lines]
    cells += [_money(row, "total"), _hours(row.waiting_gpu_hours)]
    if not is_wide:
        return cells
    energy = "" if row.energy_kwh is None else f"{row.energy_kwh:,.3f}"
    carbon = "" if row.co2e_kg is None else f"{row.co2e_kg:,.3f}"
    return [*cells, energy, carbon, "; ".join(row.partial)]


def _hours(hours: float) -> str:
    return f"{hours:,.2f}"


def _money(row: cost_table.CostRow, line: str) -> str:
    """The amount; a dash where none of the GPU-hours has a price, a star where some have none."""
    hours: float = getattr(row.gpu_hours, line)
    amount: float = getattr(row.cost, line)
    if row.unpriced_gpu_hours and row.unpriced_gpu_hours >= row.gpu_hours.total:
        return "-" if hours else f"{amount:,.2f}"
    is_partial = bool(row.partial) and bool(hours)
    return f"{amount:,.2f}{'*' if is_partial else ''}"
