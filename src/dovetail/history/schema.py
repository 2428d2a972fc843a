"""The tables of the store, and the steps from each older form of them to the present one.

A store knows its version; `migrate` runs what is missing, forward only, all of it in one transaction. A store of a
newer version is refused, and nothing in it is changed. Steps that were released are never edited: a test opens a store
of every older version.
"""

from __future__ import annotations

from typing import Final

from dovetail import errors
from dovetail.history import database as databases
from dovetail.history.database import Database

# 1: dictionaries and records. Names and labels are stored once and referred to by number.
_FIRST: Final = (
    "CREATE TABLE texts (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, text TEXT NOT NULL)",
    """CREATE TABLE owners (
        id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, namespace INTEGER NOT NULL, pod INTEGER NOT NULL,
        pod_uid INTEGER NOT NULL, controller_kind INTEGER NOT NULL, controller INTEGER NOT NULL,
        queue INTEGER NOT NULL, labels INTEGER NOT NULL)""",
    """CREATE TABLE assets (
        asset INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, node INTEGER NOT NULL, product INTEGER NOT NULL,
        count INTEGER NOT NULL, memory_bytes INTEGER NOT NULL, pool INTEGER NOT NULL, is_spot INTEGER NOT NULL,
        labels INTEGER NOT NULL, PRIMARY KEY (asset, start)) WITHOUT ROWID""",
    """CREATE TABLE allocations (
        allocation INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, asset INTEGER NOT NULL,
        node INTEGER NOT NULL, micro_gpu INTEGER NOT NULL, form INTEGER NOT NULL, owner INTEGER NOT NULL,
        profile INTEGER NOT NULL, claim INTEGER NOT NULL, memory_bytes INTEGER NOT NULL,
        PRIMARY KEY (allocation, start)) WITHOUT ROWID""",
    "CREATE INDEX allocations_until ON allocations (until)",
    "CREATE INDEX allocations_owner ON allocations (owner)",
    """CREATE TABLE series (
        id INTEGER PRIMARY KEY, asset INTEGER NOT NULL, allocation INTEGER NOT NULL, UNIQUE (asset, allocation))""",
    # Within an hour, so that samples of all series that arrive together are stored close together.
    """CREATE TABLE usage (
        hour INTEGER NOT NULL, series INTEGER NOT NULL, start INTEGER NOT NULL, span INTEGER NOT NULL,
        busy INTEGER, memory INTEGER, energy INTEGER, samples INTEGER NOT NULL,
        PRIMARY KEY (hour, series, start)) WITHOUT ROWID""",
    """CREATE TABLE waiting (
        pod_uid INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, owner INTEGER NOT NULL,
        micro_gpu INTEGER NOT NULL, reason INTEGER NOT NULL, PRIMARY KEY (pod_uid, start)) WITHOUT ROWID""",
    """CREATE TABLE unusable (
        asset INTEGER NOT NULL, why INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, node INTEGER NOT NULL,
        micro_gpu INTEGER NOT NULL, PRIMARY KEY (asset, why, start)) WITHOUT ROWID""",
    """CREATE TABLE decisions (
        start INTEGER NOT NULL, digest BLOB NOT NULL, kind INTEGER NOT NULL, owner INTEGER NOT NULL,
        node INTEGER NOT NULL, rule INTEGER NOT NULL, in_favour_of INTEGER NOT NULL, detail INTEGER NOT NULL,
        PRIMARY KEY (start, digest)) WITHOUT ROWID""",
    """CREATE TABLE gaps (
        source INTEGER NOT NULL, subject INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER,
        why INTEGER NOT NULL, PRIMARY KEY (source, subject, start)) WITHOUT ROWID""",
    """CREATE TABLE prices (
        list INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, document INTEGER NOT NULL,
        PRIMARY KEY (list, start)) WITHOUT ROWID""",
)
# 2: what each group held and used, hour by hour, so that a month is added up without reading its samples.
_SECOND: Final = (
    """CREATE TABLE totals (
        hour INTEGER NOT NULL, namespace INTEGER NOT NULL, queue INTEGER NOT NULL, product INTEGER NOT NULL,
        allocated INTEGER NOT NULL, measured INTEGER NOT NULL, busy INTEGER NOT NULL, energy INTEGER NOT NULL,
        PRIMARY KEY (hour, namespace, queue, product)) WITHOUT ROWID""",
    "CREATE TABLE total_hours (hour INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE rolled_hours (hour INTEGER NOT NULL PRIMARY KEY, step INTEGER NOT NULL)",
    "CREATE INDEX owners_namespace ON owners (namespace)",
    "CREATE INDEX series_allocation ON series (allocation)",
)
# 3: promised starts; how busy the tensor pipe and the memory interface were.
_THIRD: Final = (
    """CREATE TABLE promises (
        gang INTEGER NOT NULL, start INTEGER NOT NULL, until INTEGER, owner INTEGER NOT NULL,
        promised_start INTEGER, moved_from INTEGER, cause INTEGER NOT NULL, nodes INTEGER NOT NULL,
        PRIMARY KEY (gang, start)) WITHOUT ROWID""",
    "ALTER TABLE usage ADD COLUMN tensor INTEGER",
    "ALTER TABLE usage ADD COLUMN dram INTEGER",
)
# 4: exact accounts of whole hours, of which all questions about cost and use can be answered, in place of totals.
_FOURTH: Final = (
    "DROP TABLE totals",
    "DROP TABLE total_hours",
    "CREATE TABLE accounts (hour INTEGER NOT NULL PRIMARY KEY, account BLOB NOT NULL)",
)
STEPS: Final = (_FIRST, _SECOND, _THIRD, _FOURTH)
VERSION: Final = len(STEPS)

