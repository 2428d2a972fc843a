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
from dovetail.model.accounting.records import Millis

_SQLITE: Final = b"SQLite format 3\0"  # how every such file begins


class Recorded(NamedTuple):
    """What was recorded about a window, and up to when."""

    records: records.Records
    until: Millis | None  # of a document it is not known

    def until_or(self, now: Millis) -> Millis:
        """Up to when open records count, at the time of the question."""
        return now if self.until is None else min(now, self.until)


def read(location: str, window: Window) -> Recorded:
    """Everything that overlaps the window; a document may hold more. `-` is a document on standard input."""
    if is_store(location):
        return _read_store(location, window)
    return Recorded(_document(location), None)


def read_last(location: str, duration: Millis, now: Millis) -> tuple[Window, Recorded]:
    """A duration that ends now in a store, which is written all the time; in a document with its last record."""
    if is_store(location):
        window = Window(now - duration, now)
        return window, _read_store(location, window)
    document = _document(location)
    end = _last_time(document)
    return Window(max(0, end - duration), end), Recorded(document, None)


def is_store(location: str) -> bool:
    """Whether a location is a store, not a document."""
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


def _document(location: str) -> records.Records:
    content = bounded_files.content(location)
    return record_document.read(content, bounded_files.display_name(location))


def _last_time(document: records.Records) -> Millis:
    """The latest time that records of work speak of; 0 where there are none."""
    times = [sample.end for sample in document.usage]
    times += [allocation.end or allocation.start for allocation in document.allocations]
    times += [event.at for event in document.out_of_memory]
    return max(times, default=0)


def _read_store(location: str, window: Window) -> Recorded:
    from dovetail.history import stores

    try:
        with stores.open_store(location) as store:
            until = store.watched_until()
            recorded = store.records(window.start, window.end)
    except (errors.NotFound, errors.StateError) as error:
        raise errors.InputError(str(error)) from None
    return Recorded(recorded, until)
