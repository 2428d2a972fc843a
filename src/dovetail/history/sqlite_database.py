"""A store in one SQLite file, in WAL mode: readers never wait for the writer, and a killed writer loses nothing.

Given a path. Commits survive the death of the process at any instruction; after a power cut the last ones may be
missing, never a part of one. Only the owner may read the file. Never waits for another writer for longer than a bound.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.history.database import Row, Value, int_of

BUSY_SECONDS: Final = 30.0  # how long another writer may take
PAUSE_SECONDS: Final = 0.01  # between two tries
CACHE_KIBIBYTES: Final = 65_536


class SqliteDatabase:
    """Implements `database.Database`."""

    def __init__(
        self, path: Path, *, connection: type[sqlite3.Connection] = sqlite3.Connection
    ) -> None:
        self.place = str(path)
        self._path = path
        try:
            # Created here, so that no other user can ever read it: SQLite gives its other files the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(
                path,
                isolation_level=None,
                factory=connection,
                timeout=BUSY_SECONDS,
                check_same_thread=False,  # the recorder commits in a thread, one at a time
            )
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self._use_write_ahead_log()
        self.execute("PRAGMA synchronous = NORMAL")
        self.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")

    def _use_write_ahead_log(self) -> None:
        """Waits for other connections itself: where several create one file, SQLite gives up at once here."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.Error as error:
                is_busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > until:
                    raise self._failure(error) from error
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def execute(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """Runs one statement and returns its rows."""
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Row], *, on_conflict: str
    ) -> None:
        """Inserts rows, one statement for all of them."""
        places = ", ".join("?" * len(columns))
        names = ", ".join(columns)
        statement = f"INSERT INTO {table} ({names}) VALUES ({places}) {on_conflict}"  # noqa: S608
        self.update_many(statement, rows)

    def update_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Runs one statement for each row of parameters."""
        try:
            self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def begin_write(self) -> None:
        """Takes the one lock of writers at once: a transaction never fails for having begun by reading."""
        self.execute("BEGIN IMMEDIATE")

    def begin_read(self) -> None:
        """One state of the file, however long reading takes."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Makes the transaction durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undoes the transaction."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def has_table(self, name: str) -> bool:
        """Whether a table exists."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self.execute(query, (name,)))

    def size_bytes(self) -> int:
        """The file and its write-ahead log."""
        files = [self._path, self._path.with_name(self._path.name + "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def used_bytes(self) -> int:
        """Pages in use."""
        [[pages]] = self.execute("PRAGMA page_count")
        [[free]] = self.execute("PRAGMA freelist_count")
        [[size]] = self.execute("PRAGMA page_size")
        return (int_of(pages) - int_of(free)) * int_of(size)

    def shrink(self) -> None:
        """Writes the file anew without its free pages."""
        self.execute("VACUUM")
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _failure(self, error: Exception) -> errors.StateError:
        return errors.StateError(f"{self.place}: history cannot be used: {error}")
