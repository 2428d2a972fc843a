"""Keeps a store small: rolls measurements up, joins adjacent allocations, drops what is too old or too much.

Given limits and the time. Works in short transactions, each of which leaves a whole history behind, so it may be killed
at any instruction and run again. Sums never change, except by what the limits drop; from when on everything is kept is
stored, so that what was dropped does not come back when it is appended again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from itertools import groupby
from typing import Final

import msgspec

from dovetail.history import database as databases
from dovetail.history import hour_accounts, rollup, schema, usage_table
from dovetail.history.database import Database, Row, int_of
from dovetail.model.accounting.records import MILLISECONDS_PER_HOUR, Millis

MINUTE: Final = 60_000
DAY: Final = 24 * MILLISECONDS_PER_HOUR
_ALLOCATION_COLUMNS: Final = (
    "asset",
    "node",
    "micro_gpu",
    "form",
    "owner",
    "profile",
    "claim",
    "memory_bytes",
)
# Where numbers of texts are stored.
_TEXT_COLUMNS: Final = {
    "owners": ("namespace", "pod", "pod_uid", "controller_kind", "controller", "queue", "labels"),
    "assets": ("asset", "node", "product", "pool", "labels"),
    "allocations": ("allocation", "asset", "node", "profile", "claim"),
    "series": ("asset", "allocation"),
    "waiting": ("pod_uid", "reason"),
    "unusable": ("asset", "why", "node"),
    "promises": ("gang", "cause", "nodes"),
    "decisions": ("kind", "node", "rule", "in_favour_of", "detail"),
    "gaps": ("subject", "why"),
    "prices": ("list", "document"),
}
_OWNER_TABLES: Final = ("allocations", "waiting", "promises", "decisions")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is kept. Times are milliseconds before now."""

    fine: Millis = 2 * MILLISECONDS_PER_HOUR  # measurements as they came
    medium: Millis = 2 * DAY  # in steps of 5 minutes; of an hour after that
    keep: Millis = 400 * DAY
    max_bytes: int = 0  # 0: no bound
    shrinks: bool = False  # whether unused space is given back, which locks the store meanwhile


DEFAULT: Final = Limits()


class Report(msgspec.Struct, frozen=True):
    """What a compaction did."""

    rolled_hours: int
    usage_rows_before: int
    usage_rows_after: int
    joined_allocations: int
    accounted_hours: int
    dropped_rows: int
    kept_from: Millis | None


def compact(
    database: Database,
    now: Millis,
    limits: Limits,
    *,
    watched_until: Millis | None,
    read: hour_accounts.Read,
) -> Report:
    """Does everything that is due."""
    before = _count(database, "usage")
    # Before measurements are rolled up: a whole GPU's then still say which of its holders was busy.
    accounted = _store_accounts(database, now, watched_until, read)
    rolled = _roll_up(database, now, limits)
    joined = _join_allocations(database)
    dropped = _drop_old(database, now - limits.keep)
    if limits.max_bytes:
        dropped += _drop_to_size(database, now, limits.max_bytes)
    if dropped:
        _drop_unused_names(database)
    if limits.shrinks:
        database.shrink()
    return Report(
        rolled_hours=rolled,
        usage_rows_before=before,
        usage_rows_after=_count(database, "usage"),
        joined_allocations=joined,
        accounted_hours=accounted,
        dropped_rows=dropped,
        kept_from=schema.meta(database, schema.KEPT_FROM),
    )


# Roll-ups


def mark_stale(database: Database, hours: Collection[int]) -> None:
    """Measurements of these hours arrived: they are rolled up again."""
    rows = [(hour,) for hour in sorted(hours)]
    database.update_many("DELETE FROM rolled_hours WHERE hour = ?", rows)


def _roll_up(database: Database, now: Millis, limits: Limits) -> int:
    """Rolls up every hour that is due, one transaction each. Returns how many."""
    done = {
        int_of(hour): step for hour, step in database.execute("SELECT hour, step FROM rolled_hours")
    }
    rolled = 0
    for hour in _usage_hours(database):
        end = (hour + 1) * MILLISECONDS_PER_HOUR
        if end > now - limits.fine:
            break
        step = 5 * MINUTE if end > now - limits.medium else MILLISECONDS_PER_HOUR
        if done.get(hour) == step:
            continue
        with databases.writing(database):
            _touch(database)
            _roll_up_hour(database, hour, step)
        rolled += 1
    return rolled


def _usage_hours(database: Database) -> list[int]:
    """The hours with measurements, by jumps: there are far fewer than rows."""
    hours: list[int] = []
    last = -(1 << 60)
    while True:
        [[hour]] = database.execute("SELECT min(hour) FROM usage WHERE hour > ?", (last,))
        if hour is None:
            return hours
        last = int_of(hour)
        hours.append(last)


def _roll_up_hour(database: Database, hour: int, step: int) -> None:
    columns = ", ".join(usage_table.COLUMNS[1:])
    query = f"SELECT {columns} FROM usage WHERE hour = ? ORDER BY series, start"  # noqa: S608
    stored = database.execute(query, (hour,))
    rows: list[Row] = []
    for series, of_series in groupby(stored, key=lambda row: int_of(row[0])):
        fine = (usage_table.row_of(row[1:]) for row in of_series)
        rows.extend((hour, series, *row) for row in rollup.merged(fine, step=step))
    if len(rows) < len(stored):
        database.execute("DELETE FROM usage WHERE hour = ?", (hour,))
        database.insert("usage", usage_table.COLUMNS, rows, on_conflict="")
    statement = "INSERT INTO rolled_hours VALUES (?, ?) ON CONFLICT (hour) DO UPDATE SET step = excluded.step"
    database.execute(statement, (hour, step))


