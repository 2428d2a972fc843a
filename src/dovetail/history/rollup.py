"""Merges measurements of one series into fewer, longer ones that add up to exactly the same.

Given rows in order of time, all within one hour. Rows merge only where one begins when the other ends and both know the
same things, so a roll-up never covers time that was not measured. Sums are integers; nothing is rounded. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dovetail.model.accounting import records
from dovetail.model.accounting.records import Millis


class UsageRow(NamedTuple):
    """One stored measurement. `busy` is the sum of millionths times milliseconds."""

    start: Millis
    span: int
    busy: int | None
    memory: int | None  # the largest
    energy: int | None
    samples: int

    @property
    def end(self) -> Millis:
        """When it ends."""
        return self.start + self.span


def hour_of(at: Millis) -> int:
    """The number of the hour since 1970."""
    return at // records.MILLISECONDS_PER_HOUR


def of_usage(usage: records.Usage) -> UsageRow:
    """A measurement as it is stored, before it is cut at hours."""
    span = usage.end - usage.start
    busy = usage.busy_micro_ms
    if busy is None and usage.busy_micro is not None:
        busy = usage.busy_micro * span
    return UsageRow(
        usage.start, span, busy, usage.memory_bytes, usage.energy_millijoules, usage.samples
    )


def to_usage(row: UsageRow, asset: str, allocation: str) -> records.Usage:
    """The measurement of a row. Its mean is rounded; the exact sum is kept beside it where they differ."""
    mean: int | None = None
    exact: int | None = None
    if row.busy is not None and row.span:
        mean = (2 * row.busy + row.span) // (2 * row.span)
        exact = row.busy if mean * row.span != row.busy else None
    return records.Usage(
        asset=asset,
        allocation=allocation,
        start=row.start,
        end=row.end,
        busy_micro=mean,
        memory_bytes=row.memory,
        energy_millijoules=row.energy,
        samples=row.samples,
        busy_micro_ms=exact,
    )


def by_hour(row: UsageRow) -> Iterator[tuple[int, UsageRow]]:
    """A row cut at full hours: parts add up to it. Samples count in the hour in which the row begins."""
    first, last = hour_of(row.start), hour_of(row.end - 1)
    if first == last:  # nearly every row
        yield first, row
        return
    begun = row.start
    for hour in range(first, last + 1):
        end = min((hour + 1) * records.MILLISECONDS_PER_HOUR, row.end)
        samples = row.samples if hour == first else 0
        busy = _part(row.busy, row, begun, end)
        energy = _part(row.energy, row, begun, end)
        yield hour, UsageRow(begun, end - begun, busy, row.memory, energy, samples)
        begun = end


def clipped(row: UsageRow, start: Millis, end: Millis) -> UsageRow:
    """The part of a row within a window."""
    begun, ended = max(row.start, start), min(row.end, end)
    if (begun, ended) == (row.start, row.end):
        return row
    busy, energy = _part(row.busy, row, begun, ended), _part(row.energy, row, begun, ended)
    return UsageRow(begun, ended - begun, busy, row.memory, energy, row.samples)


def _part(amount: int | None, row: UsageRow, begun: Millis, end: Millis) -> int | None:
    """The part of a sum in a part of the time; parts of adjacent times add up exactly."""
    if amount is None:
        return None
    until_end = amount * (end - row.start) // row.span
    until_begun = amount * (begun - row.start) // row.span
    return until_end - until_begun


def merged(rows: Iterable[UsageRow], *, step: int) -> Iterator[UsageRow]:
    """The rows of one series with those of the same step merged."""
    current: UsageRow | None = None
    for row in rows:
        if current is not None and _belong_together(current, row, step):
            current = _joined(current, row)
            continue
        if current is not None:
            yield current
        current = row
    if current is not None:
        yield current


def _belong_together(first: UsageRow, second: UsageRow, step: int) -> bool:
    return (
        first.start + first.span == second.start
        and first.start // step == second.start // step
        and (first.busy is None) == (second.busy is None)
        and (first.memory is None) == (second.memory is None)
        and (first.energy is None) == (second.energy is None)
    )


def _joined(first: UsageRow, second: UsageRow) -> UsageRow:
    return UsageRow(
        first.start,
        first.span + second.span,
        _sum(first.busy, second.busy),
        None if first.memory is None or second.memory is None else max(first.memory, second.memory),
        _sum(first.energy, second.energy),
        first.samples + second.samples,
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
