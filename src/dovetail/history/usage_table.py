"""Stores measurements so that none is counted twice: those of one series never overlap.

Given a database with an open write transaction. A measurement that overlaps what is stored of its series is dropped: it
is known already, possibly in a roll-up. In the usual order, each after the last, that costs no look at the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dovetail import errors
from dovetail.history import rollup
from dovetail.history.database import Database, int_of
from dovetail.history.dictionary import Dictionary
from dovetail.history.rollup import UsageRow
from dovetail.model.accounting import records

COLUMNS: Final = (
    "hour",
    "series",
    "start",
    "span",
    "busy",
    "memory",
    "energy",
    "samples",
    "tensor",
    "dram",
)
_CONFLICT: Final = "ON CONFLICT (hour, series, start) DO NOTHING"
MAX_HOURS: Final = 48  # whose ends are remembered

_Number = int | None
_Placed = tuple[int, int, int, int, _Number, _Number, _Number, int, _Number, _Number]


class UsageTable:
    """The measurements of one store."""

    def __init__(self, database: Database, names: Dictionary) -> None:
        self._database = database
        self._names = names
        self._ends: dict[int, dict[int, int]] = {}  # hour -> series -> end of the last measurement

    def forget(self) -> None:
        """Drops what is remembered: another writer may have changed the table."""
        self._ends.clear()

    def append(self, usage: Sequence[records.Usage]) -> set[int]:
        """Stores what is new, and returns the hours it is in."""
        texts = self._names.text_ids(
            {name for each in usage for name in (each.asset, each.allocation)}
        )
        pairs = [(texts[each.asset], texts[each.allocation]) for each in usage]
        ids = self._names.series_ids(pairs)

        rows: list[_Placed] = []
        for each, pair in zip(usage, pairs, strict=True):
            if each.end <= each.start:
                raise errors.InputError(
                    f"usage of {each.asset}: ends at {each.end}, begins at {each.start}"
                )
            parts = rollup.by_hour(rollup.of_usage(each))
            rows.extend((hour, ids[pair], *part) for hour, part in parts)
        rows.sort(key=lambda row: row[:3])

        accepted: list[_Placed] = []
        until: dict[tuple[int, int], int] = {}  # of what is accepted and not yet in the table
        for row in rows:
            hour, series, start, span = row[:4]
            if start >= until.get((hour, series), start) and self._is_new(row):
                until[hour, series] = start + span
                accepted.append(row)
        self._database.insert("usage", COLUMNS, accepted, on_conflict=_CONFLICT)
        return {row[0] for row in accepted}

    def _is_new(self, row: _Placed) -> bool:
        hour, series, start, span = row[:4]
        ends = self._ends.get(hour)
        if ends is None:
            ends = self._load(hour)
        last = ends.get(series)
        if last is None or start >= last:
            ends[series] = start + span
            return True
        return not self._is_known(hour, series, start, start + span)

    def _load(self, hour: int) -> dict[int, int]:
        if len(self._ends) >= MAX_HOURS:
            self._ends.clear()
        query = "SELECT series, max(start + span) FROM usage WHERE hour = ? GROUP BY series"
        rows = self._database.execute(query, (hour,))
        ends = self._ends[hour] = {int_of(series): int_of(end) for series, end in rows}
        return ends

    def _is_known(self, hour: int, series: int, start: int, end: int) -> bool:
        """Whether something stored overlaps. A late measurement: rare, or a repetition."""
        query = "SELECT 1 FROM usage WHERE hour = ? AND series = ? AND start < ? AND start + span > ? LIMIT 1"
        return bool(self._database.execute(query, (hour, series, end, start)))


def row_of(values: Iterable[object]) -> UsageRow:
    """A row of the table from its start on."""
    start, span, busy, memory, energy, samples, tensor, dram = values
    return UsageRow(
        int_of(start),
        int_of(span),
        _number_of(busy),
        _number_of(memory),
        _number_of(energy),
        int_of(samples),
        _number_of(tensor),
        _number_of(dram),
    )


def _number_of(value: object) -> int | None:
    return None if value is None else int_of(value)
