"""Adds up GPU time by namespace, queue and product, hour by hour, so that a month is answered without its samples.

Given a database with an open transaction. Totals of an hour are stored once the hour is over and everything in it was
watched; what arrives later makes them stale, and stale hours are added up again from the records. The same question
gives the same answer with and without stored totals. A measurement counts for the allocation it is of while that lasts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from dovetail.history import rollup, usage_table
from dovetail.history.database import Database, int_of
from dovetail.history.dictionary import Dictionary
from dovetail.history.rollup import UsageRow
from dovetail.model.accounting import records
from dovetail.model.accounting.records import MILLISECONDS_PER_HOUR, Millis

HOURS_AT_ONCE: Final = 48  # that are added up in one pass over the allocations
_COLUMNS: Final = (
    "hour",
    "namespace",
    "queue",
    "product",
    "allocated",
    "measured",
    "busy",
    "energy",
)

Group = tuple[int, int, int]  # namespace, queue, product, each by number


class Total(msgspec.Struct, frozen=True):
    """What one group held and used. Micro-GPU times milliseconds."""

    namespace: str
    queue: str
    product: str
    allocated_micro_ms: int
    measured_micro_ms: int  # of this, what was measured
    busy_micro_ms: int  # of the measured part, what was in use
    energy_millijoules: int


class Sums(NamedTuple):
    """The numbers of a total."""

    allocated: int = 0
    measured: int = 0
    busy: int = 0
    energy: int = 0

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        return Sums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _Held(NamedTuple):
    start: Millis
    end: Millis
    micro_gpu: int
    group: Group


def mark_stale(database: Database, hours: Collection[int]) -> None:
    """Measurements of these hours changed."""
    rows = [(hour,) for hour in sorted(hours)]
    database.update_many("DELETE FROM total_hours WHERE hour = ?", rows)
    database.update_many("DELETE FROM rolled_hours WHERE hour = ?", rows)


def mark_stale_from(database: Database, hour: int) -> None:
    """Allocations changed from this hour on."""
    database.execute("DELETE FROM total_hours WHERE hour >= ?", (hour,))


def totals(
    database: Database,
    names: Dictionary,
    start: Millis,
    end: Millis,
    *,
    watched_until: Millis | None,
) -> tuple[Total, ...]:
    """The totals of a window, largest first."""
    sums: dict[Group, Sums] = defaultdict(Sums)
    first = -(-start // MILLISECONDS_PER_HOUR)
    last = end // MILLISECONDS_PER_HOUR
    stored = stored_hours(database, first, last)
    for namespace, queue, product, *numbers in database.execute(
        "SELECT t.namespace, t.queue, t.product, sum(t.allocated), sum(t.measured), sum(t.busy), sum(t.energy)"
        " FROM totals t JOIN total_hours h ON h.hour = t.hour WHERE t.hour >= ? AND t.hour < ?"
        " GROUP BY t.namespace, t.queue, t.product",
        (first, last),
    ):
        group = (int_of(namespace), int_of(queue), int_of(product))
        sums[group] = Sums(*(int(str(number)) for number in numbers))

    for begun, ended in _ranges_without(stored, start, end):
        by_hour = computed(database, begun, ended, watched_until=watched_until)
        for groups in by_hour.values():
            for group, part in groups.items():
                sums[group] = sums[group].plus(part)
    return _named(names, sums)


def stored_hours(database: Database, first: int, last: int) -> set[int]:
    """The hours of a range whose totals are stored and up to date."""
    query = "SELECT hour FROM total_hours WHERE hour >= ? AND hour < ?"
    return {int_of(hour) for [hour] in database.execute(query, (first, last))}


def store_hours(database: Database, hours: Collection[int], *, watched_until: Millis) -> None:
    """Stores the totals of some adjacent hours, within the transaction that is open."""
    first, last = min(hours), max(hours) + 1
    by_hour = computed(
        database,
        first * MILLISECONDS_PER_HOUR,
        last * MILLISECONDS_PER_HOUR,
        watched_until=watched_until,
    )
    database.execute("DELETE FROM totals WHERE hour >= ? AND hour < ?", (first, last))
    rows = [
        (hour, *group, *sums)
        for hour, groups in by_hour.items()
        for group, sums in groups.items()
        if any(sums)
    ]
    database.insert("totals", _COLUMNS, rows, on_conflict="")
    database.insert(
        "total_hours",
        ("hour",),
        [(hour,) for hour in range(first, last)],
        on_conflict="ON CONFLICT (hour) DO NOTHING",
    )


def computed(
    database: Database, start: Millis, end: Millis, *, watched_until: Millis | None
) -> dict[int, dict[Group, Sums]]:
    """The totals of a window by hour, from the records themselves. Open allocations count while they were watched."""
    by_hour: dict[int, dict[Group, Sums]] = defaultdict(lambda: defaultdict(Sums))
    held = _held(database, start, end, watched_until=watched_until)
    for intervals in held.values():
        for interval in intervals:
            begun, ended = max(interval.start, start), min(interval.end, end)
            for hour, milliseconds in _hours(begun, ended):
                groups = by_hour[hour]
                amount = Sums(allocated=interval.micro_gpu * milliseconds)
                groups[interval.group] = groups[interval.group].plus(amount)
    for hour, allocation, row in _measured(database, start, end):
        groups = by_hour[hour]
        for interval in held.get(allocation, ()):
            if interval.start < row.end and interval.end > row.start:
                amount = _used(rollup.clipped(row, interval.start, interval.end), interval)
                groups[interval.group] = groups[interval.group].plus(amount)
    return by_hour


def _held(
    database: Database, start: Millis, end: Millis, *, watched_until: Millis | None
) -> dict[int, list[_Held]]:
    """Allocations of a window, by number of the allocation."""
    products = {
        int_of(asset): int_of(product)
        for asset, product in database.execute("SELECT asset, product FROM assets ORDER BY start")
    }
    [[nothing]] = database.execute("SELECT coalesce(min(id), 0) FROM texts WHERE text = ''")
    held: dict[int, list[_Held]] = defaultdict(list)
    for allocation, begun, ended, asset, micro_gpu, namespace, queue in database.execute(
        "SELECT a.allocation, a.start, a.until, a.asset, a.micro_gpu, o.namespace, o.queue"
        " FROM allocations a JOIN owners o ON o.id = a.owner"
        " WHERE a.start < ? AND (a.until IS NULL OR a.until > ?) ORDER BY a.allocation, a.start",
        (end, start),
    ):
        last = int_of(ended) if ended is not None else watched_until
        product = products.get(int_of(asset), int_of(nothing))
        group = (int_of(namespace), int_of(queue), product)
        interval = _Held(
            int_of(begun), last if last is not None else int_of(begun), int_of(micro_gpu), group
        )
        held[int_of(allocation)].append(interval)
    return held


def _used(row: UsageRow, interval: _Held) -> Sums:
    """What a measurement within an allocation adds. Parts of a GPU are rounded down, row by row."""
    return Sums(
        measured=0 if row.busy is None else interval.micro_gpu * row.span,
        busy=(row.busy or 0) * interval.micro_gpu // records.MICRO_GPU,
        energy=row.energy or 0,
    )


def _measured(
    database: Database, start: Millis, end: Millis
) -> Iterator[tuple[int, int, UsageRow]]:
    columns = ", ".join(f"u.{column}" for column in usage_table.COLUMNS[2:])
    query = (
        f"SELECT u.hour, s.allocation, {columns} FROM usage u JOIN series s ON s.id = u.series"  # noqa: S608
        " WHERE u.hour BETWEEN ? AND ? AND u.start < ? AND u.start + u.span > ?"
    )
    hours = (rollup.hour_of(start), rollup.hour_of(end - 1))
    for hour, allocation, *values in database.execute(query, (*hours, end, start)):
        row = rollup.clipped(usage_table.row_of(values), start, end)
        yield int_of(hour), int_of(allocation), row


def _hours(start: Millis, end: Millis) -> Iterator[tuple[int, int]]:
    """How many milliseconds of each hour an interval has."""
    while start < end:
        hour = rollup.hour_of(start)
        until = min((hour + 1) * MILLISECONDS_PER_HOUR, end)
        yield hour, until - start
        start = until


def _ranges_without(
    stored: Collection[int], start: Millis, end: Millis
) -> Iterator[tuple[Millis, Millis]]:
    """The parts of a window outside stored hours, each at most some hours long."""
    hours = [
        hour
        for hour in range(start // MILLISECONDS_PER_HOUR, -(-end // MILLISECONDS_PER_HOUR))
        if hour not in stored
    ]
    for part in adjacent(hours):
        begun = max(part[0] * MILLISECONDS_PER_HOUR, start)
        ended = min((part[-1] + 1) * MILLISECONDS_PER_HOUR, end)
        yield begun, ended


def adjacent(hours: Iterable[int]) -> Iterator[list[int]]:
    """Hours in runs of adjacent ones, each at most some hours long."""
    for _, run in groupby(enumerate(hours), key=lambda place: place[1] - place[0]):
        listed = [hour for _, hour in run]
        for place in range(0, len(listed), HOURS_AT_ONCE):
            yield listed[place : place + HOURS_AT_ONCE]


def _named(names: Dictionary, sums: dict[Group, Sums]) -> tuple[Total, ...]:
    texts = names.texts({number for group in sums for number in group})
    totals_ = [
        Total(texts.get(namespace, ""), texts.get(queue, ""), texts.get(product, ""), *numbers)
        for (namespace, queue, product), numbers in sums.items()
        if any(numbers)
    ]
    return tuple(
        sorted(
            totals_,
            key=lambda each: (-each.allocated_micro_ms, each.namespace, each.queue, each.product),
        )
    )
