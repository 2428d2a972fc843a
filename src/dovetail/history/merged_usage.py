"""Measurements of a window with those of one allocation and hour added up by the database: a hundredth of the rows.

Given a database with an open transaction. What a holder used is added up only where nothing is missing in between, and
only within the window. Measurements of a GPU as a whole stay as they are: its holders may change within the hour.
"""

from __future__ import annotations

from typing import Final

from dovetail.history import rollup, usage_table
from dovetail.history.database import Database, int_of
from dovetail.history.dictionary import digest_of
from dovetail.history.rollup import UsageRow
from dovetail.model.accounting.records import Millis

SeriesRow = tuple[int, UsageRow]

_COLUMNS: Final = ", ".join(usage_table.COLUMNS[1:])
# Series of GPUs as a whole: those of an allocation without a name.
_OF_GPUS: Final = (
    "SELECT id FROM series WHERE allocation IN (SELECT id FROM texts WHERE digest = ?)"
)
# A whole month's numbers fit: both databases would otherwise give sums a type of their own.
_SUMMED: Final = ", ".join(
    f"CAST(sum({column}) AS BIGINT)"
    for column in ("span", "busy", "energy", "samples", "tensor", "dram")
)
_COUNTED: Final = "count(*), count(busy), count(memory), count(energy), count(tensor), count(dram)"


def rows(database: Database, start: Millis, end: Millis) -> list[SeriesRow]:
    """The measurements that overlap a window, each with its series. Those that reach beyond it are not cut."""
    hours = (rollup.hour_of(start), rollup.hour_of(end - 1))
    nameless = digest_of(b"")
    result = _rows(
        database,
        "hour BETWEEN ? AND ? AND start < ? AND start + span > ?"
        f" AND (start < ? OR start + span > ? OR series IN ({_OF_GPUS}))",
        (*hours, end, start, start, end, nameless),
    )
    query = (
        f"SELECT hour, series, min(start), max(start + span), max(memory), {_SUMMED}, {_COUNTED}"  # noqa: S608
        " FROM usage WHERE hour BETWEEN ? AND ? AND start >= ? AND start + span <= ?"
        f" AND series NOT IN ({_OF_GPUS}) GROUP BY hour, series"
    )
    for merged in database.execute(query, (*hours, start, end, nameless)):
        hour, series, begun, ended, memory, *sums_and_counts = merged
        span, busy, energy, samples, tensor, dram, *counts = sums_and_counts
        whole, *known = map(int_of, counts)
        is_whole = int_of(span) == int_of(ended) - int_of(begun)
        if is_whole and all(count in (0, whole) for count in known):
            values = (begun, span, busy, memory, energy, samples, tensor, dram)
            result.append((int_of(series), usage_table.row_of(values)))
        else:
            result += _rows(
                database,
                "hour = ? AND series = ? AND start >= ? AND start + span <= ?",
                (int_of(hour), int_of(series), start, end),
            )
    return result


def _rows(
    database: Database, condition: str, parameters: tuple[int | bytes, ...]
) -> list[SeriesRow]:
    query = f"SELECT {_COLUMNS} FROM usage WHERE {condition}"  # noqa: S608
    return [
        (int_of(series), usage_table.row_of(values))
        for series, *values in database.execute(query, parameters)
    ]