INTERVALS: Final = ("assets", "allocations", "waiting", "unusable", "promises", "gaps", "prices")
_META: Final = "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL)"
_VERSION: Final = "version"
WRITER: Final = "writer"  # which connection wrote last
RECORDER: Final = "recorder"  # which recorder may write
WATCHED_UNTIL: Final = "watched_until"  # when open records were last confirmed
KEPT_FROM: Final = "kept_from"  # what ended before was dropped
_SET: Final = (
    "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


def migrate(database: Database, *, to: int = VERSION) -> None:
    """Brings a store to the present form. Raises StateError if a newer Dovetail wrote it."""
    if version_of(database) == to:
        return
    with databases.writing(database):
        version = version_of(database)  # again: another process may have been faster
        if version == 0:
            database.execute(_META)
        for step in STEPS[version:to]:
            for statement in step:
                database.execute(statement)
        database.execute(_SET, (_VERSION, to))


def version_of(database: Database) -> int:
    """The version of a store, 0 for an empty database. Raises StateError for one that we must not touch."""
    has_meta = database.has_table("meta")
    if not has_meta and (database.has_table("objects") or database.has_table("texts")):
        # Another process may have created the store between the two questions: its tables appear together.
        has_meta = database.has_table("meta")
        if not has_meta:
            raise errors.StateError(
                f"{database.place}: holds tables that are not history's; use another file or database"
            )
    if not has_meta:
        return 0
    version = meta(database, _VERSION)
    if version is None:
        raise errors.StateError(
            f"{database.place}: is not a history of Dovetail; use another file or database"
        )
    if version > VERSION:
        raise errors.StateError(
            f"{database.place}: has version {version}, this Dovetail reads up to {VERSION}; "
            "use the Dovetail that wrote it, or another file"
        )
    return version


def meta(database: Database, name: str) -> int | None:
    """One number about the store itself."""
    rows = database.execute("SELECT value FROM meta WHERE name = ?", (name,))
    if not rows:
        return None
    [[value]] = rows
    if not isinstance(value, int):
        raise errors.StateError(f"{database.place}: its {name} is {value!r}, not a number")
    return value


def set_meta(database: Database, name: str, value: int) -> None:
    """Stores one number about the store itself, within the transaction that is open."""
    database.execute(_SET, (name, value))
