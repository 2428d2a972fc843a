"""How GPUs were used, as a table: GPU-hours by row, the total last.

Given the answer. What was not measured is a dash, never zero. Never computes one, never prints.
"""

from __future__ import annotations

from typing import Final

from dovetail import timestamps
from dovetail.answer.cost import gpu_utilisation
from dovetail.tables import text

HEADERS: Final = (
    "allocated gpu-hours",
    "busy",
    "idle",
    "unmeasured",
    "unallocated",
    "unusable",
    "waiting",
)


def cells(answer: gpu_utilisation.Utilisation) -> tuple[list[str], list[list[str]]]:
    """Headers and rows."""
    rows = [[row.name, *_figures(row)] for row in (*answer.rows, answer.total)]
    return [",".join(answer.aggregate) or "all", *HEADERS], rows


def rows(answer: gpu_utilisation.Utilisation) -> list[str]:
    """The lines of the table."""
    return text.table(*cells(answer))


def notes(answer: gpu_utilisation.Utilisation) -> list[str]:
    """What the window was, and why figures are not complete."""
    start, end = timestamps.to_text(answer.start), timestamps.to_text(answer.end)
    known = ""
    if answer.as_of < answer.end:
        known = f"; known until {timestamps.to_text(answer.as_of)}"
    return [f"from {start} to {end}{known}", *(note.message for note in answer.notes)]


def _figures(row: gpu_utilisation.UtilisationRow) -> list[str]:
    amounts = (
        row.allocated,
        row.busy,
        row.idle,
        row.unmeasured,
        row.unallocated,
        row.unusable,
        row.waiting,
    )
    return ["-" if amount is None else f"{amount:,.2f}" for amount in amounts]
