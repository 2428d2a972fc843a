"""Accounts of whole hours, stored beside the records, so that a month is added up without reading its samples.

Given a database with an open transaction, and how records are read. The account of an hour is stored once the hour is
over and everything in it was watched; what arrives later makes it stale, and a stale hour is accounted again from the
records. The same question has the same answer with and without stored accounts. Never knows prices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.cost import unpriced_account
from dovetail.answer.cost.cost_window import Window
from dovetail.answer.cost.unpriced_account import Part, UnpricedAccount
from dovetail.history.database import Database, int_of
from dovetail.model.accounting.records import MILLISECONDS_PER_HOUR, Millis, Records

HOURS_AT_ONCE: Final = 24  # that are accounted in one pass over the records
TABLE: Final = "accounts"
_REPLACE: Final = "ON CONFLICT (hour) DO UPDATE SET account = excluded.account"

Read = Callable[[Millis, Millis], Records]


def mark_stale(database: Database, hours: Collection[int]) -> None:
    """Measurements of these hours changed."""
    rows = [(hour,) for hour in sorted(hours)]
    database.update_many("DELETE FROM accounts WHERE hour = ?", rows)


def mark_stale_from(database: Database, hour: int) -> None:
    """Records changed from this hour on."""
    database.execute("DELETE FROM accounts WHERE hour >= ?", (hour,))


def stored_hours(database: Database, first: int, last: int) -> set[int]:
    """The hours of a range whose accounts are stored and up to date."""
    query = "SELECT hour FROM accounts WHERE hour >= ? AND hour < ?"
    return {int_of(hour) for [hour] in database.execute(query, (first, last))}


def store_hours(database: Database, read: Read, hours: Collection[int]) -> None:
    """Stores the accounts of some adjacent hours, within the transaction that is open."""
    steps = tuple(map(_window, sorted(hours)))
    end = steps[-1].end
    accounts = unpriced_account.accounts_of(read(steps[0].start, end), steps, end)
    rows = [
        (step.start // MILLISECONDS_PER_HOUR, msgspec.json.encode(account))
        for step, account in zip(steps, accounts, strict=True)
    ]
    database.insert(TABLE, ("hour", "account"), rows, on_conflict=_REPLACE)


def parts(database: Database, read: Read, window: Window, cuts: Iterable[Millis]) -> Iterator[Part]:
    """The accounts of all parts of a window, in order; it is also cut where a step begins or a price changes."""
    inner = sorted({cut for cut in cuts if window.start < cut < window.end})
    torn = {cut // MILLISECONDS_PER_HOUR for cut in inner if cut % MILLISECONDS_PER_HOUR}
    first = -(-window.start // MILLISECONDS_PER_HOUR)
    last = window.end // MILLISECONDS_PER_HOUR
    query = "SELECT hour, account FROM accounts WHERE hour >= ? AND hour < ? ORDER BY hour"
    reached = window.start
    for number, document in database.execute(query, (first, last)):
        hour = int_of(number)
        if hour in torn:
            continue
        whole = _window(hour)
        yield from _accounted(read, Window(reached, whole.start), inner)
        yield Part(whole, _decoded(database, document))
        reached = whole.end
    yield from _accounted(read, Window(reached, window.end), inner)


def _accounted(read: Read, window: Window, cuts: Iterable[Millis]) -> Iterator[Part]:
    """The parts of a window without stored accounts, from records. Some hours at once, so that memory is bounded."""
    hour = window.start // MILLISECONDS_PER_HOUR + HOURS_AT_ONCE
    rests = range(hour * MILLISECONDS_PER_HOUR, window.end, HOURS_AT_ONCE * MILLISECONDS_PER_HOUR)
    edges = [window.start, *(rest for rest in rests if rest > window.start), window.end]
    for start, end in itertools.pairwise(edges):
        if start >= end:
            continue
        inner = [start, *(cut for cut in cuts if start < cut < end), end]
        steps = tuple(Window(*pair) for pair in itertools.pairwise(inner))
        accounts = unpriced_account.accounts_of(read(start, end), steps, end)
        yield from map(Part, steps, accounts)


def adjacent(hours: Iterable[int]) -> Iterator[list[int]]:
    """Hours in runs of adjacent ones, each at most some hours long."""
    for _, run in groupby(enumerate(hours), key=lambda place: place[1] - place[0]):
        listed = [hour for _, hour in run]
        for place in range(0, len(listed), HOURS_AT_ONCE):
            yield listed[place : place + HOURS_AT_ONCE]


def _window(hour: int) -> Window:
    return Window(hour * MILLISECONDS_PER_HOUR, (hour + 1) * MILLISECONDS_PER_HOUR)


def _decoded(database: Database, document: object) -> UnpricedAccount:
    try:
        if isinstance(document, bytes | memoryview):
            return _DECODER.decode(document)
    except msgspec.MsgspecError:
        pass
    raise errors.StateError(f"{database.place}: history is damaged: an account cannot be read")


_DECODER: Final = msgspec.json.Decoder(UnpricedAccount)
