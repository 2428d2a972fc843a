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
    """One stored measurement. `busy`, `tensor` and `dram` are sums of millionths times milliseconds."""

    start: Millis
    span: int
    busy: int | None
    memory: int | None  # the largest
    energy: int | None
    samples: int
    tensor: int | None = None
    dram: int | None = None

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
    return UsageRow(
        usage.start,
        span,
        _amount(usage.busy_micro_ms, usage.busy_micro, span),
        usage.memory_bytes,
        usage.energy_millijoules,
        usage.samples,
        _amount(usage.tensor_micro_ms, usage.tensor_micro, span),
        _amount(usage.dram_micro_ms, usage.dram_micro, span),
    )


def _amount(exact: int | None, mean: int | None, span: int) -> int | None:
    """The sum of a share over the time: the exact one, else by its mean."""
    if exact is not None or mean is None:
        return exact
    return mean * span


def to_usage(row: UsageRow, asset: str, allocation: str) -> records.Usage:
    """The measurement of a row. Means are rounded; the exact sums are kept beside them where they differ."""
    busy, exact_busy = _mean(row.busy, row.span)
    tensor, exact_tensor = _mean(row.tensor, row.span)
    dram, exact_dram = _mean(row.dram, row.span)
    return records.Usage(
        asset=asset,
        allocation=allocation,
        start=row.start,
        end=row.end,
        busy_micro=busy,
        memory_bytes=row.memory,
        energy_millijoules=row.energy,
        samples=row.samples,
        tensor_micro=tensor,
        dram_micro=dram,
        busy_micro_ms=exact_busy,
        tensor_micro_ms=exact_tensor,
        dram_micro_ms=exact_dram,
    )


def _mean(amount: int | None, span: int) -> tuple[int | None, int | None]:
    """The rounded mean, and the sum where the mean does not say it exactly."""
    if amount is None or not span:
        return None, None
    mean = (2 * amount + span) // (2 * span)
    return mean, amount if mean * span != amount else None


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
        yield hour, _cut(row, begun, end)._replace(samples=samples)
        begun = end


def clipped(row: UsageRow, start: Millis, end: Millis) -> UsageRow:
    """The part of a row within a window."""
    begun, ended = max(row.start, start), min(row.end, end)
    if (begun, ended) == (row.start, row.end):
        return row
    return _cut(row, begun, ended)


def _cut(row: UsageRow, begun: Millis, end: Millis) -> UsageRow:
    return row._replace(
        start=begun,
        span=end - begun,
        busy=_part(row.busy, row, begun, end),
        energy=_part(row.energy, row, begun, end),
        tensor=_part(row.tensor, row, begun, end),
        dram=_part(row.dram, row, begun, end),
    )


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
        and (first.tensor is None) == (second.tensor is None)
        and (first.dram is None) == (second.dram is None)
    )


def _joined(first: UsageRow, second: UsageRow) -> UsageRow:
    return UsageRow(
        first.start,
        first.span + second.span,
        _sum(first.busy, second.busy),
        None if first.memory is None or second.memory is None else max(first.memory, second.memory),
        _sum(first.energy, second.energy),
        first.samples + second.samples,
        _sum(first.tensor, second.tensor),
        _sum(first.dram, second.dram),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
