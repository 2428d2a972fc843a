"""Answers about recorded GPUs that people can look at: structs of `answer/`, with text and HTML for notebooks.

Each class adds no field, so its JSON is that of the struct it extends. Immutable. Never computes an answer.
"""

from __future__ import annotations

from typing import Any

from dovetail.answer.cost import budget_forecast, cost_table, gpu_utilisation
from dovetail.answer.right_size import right_size_answer
from dovetail.model import plaintext
from dovetail.sdk import html_text, result_table
from dovetail.sdk.result_table import Columns
from dovetail.tables.answers import cost_text, right_size_text, utilisation_text


class Cost(cost_table.CostTable, frozen=True, kw_only=True, rename="camel"):
    """What GPUs cost, by step and row."""

    def to_dict(self) -> dict[str, Any]:
        """As `dovetail cost -o json` prints it."""
        return result_table.plain_tree(self)

    def to_csv(self) -> str:
        """As `dovetail cost -o csv` prints it."""
        return cost_text.csv_text(self)

    def to_text(self, *, wide: bool = False) -> str:
        """As `dovetail cost` prints it; `wide` as with `-o wide`."""
        return _text([*cost_text.rows(self, is_wide=wide), *cost_text.notes(self)])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return _html(cost_text.cells(self), cost_text.notes(self))


class Utilisation(gpu_utilisation.Utilisation, frozen=True, kw_only=True, rename="camel"):
    """How GPUs were used, by row; by step in `steps`."""

    def to_dict(self) -> dict[str, Any]:
        """As the dashboard's `/api/v1/utilisation` answers."""
        return result_table.plain_tree(self)

    def to_text(self) -> str:
        """GPU-hours of the whole window, by row."""
        return _text([*utilisation_text.rows(self), *utilisation_text.notes(self)])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return _html(utilisation_text.cells(self), utilisation_text.notes(self))


class RightSizes(right_size_answer.Answer, frozen=True, kw_only=True, rename="camel"):
    """Which smaller devices work could use."""

    def to_dict(self) -> dict[str, Any]:
        """As `dovetail right-size -o json` prints it."""
        return result_table.plain_tree(self)

    def to_text(self, *, wide: bool = False, columns: int = 120) -> str:
        """As `dovetail right-size` prints it; `wide` as with `-o wide`."""
        lines = [*right_size_text.table(self)]
        lines += right_size_text.reasons(self, is_wide=wide, columns=columns)
        return _text([*lines, "", *right_size_text.closing(self)])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return _html(right_size_text.cells(self), right_size_text.closing(self))


def budget_columns() -> Columns[budget_forecast.BudgetState]:
    """As `dovetail cost --budgets`."""
    return Columns(cost_text.BUDGET_HEADERS, cost_text.budget_cells, "budgets")


def _text(lines: list[str]) -> str:
    """Lines for a terminal, which foreign names cannot steer."""
    return "\n".join(map(plaintext.escaped, lines))


def _html(cells: tuple[list[str], list[list[str]]], notes: list[str]) -> str:
    headers, rows = cells
    table = [html_text.table(headers, rows)] if rows else []
    return html_text.document([*table, *map(html_text.paragraph, notes)])
