"""The journal of the in-memory API server: every stored object in one SQLite file, so that a killed server goes on.

Given each change of an object store; a change is durable once `commit` has returned, against the death of the process
at any instruction. One row per object is replaced or deleted; nothing is ever rewritten whole. One process at a time
holds a directory. Never reads while the server runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.sim.server import watchers
from dovetail.sim.server.api_server import START_OVER, Restored, StoredObject
from dovetail.sim.server.object_store import Change
from dovetail.sim.server.served_kinds import table_key

DATABASE: Final = "objects.sqlite"
LOCK: Final = "lock"
FORMAT: Final = 1  # of the tables below; PRAGMA user_version
_REVISION: Final = "revision"
_COMPLETE: Final = "complete"  # set once all objects that the cluster begins with are there

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS objects (
        api_group TEXT NOT NULL,
        plural TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        document BLOB NOT NULL,
        PRIMARY KEY (api_group, plural, namespace, name)
    )""",
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
)
_PUT: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)"
_DELETE: Final = (
    "DELETE FROM objects WHERE api_group = ? AND plural = ? AND namespace = ? AND name = ?"
)
_SET: Final = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class Journal:
    """The journal in one directory. `open` takes the lock; `close` gives it back."""

    def __init__(
        self, directory: Path, *, connection: type[sqlite3.Connection] = sqlite3.Connection
    ) -> None:
        self.directory = directory
        self._connection_type = connection
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None
        self._revision = 0  # of the last change that was noted and not committed
        self._failure: sqlite3.Error | None = None

    def open(self) -> Restored:
        """Takes the directory and reads everything back. Raises StateError if another process holds it."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(self.directory / LOCK)
            self._connection = self._connected(self.directory / DATABASE)
            return self._read()
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise errors.StateError(
                f"{self.directory / DATABASE}: cannot be used: {error}; {START_OVER}"
            ) from error
        except BaseException:
            self.close()
            raise

    def mark_complete(self) -> None:
        """Records that the cluster has everything it begins with."""
        self.commit()
        self._open_connection.execute(_SET, (_COMPLETE, 1))

    def clear_incomplete(self) -> bool:
        """Removes all objects unless the cluster ever had everything it begins with. Returns whether it did.

        A process that was killed before that begins again from nothing, so no fleet is ever there in part.
        """
        if self._meta(_COMPLETE) is not None:
            return False
        self._open_connection.execute("DELETE FROM objects")
        return True

    def note(self, change: Change) -> None:
        """Adds a change to the open transaction. A failure is reported by `commit`, which answers wait for."""
        if self._failure is None:
            try:
                self._note(change)
            except sqlite3.Error as error:
                self._failure = error

    def _note(self, change: Change) -> None:
        connection = self._open_connection
        if not connection.in_transaction:
            connection.execute("BEGIN")
        group, plural = table_key(change.kind)
        namespace, name = change.record.key
        if change.event == watchers.DELETED:
            connection.execute(_DELETE, (group, plural, namespace, name))
        else:
            document = change.record.document
            row = (group, plural, namespace, name, change.revision, document)
            connection.execute(_PUT, row)
        self._revision = change.revision

    def commit(self) -> None:
        """Makes every noted change durable, together. Raises StateError if that is not possible, now and ever after."""
        try:
            self._commit()
        except sqlite3.Error as error:
            self._failure = error
        if self._failure is not None:
            raise errors.StateError(
                f"{self.directory / DATABASE}: cannot be written: {self._failure}"
            )

    def _commit(self) -> None:
        connection = self._open_connection
        if self._failure is None and connection.in_transaction:
            connection.execute(_SET, (_REVISION, self._revision))
            connection.execute("COMMIT")

    def close(self) -> None:
        """Closes the file and gives the lock back. What was not committed is lost."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the journal is not open")
        return self._connection

    def _connected(self, path: Path) -> sqlite3.Connection:
        # Created here, so that no other user can ever read it: SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, factory=self._connection_type)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes a new file ready; checks one that is there, and changes nothing in it if it cannot be used."""
        version = self._checked_format(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        # Commits survive the death of the process without waiting for the disk; after a power cut the last ones may
        # be missing, never a part of one.
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == FORMAT:
            return
        connection.execute("BEGIN")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")

    def _checked_format(self, connection: sqlite3.Connection) -> int:
        """The format of the file, 0 for an empty one. Raises StateError for a file that is not ours or is damaged."""
        file = self.directory / DATABASE
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT):
            raise errors.StateError(
                f"{file}: has format {version}, this Dovetail reads {FORMAT}; "
                "use the version that wrote it, or another directory"
            )
        [table_count] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and table_count:
            raise errors.StateError(
                f"{file}: was not written by Dovetail; use another directory, or remove the file"
            )
        # A damaged index would be noticed only by the first write, which clients wait for.
        [verdict] = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise errors.StateError(f"{file}: is damaged: {verdict}; {START_OVER}")
        return int(version)

    def _read(self) -> Restored:
        connection = self._open_connection
        rows = connection.execute(
            "SELECT api_group, plural, namespace, name, document FROM objects"
        )
        objects = [self._stored(*row) for row in rows]
        revision = self._meta(_REVISION)
        if revision is None and objects:
            raise self._damaged("it holds objects, but no revision")
        return Restored(revision or 0, objects, origin=str(self.directory / DATABASE))

    def _meta(self, name: str) -> int | None:
        query = "SELECT value FROM meta WHERE name = ?"
        row = self._open_connection.execute(query, (name,)).fetchone()
        value = None if row is None else row[0]
        if value is not None and (not isinstance(value, int) or value < 0):
            raise self._damaged(f"its {name} is {value!r}, not a number")
        return value

    def _stored(
        self, group: object, plural: object, namespace: object, name: object, document: object
    ) -> StoredObject:
        """One row. SQLite keeps values of any type in any column."""
        if not (
            isinstance(group, str)
            and isinstance(plural, str)
            and isinstance(namespace, str)
            and isinstance(name, str)
        ):
            words = (group, plural, namespace, name)
            wrong = next(word for word in words if not isinstance(word, str))
            raise self._damaged(f"a name in it is {type(wrong).__name__}, not text")
        stored = StoredObject((group, plural), (namespace, name), b"")
        if not isinstance(document, bytes):
            what = type(document).__name__
            raise self._damaged(f"{stored.place}: its document is {what}, not bytes")
        return stored._replace(document=document)

    def _damaged(self, problem: str) -> errors.StateError:
        return errors.StateError(f"{self.directory / DATABASE}: {problem}; {START_OVER}")


def _locked(path: Path) -> int:
    """An exclusive lock that ends with the process. The file names the holder."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise errors.StateError(
            f"{path.parent}: process {holder} holds this state; stop it, or use another directory"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
