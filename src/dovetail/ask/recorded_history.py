"""Opens the records of GPU accounting that a user names: the one place that knows in which forms they are kept.

Given a location (a store of history, that is a SQLite file or a PostgreSQL URL, or a JSON document) and a window.
A record that is still open was seen last at `until`; where that is not known, it lasts to the time of the question.
Raises InputError for what cannot be read. Never writes records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dovetail import errors
from dovetail.answer.cost import (
    cost_ledger,
    price_list,
    record_document,
    recorded_prices,
    unpriced_account,
)
from dovetail.answer.cost.cost_window import Window
from dovetail.files import bounded_files
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Millis

if TYPE_CHECKING:
    from dovetail.history import stores

T = TypeVar("T")
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


class Account(NamedTuple):
    """The answer of records to a question about cost or use."""

    ledger: cost_ledger.Ledger
    until: Millis  # open records were counted until then
    first: Millis  # since when there are records of GPUs; `until` where there are none
    prices: price_list.PriceList  # of the question, else those that were recorded


def until(location: str, now: Millis) -> Millis:
    """Up to when a question that is asked now can be answered."""
    if not is_store(location):
        return now
    watched_until = _of_store(location, lambda store: store.watched_until())
    return now if watched_until is None else min(now, watched_until)


def account(location: str, question: cost_ledger.Question, now: Millis) -> Account:
    """The account of a question. From stored accounts of hours, where they know what is asked.

    Without prices in the question, the recorded ones count.
    """
    if is_store(location) and unpriced_account.is_answerable(question):
        return _of_store(location, lambda store: _of_accounts(store, question, now))
    return of_records(read(location, question.window), question, now)


def of_records(recorded: Recorded, question: cost_ledger.Question, now: Millis) -> Account:
    """The account of a question, from the records themselves."""
    last = recorded.until_or(now)
    question = _priced(question, recorded.records.prices)
    ledger = cost_ledger.ledger(recorded.records, question, last)
    return Account(ledger, last, _first_time(recorded.records, last), question.prices)


def _of_accounts(store: stores.Store, question: cost_ledger.Question, now: Millis) -> Account:
    watched_until = store.watched_until()
    last = now if watched_until is None else min(now, watched_until)
    known = question.window.until(last)
    if known.start >= known.end:
        return of_records(Recorded(records.Records(), last), question, now)
    question = _priced(question, store.prices(known))
    cuts = [*(step.start for step in question.steps), *question.prices.changes()]
    accounts = store.accounts(known, cuts)
    ledger = unpriced_account.ledger(accounts.parts, accounts.described, question, last)
    return Account(ledger, last, _first_time(accounts.described, last), question.prices)


def _priced(
    question: cost_ledger.Question, recorded: Iterable[records.PriceList]
) -> cost_ledger.Question:
    prices = recorded_prices.in_force(question.prices, recorded, question.window)
    return question._replace(prices=prices)


def _first_time(recorded: records.Records, default: Millis) -> Millis:
    return min((asset.start for asset in recorded.assets), default=default)


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
    return _of_store(
        location,
        lambda store: Recorded(store.records(window.start, window.end), store.watched_until()),
    )


def _of_store(location: str, ask: Callable[[stores.Store], T]) -> T:
    from dovetail.history import stores

    try:
        with stores.open_store(location) as store:
            return ask(store)
    except (errors.NotFound, errors.StateError) as error:
        raise errors.InputError(str(error)) from None
