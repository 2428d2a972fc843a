"""What the store asks of a database: statements, bulk inserts, transactions. SQLite and PostgreSQL implement it.

Statements are written once, in the SQL that both understand, with `?` for parameters and SQLite's names of types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from dovetail import errors

Value: TypeAlias = "int | str | bytes | None"
Row: TypeAlias = "tuple[Value, ...]"


class Database(Protocol):
    """One connection. Raises StateError for everything that goes wrong below it."""

    place: str  # for messages; never has a password in it

    def execute(self, statement: str, parameters: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """Runs one statement and returns its rows."""
        ...

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Row], *, on_conflict: str
    ) -> None:
        """Inserts rows. No two of them may have the same key."""
        ...

    def update_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Runs one statement for each row of parameters."""
        ...

    def begin_write(self) -> None:
        """Begins a transaction; waits for other writers, and keeps them out until its end."""
        ...

    def begin_read(self) -> None:
        """Begins a transaction that sees one state of the database."""
        ...

    def commit(self) -> None:
        """Makes the transaction durable."""
        ...

    def rollback(self) -> None:
        """Undoes the transaction. Never raises."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether a table exists."""
        ...

    def size_bytes(self) -> int:
        """What the database takes on disk."""
        ...

    def used_bytes(self) -> int:
        """What the records take, without space that deleted ones left."""
        ...

    def shrink(self) -> None:
        """Gives unused space back, outside a transaction."""
        ...

    def close(self) -> None:
        """Ends the connection. Never raises."""
        ...


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """A write transaction around the block: all of it is stored, or nothing."""
    database.begin_write()
    try:
        yield
    except BaseException:
        database.rollback()
        raise
    database.commit()


@contextmanager
def reading(database: Database) -> Iterator[None]:
    """A read transaction around the block."""
    database.begin_read()
    try:
        yield
    finally:
        database.rollback()


def int_of(value: object) -> int:
    """A number of a row. SQLite keeps values of any type in any column."""
    if not isinstance(value, int):
        raise errors.StateError(f"history is damaged: {value!r} is not a number")
    return value


def str_of(value: object) -> str:
    """A text of a row."""
    if not isinstance(value, str):
        raise errors.StateError(f"history is damaged: {value!r} is not text")
    return value
