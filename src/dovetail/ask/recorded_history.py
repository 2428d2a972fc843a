"""Opens the records of GPU accounting that a user names: the one place that knows in which forms they are kept.

Given a location (a store of history, that is a SQLite file or a PostgreSQL URL, or a JSON document) and a window.
A record that is still open was seen last at `until`; where that is not known, it lasts to the time of the question.
Raises InputError for what cannot be read. Never writes records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.cost import record_document
from dovetail.answer.cost.cost_window import Window
from dovetail.files import bounded_files
from dovetail.model.accounting import records

_SQLITE: Final = b"SQLite format 3\0"  # how every such file begins


class Recorded(NamedTuple):
    """What was recorded about a window, and up to when."""

    records: records.Records
    until: records.Millis | None  # None: up to the time of the question


def read(location: str, window: Window) -> Recorded:
    """Everything that overlaps the window; a document may hold more."""
    if _is_store(location):
        return _read_store(location, window)
    content = bounded_files.content(location)
    name = bounded_files.display_name(location)
    return Recorded(record_document.read(content, name), None)


def _is_store(location: str) -> bool:
    from dovetail.history import stores  # documents need no database

    if stores.is_url(location):
        return True
    try:
        if not Path(location).is_file():
            return False  # a pipe cannot be read from its start again
        with Path(location).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False  # reading it says what is wrong


def _read_store(location: str, window: Window) -> Recorded:
    from dovetail.history import stores

    try:
        with stores.open_store(location) as store:
            until = store.watched_until()
            recorded = store.records(window.start, window.end)
    except (errors.NotFound, errors.StateError) as error:
        raise errors.InputError(str(error)) from None
    return Recorded(recorded, until)