# Allocations


def _join_allocations(database: Database) -> int:
    """Joins an allocation to the one it continues: same id, all else equal, no time between. Returns how many."""
    same = " AND ".join(f"b.{column} = a.{column}" for column in _ALLOCATION_COLUMNS)
    query = (
        "SELECT a.allocation, a.start, b.start, b.until FROM allocations a JOIN allocations b"  # noqa: S608
        f" ON b.allocation = a.allocation AND b.start = a.until AND {same}"
        " WHERE b.until IS NOT NULL AND b.start > a.start ORDER BY b.allocation, b.start DESC"
    )
    with databases.writing(database):
        pairs = [tuple(map(int_of, row)) for row in database.execute(query)]
        if not pairs:
            return 0
        _touch(database)
        # Latest first, so that of three in a row the last joins the second before that joins the first.
        ends: dict[tuple[int, int], int] = {}
        for allocation, start, second, until in pairs:
            ends[allocation, start] = ends.pop((allocation, second), until)
        delete = "DELETE FROM allocations WHERE allocation = ? AND start = ?"
        database.update_many(delete, [(pair[0], pair[2]) for pair in pairs])
        extend = "UPDATE allocations SET until = ? WHERE allocation = ? AND start = ?"
        database.update_many(extend, [(until, *key) for key, until in ends.items()])
    return len(pairs)


# Accounts


def _store_accounts(
    database: Database, now: Millis, watched_until: Millis | None, read: hour_accounts.Read
) -> int:
    """Stores the accounts of hours that are over and were watched to their end. Returns how many."""
    if watched_until is None:
        return 0
    [[first]] = database.execute("SELECT min(start) FROM assets")
    if first is None:
        return 0
    begun = rollup.hour_of(max(int_of(first), schema.meta(database, schema.KEPT_FROM) or 0))
    last = rollup.hour_of(min(now, watched_until))
    stored = hour_accounts.stored_hours(database, begun, last)
    due = [hour for hour in range(begun, last) if hour not in stored]
    for hours in hour_accounts.adjacent(due):
        with databases.writing(database):
            hour_accounts.store_hours(database, read, hours)
    return len(due)


# What is dropped


def _drop_old(database: Database, before: Millis) -> int:
    """Drops what ended before a time, cut to full hours. Returns how many rows."""
    hour = rollup.hour_of(before)
    cutoff = hour * MILLISECONDS_PER_HOUR
    if cutoff <= (schema.meta(database, schema.KEPT_FROM) or 0):
        return 0
    tables = (*schema.INTERVALS, "decisions", "usage")
    with databases.writing(database):
        counts = sum(_count(database, table) for table in tables)
        for table in schema.INTERVALS:
            database.execute(f"DELETE FROM {table} WHERE until <= ?", (cutoff,))  # noqa: S608
        database.execute("DELETE FROM decisions WHERE start < ?", (cutoff,))
        for table in ("usage", "accounts", "rolled_hours"):
            database.execute(f"DELETE FROM {table} WHERE hour < ?", (hour,))  # noqa: S608
        dropped = counts - sum(_count(database, table) for table in tables)
        if dropped:
            schema.set_meta(database, schema.KEPT_FROM, cutoff)
            _touch(database)
    return dropped


def _drop_to_size(database: Database, now: Millis, max_bytes: int) -> int:
    """Drops the oldest days until the rest is small enough; the last day always stays."""
    dropped = 0
    while database.used_bytes() > max_bytes:
        oldest = _oldest(database)
        if oldest is None or oldest + DAY >= now - DAY:
            break
        removed = _drop_old(database, oldest + DAY)
        if not removed:
            break
        dropped += removed
    return dropped


def _oldest(database: Database) -> Millis | None:
    """When the oldest thing ends that could be dropped."""
    [[hour]] = database.execute("SELECT min(hour) FROM usage")
    times = [None if hour is None else int_of(hour) * MILLISECONDS_PER_HOUR]
    for table in schema.INTERVALS:
        [[until]] = database.execute(f"SELECT min(until) FROM {table}")  # noqa: S608
        times.append(None if until is None else int_of(until))
    [[at]] = database.execute("SELECT min(start) FROM decisions")
    times.append(None if at is None else int_of(at))
    return min((time for time in times if time is not None), default=None)


def _drop_unused_names(database: Database) -> None:
    """Drops series, owners and texts that no record refers to any more."""
    with databases.writing(database):
        _touch(database)
        database.execute("DELETE FROM series WHERE id NOT IN (SELECT series FROM usage)")
        used = " UNION ".join(f"SELECT owner FROM {table}" for table in _OWNER_TABLES)  # noqa: S608
        database.execute(f"DELETE FROM owners WHERE id NOT IN ({used})")  # noqa: S608
        used = " UNION ".join(
            f"SELECT {column} FROM {table}"  # noqa: S608
            for table, columns in _TEXT_COLUMNS.items()
            for column in columns
        )
        database.execute(f"DELETE FROM texts WHERE id NOT IN ({used})")  # noqa: S608


def _touch(database: Database) -> None:
    """Makes every connection that wrote before forget what it remembers."""
    schema.set_meta(database, schema.WRITER, secrets.randbits(62))


def _count(database: Database, table: str) -> int:
    [[count]] = database.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
    return int_of(count)
