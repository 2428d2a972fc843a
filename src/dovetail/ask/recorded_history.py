"""Opens the records of GPU accounting that a user names: the one place that knows in which forms they are kept.

Given a location and a window. A record that is still open was seen last at `until`; where that is not known, it lasts
to the time of the question. Raises InputError for what cannot be read. Never writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.cost import record_document
from dovetail.answer.cost.cost_window import Window
from dovetail.files import bounded_files
from dovetail.model.accounting import records

URL_SCHEMES: Final = ("postgresql://", "postgres://")
SQLITE: Final = b"SQLite format 3\0"  # how every SQLite file begins


class Recorded(NamedTuple):
    """What was recorded about a window, and up to when."""

    records: records.Records
    until: records.Millis | None  # None: up to the time of the question


def read(location: str, window: Window) -> Recorded:
    """Everything that overlaps the window; a document may hold more."""
    if _is_store(location):
        return _stored(location, window)
    content = bounded_files.content(location)
    name = bounded_files.display_name(location)
    return Recorded(record_document.read(content, name), None)


def _stored(location: str, window: Window) -> Recorded:
    """What a store of history holds about the window."""
    raise errors.InputError(f"{location}: a database; give a JSON document of records")


def _is_store(location: str) -> bool:
    """Whether the location is a database: by its URL, or by how the file begins."""
    if location.startswith(URL_SCHEMES):
        return True
    try:
        if not Path(location).is_file():
            return False  # a pipe cannot be read from its start again
        with Path(location).open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except (OSError, ValueError):
        return False  # reading it as a document says what is wrong
