"""The store of history: appends records once, however often they come, and reads those of a window.

A record is known by its key: what it is about, and when it began. Appending it again changes nothing, except that an
open record may end; of two ends the later one stays. So any order of any repetitions gives the same history. One
append is one transaction: all of it is stored, or nothing. Given a path or a URL; never reads a clock.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.answer.cost.cost_window import Window
from dovetail.answer.cost.unpriced_account import Part
from dovetail.history import (
    compaction,
    hour_accounts,
    merged_usage,
    postgres_database,
    record_rows,
    rollup,
    schema,
    sqlite_database,
    usage_table,
)
from dovetail.history import database as databases
from dovetail.history.database import Database, Row, int_of
from dovetail.history.dictionary import CHUNK, Dictionary, chunks, digest_of
from dovetail.model.accounting.records import Gap, Millis, PriceList, Records, Usage

URL_SCHEMES: Final = ("postgresql://", "postgres://")
_INTERVAL: Final = "start < ? AND (until IS NULL OR until > ?)"
_INSTANT: Final = "start < ? AND start >= ?"
# Kinds besides allocations whose records count in accounts.
_ACCOUNTED: Final = (
    record_rows.ASSETS,
    record_rows.WAITING,
    record_rows.UNUSABLE,
    record_rows.GAPS,
)


class SupersededError(errors.StateError):
    """Another recorder has taken the store over."""


class Summary(msgspec.Struct, frozen=True):
    """What a store holds."""

    place: str
    version: int
    size_bytes: int
    first: Millis | None  # when the earliest record begins
    watched_until: Millis | None  # when the recorder last confirmed the open records
    usage_until: Millis | None  # when the latest measurement ends
    rows: Mapping[str, int]
    open_allocations: int
    gaps: tuple[Gap, ...]


class Accounts(NamedTuple):
    """What happened in a window, and the GPUs and gaps that it is about."""

    parts: tuple[Part, ...]
    described: Records  # assets and gaps only


def is_url(location: str) -> bool:
    """Whether a location is a database by URL, not a file."""
    return location.startswith(URL_SCHEMES)


def open_store(location: str, *, create: bool = False) -> Store:
    """The store at a path or PostgreSQL URL, in the present form. Raises NotFound, or StateError."""
    database = _connected(location, create=create)
    try:
        if not create and schema.version_of(database) == 0:
            raise _not_found(database.place)
        return Store(database)
    except BaseException:
        database.close()
        raise


def _connected(location: str, *, create: bool) -> Database:
    if is_url(location):
        return postgres_database.PostgresDatabase(location)
    path = Path(location)
    if not path.parent.is_dir():
        raise errors.NotFound(f"{location}: the folder {path.parent} is not there")
    if not create and not path.exists():
        raise _not_found(location)
    return sqlite_database.SqliteDatabase(path)


def _not_found(place: str) -> errors.NotFound:
    return errors.NotFound(
        f"{place}: no history is there; `dovetail history record --store {place}` writes one"
    )


class Store:
    """One connection to a store. Used by one thread at a time."""

    def __init__(self, database: Database) -> None:
        schema.migrate(database)
        self.place = database.place
        self._database = database
        self._names = Dictionary(database)
        self._usage = usage_table.UsageTable(database, self._names)
        self._writer = secrets.randbits(62)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._database.close()

    # Writing

    def take_over(self) -> int:
        """Makes the caller the one recorder of this store, and returns its number for `append`."""
        recorder = secrets.randbits(62)
        with databases.writing(self._database):
            schema.set_meta(self._database, schema.RECORDER, recorder)
        return recorder

    def append(
        self, batch: Records, *, watched_until: Millis | None = None, recorder: int | None = None
    ) -> None:
        """Stores a batch, durably, all or nothing. `watched_until`: open records were seen to be true until then.

        A recorder that another one has replaced stores nothing: it raises SupersededError.
        """
        _check(batch)
        try:
            with databases.writing(self._database):
                if recorder is not None:
                    self._refuse_superseded(recorder)
                self._take_over()
                self._append(batch)
                if watched_until is not None:
                    latest = schema.meta(self._database, schema.WATCHED_UNTIL)
                    schema.set_meta(
                        self._database,
                        schema.WATCHED_UNTIL,
                        max(watched_until, latest or watched_until),
                    )
        except BaseException:
            self._forget()  # numbers that were given out may have been undone
            raise

    def _refuse_superseded(self, recorder: int) -> None:
        if schema.meta(self._database, schema.RECORDER) != recorder:
            raise SupersededError(
                f"{self.place}: another recorder writes to this history now; only one may at a time"
            )

    def _append(self, batch: Records) -> None:
        changes: list[Millis] = []
        kept_from = schema.meta(self._database, schema.KEPT_FROM)
        if kept_from is not None:
            batch = _since(batch, kept_from)
        for field, kind in record_rows.KINDS.items():
            items = getattr(batch, field)
            if not items:
                continue
            rows = self._rows(kind, items)
            if kind is record_rows.ALLOCATIONS:
                rows, changed = self._new_allocations(rows)
                changes += changed
            elif kind in _ACCOUNTED:
                changes += self._changes(kind, rows)
            self._database.insert(kind.table, kind.columns, rows, on_conflict=_on_conflict(kind))
        if changes:
            hour_accounts.mark_stale_from(self._database, rollup.hour_of(min(changes)))
        if batch.usage:
            hours = self._usage.append(batch.usage)
            hour_accounts.mark_stale(self._database, hours)
            compaction.mark_stale(self._database, hours)

    def _rows(self, kind: record_rows.Kind, items: Sequence[Any]) -> list[Row]:
        """The rows of a batch, one per key: of several, the one that ends last, if any ends."""
        texts = self._names.text_ids({text for item in items for text in kind.texts(item)})
        owners = self._names.owner_ids(item.owner for item in items) if kind.has_owner else {}
        names = record_rows.Names(texts, owners, self._names.owner_digest)
        places = [kind.columns.index(column) for column in kind.key]
        until = kind.columns.index("until") if kind.has_end else None

        by_key: dict[Row, Row] = {}
        for item in items:
            row = kind.row(item, names)
            key = tuple(row[place] for place in places)
            present = by_key.get(key)
            if present is None:
                by_key[key] = row
            elif until is not None and _ends_after(row[until], present[until]):
                by_key[key] = (*present[:until], row[until], *present[until + 1 :])
        return list(by_key.values())

    def _changes(self, kind: record_rows.Kind, rows: Sequence[Row]) -> Iterator[Millis]:
        """When rows change what is stored: at the start of a new record, at the ends of one whose end moves."""
        places = [kind.columns.index(column) for column in kind.key]
        start, until = kind.columns.index("start"), kind.columns.index("until")
        known: dict[tuple[object, ...], Any] = {}
        columns = ", ".join((*kind.key, "until"))
        for part in chunks({row[places[0]] for row in rows}, CHUNK):
            marks = ", ".join("?" * len(part))
            query = f"SELECT {columns} FROM {kind.table} WHERE {kind.key[0]} IN ({marks})"  # noqa: S608
            for stored in self._database.execute(query, part):
                known[stored[:-1]] = stored[-1]

        for row in rows:
            key = tuple(row[place] for place in places)
            if key not in known:
                yield int_of(row[start])
            elif row[until] is not None and row[until] != known[key]:
                yield min(int_of(end) for end in (row[until], known[key]) if end is not None)

    def _new_allocations(self, rows: Sequence[Row]) -> tuple[list[Row], list[Millis]]:
        """The rows without those that were joined to an earlier one; and when they change what is stored.

        That is the start of a new allocation, the end of a known one.
        """
        known: dict[int, dict[int, Any]] = {}  # allocation -> start -> end
        for part in chunks({row[0] for row in rows}, CHUNK):
            places = ", ".join("?" * len(part))
            query = (
                f"SELECT allocation, start, until FROM allocations WHERE allocation IN ({places})"  # noqa: S608
            )
            for allocation, start, until in self._database.execute(query, part):
                known.setdefault(int_of(allocation), {})[int_of(start)] = until

        new: list[Row] = []
        times: list[Millis] = []
        for row in rows:
            start, until = int_of(row[1]), row[2]
            stored = known.get(int_of(row[0]), {})
            if start not in stored and _is_within(start, stored):
                continue
            new.append(row)
            changes = (until, stored[start]) if start in stored else (start,)
            times.extend(at for at in changes if isinstance(at, int))
        return new, times

    def _take_over(self) -> None:
        """Drops what is remembered if another connection wrote since this one did."""
        if schema.meta(self._database, schema.WRITER) != self._writer:
            self._forget()
            schema.set_meta(self._database, schema.WRITER, self._writer)

    def _forget(self) -> None:
        self._names.forget()
        self._usage.forget()

    def compact(
        self, now: Millis, limits: compaction.Limits = compaction.DEFAULT
    ) -> compaction.Report:
        """Rolls up, merges and drops what the limits say. Sums over whole records that stay are unchanged."""
        try:
            return compaction.compact(
                self._database,
                now,
                limits,
                watched_until=self.watched_until(),
                read=self._accounted_records,
            )
        finally:
            self._forget()

    # Reading

    def records(
        self,
        start: Millis,
        end: Millis,
        *,
        namespaces: Collection[str] = (),
        has_usage: bool = True,
    ) -> Records:
        """Everything that overlaps the window, whole. With namespaces, the work of others is left out."""
        with databases.reading(self._database):
            return self._records(start, end, namespaces, has_usage=has_usage)

    def _records(
        self, start: Millis, end: Millis, namespaces: Collection[str], *, has_usage: bool
    ) -> Records:
        fields: dict[str, Any] = {}
        for field, kind in record_rows.KINDS.items():
            condition = _INTERVAL if kind.has_end else _INSTANT
            parameters: list[Any] = [end, start]
            if namespaces and kind.has_owner:
                condition += f" AND owner IN ({_owners_in(namespaces)})"
                parameters += _digests(namespaces)
            fields[field] = tuple(self._read(kind, condition, parameters))
        if has_usage:
            fields["usage"] = tuple(self._read_usage(start, end, namespaces))
        return Records(**fields)

    def open_records(self) -> Records:
        """What has not ended: a recorder goes on from there."""
        with databases.reading(self._database):
            fields = {
                field: tuple(self._read(kind, "until IS NULL", ()))
                for field, kind in record_rows.KINDS.items()
                if kind.has_end
            }
        return Records(**fields)

    def _read(
        self, kind: record_rows.Kind, condition: str, parameters: Sequence[Any]
    ) -> Iterator[Any]:
        columns = ", ".join(kind.columns)
        order = ", ".join(("start", *kind.key))
        query = f"SELECT {columns} FROM {kind.table} WHERE {condition} ORDER BY {order}"  # noqa: S608
        rows = [
            dict(zip(kind.columns, row, strict=True))
            for row in self._database.execute(query, parameters)
        ]
        texts = self._names.texts({row[column] for row in rows for column in kind.text_columns})  # type: ignore[misc]
        owners = self._names.owners({row["owner"] for row in rows}) if kind.has_owner else {}  # type: ignore[misc]
        names = record_rows.Texts(texts, owners)
        return (kind.record(row, names) for row in rows)

    def _read_usage(
        self, start: Millis, end: Millis, namespaces: Collection[str]
    ) -> Iterator[Usage]:
        first, last = rollup.hour_of(start), rollup.hour_of(end - 1)
        columns = ", ".join(usage_table.COLUMNS[1:])
        query = f"SELECT {columns} FROM usage WHERE start < ? AND start + span > ? AND "  # noqa: S608
        parameters: list[Any] = [end, start]
        if namespaces:
            # Hours one by one: each is a jump to the series, where a range would read all of them.
            hours = ", ".join(map(str, range(first, last + 1)))
            query += f"hour IN ({hours}) AND series IN ({_series_in(namespaces)})"
            parameters += _digests(namespaces)
        else:
            query += "hour BETWEEN ? AND ?"
            parameters += [first, last]
        rows = self._database.execute(query + " ORDER BY hour, series, start", parameters)
        return self._usage_of(
            [(int_of(series), usage_table.row_of(values)) for series, *values in rows]
        )

    def _usage_of(self, rows: Sequence[tuple[int, rollup.UsageRow]]) -> Iterator[Usage]:
        """The measurements of rows, each given with its series."""
        pairs = self._pairs({series for series, _ in rows})
        texts = self._names.texts({number for pair in pairs.values() for number in pair})
        for series, row in rows:
            asset, allocation = pairs[series]
            yield rollup.to_usage(row, texts[asset], texts[allocation])

    def _pairs(self, series: Iterable[int]) -> dict[int, tuple[int, int]]:
        pairs: dict[int, tuple[int, int]] = {}
        for part in chunks(sorted(series), CHUNK):
            places = ", ".join("?" * len(part))
            query = f"SELECT id, asset, allocation FROM series WHERE id IN ({places})"  # noqa: S608
            for id_, asset, allocation in self._database.execute(query, part):
                pairs[int_of(id_)] = (int_of(asset), int_of(allocation))
        return pairs

    def prices(self, window: Window) -> tuple[PriceList, ...]:
        """The prices that were in force in a window."""
        return tuple(self._read(record_rows.PRICES, _INTERVAL, (window.end, window.start)))

    def accounts(self, window: Window, cuts: Iterable[Millis] = ()) -> Accounts:
        """What happened in a window, before prices; it is also cut where steps begin or prices change.

        Whole hours come from stored accounts. Open records last to the end of the window: it must not be later than
        when they were last confirmed.
        """
        with databases.reading(self._database):
            edges = (window.end, window.start)
            assets = tuple(self._read(record_rows.ASSETS, _INTERVAL, edges))
            gaps = tuple(self._read(record_rows.GAPS, _INTERVAL, edges))
            parts = hour_accounts.parts(self._database, self._accounted_records, window, cuts)
            return Accounts(tuple(parts), Records(assets=assets, gaps=gaps))

    def _accounted_records(self, start: Millis, end: Millis) -> Records:
        """Everything that counts in the account of a window, with measurements of each hour merged."""
        fields: dict[str, Any] = {
            field: tuple(self._read(kind, _INTERVAL, (end, start)))
            for field, kind in record_rows.KINDS.items()
            if kind in (record_rows.ALLOCATIONS, *_ACCOUNTED)
        }
        rows = merged_usage.rows(self._database, start, end)
        return Records(**fields, usage=tuple(self._usage_of(rows)))

    def watched_until(self) -> Millis | None:
        """When the recorder last confirmed the open records."""
        return schema.meta(self._database, schema.WATCHED_UNTIL)

    def summary(self) -> Summary:
        """What the store holds."""
        with databases.reading(self._database):
            tables = (
                *(kind.table for kind in record_rows.KINDS.values()),
                "usage",
                "texts",
                "owners",
            )
            rows = {table: self._number(f"SELECT count(*) FROM {table}") or 0 for table in tables}  # noqa: S608
            firsts = [
                self._number(f"SELECT min(start) FROM {kind.table}")  # noqa: S608
                for kind in record_rows.KINDS.values()
            ]
            last_hour = self._number("SELECT max(hour) FROM usage")
            newest = "SELECT max(start + span) FROM usage WHERE hour = ?"
            return Summary(
                place=self.place,
                version=schema.version_of(self._database),
                size_bytes=self._database.size_bytes(),
                first=min((first for first in firsts if first is not None), default=None),
                watched_until=self.watched_until(),
                usage_until=None if last_hour is None else self._number(newest, last_hour),
                rows=rows,
                open_allocations=self._number(
                    "SELECT count(*) FROM allocations WHERE until IS NULL"
                )
                or 0,
                gaps=tuple(self._read(record_rows.GAPS, "1 = 1", ())),
            )

    def _number(self, query: str, *parameters: int) -> int | None:
        [[value]] = self._database.execute(query, parameters)
        return None if value is None else int_of(value)


def _check(batch: Records) -> None:
    for field, kind in record_rows.KINDS.items():
        if not kind.has_end:
            continue
        for item in getattr(batch, field):
            if item.end is not None and item.end < item.start:
                raise errors.InputError(f"{field}: ends at {item.end}, begins at {item.start}")


def _since(batch: Records, kept_from: Millis) -> Records:
    """The batch without what ended before history is kept: it was dropped, and must not come back."""
    fields: dict[str, Any] = {}
    for field, kind in record_rows.KINDS.items():
        items = getattr(batch, field)
        if kind.has_end:
            fields[field] = tuple(
                item for item in items if item.end is None or item.end > kept_from
            )
        else:
            fields[field] = tuple(item for item in items if item.at >= kept_from)
    fields["usage"] = tuple(each for each in batch.usage if each.start >= kept_from)
    return Records(**fields)


def _is_within(at: Millis, intervals: Mapping[Millis, Millis | None]) -> bool:
    return any(
        begun < at and ended is not None and at < ended for begun, ended in intervals.items()
    )


def _ends_after(end: Any, other: Any) -> bool:
    return end is not None and (other is None or end > other)


def _on_conflict(kind: record_rows.Kind) -> str:
    key = ", ".join(kind.key)
    if not kind.has_end:
        return f"ON CONFLICT ({key}) DO NOTHING"
    return (
        f"ON CONFLICT ({key}) DO UPDATE SET until = excluded.until WHERE excluded.until IS NOT NULL "
        f"AND ({kind.table}.until IS NULL OR excluded.until > {kind.table}.until)"
    )


def _digests(texts: Collection[str]) -> list[bytes]:
    return [digest_of(text.encode("utf-8", "surrogatepass")) for text in texts]


def _owners_in(namespaces: Collection[str]) -> str:
    places = ", ".join("?" * len(namespaces))
    texts = f"SELECT id FROM texts WHERE digest IN ({places})"  # noqa: S608
    return f"SELECT id FROM owners WHERE namespace IN ({texts})"  # noqa: S608


def _series_in(namespaces: Collection[str]) -> str:
    owners = _owners_in(namespaces)
    held = f"SELECT allocation FROM allocations WHERE owner IN ({owners})"  # noqa: S608
    return f"SELECT id FROM series WHERE allocation IN ({held})"  # noqa: S608
