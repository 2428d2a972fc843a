"""Fetches measurements of a past time from a source and stores them, an hour at a time.

Given a store, a source and two times. An hour is stored as a whole or not at all, and storing it again changes nothing,
so a run that was cut short is simply repeated. Never asks for more than an hour at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from dovetail import errors
from dovetail.model.accounting.records import MILLISECONDS_PER_HOUR, Millis, Records
from dovetail.ports import usage_source

MINUTE: Final = 60_000
_T = TypeVar("_T")


class Target(Protocol):
    """The part of a store that is needed."""

    def records(self, start: Millis, end: Millis, /, *, has_usage: bool) -> Records:
        """Everything of a window."""
        ...

    def append(self, batch: Records, /) -> None:
        """Stores a batch."""
        ...


class Progress(NamedTuple):
    """How far a backfill is."""

    start: Millis
    end: Millis
    done_until: Millis
    measurements: int  # that the source returned so far


Say = Callable[[Progress], None]


class InThread(Protocol):
    """Runs work of the store where it blocks no event loop."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """Its result."""
        ...


async def backfill(
    store: Target,
    source: usage_source.UsageSource,
    start: Millis,
    end: Millis,
    *,
    in_thread: InThread,
    say: Say = lambda _: None,
) -> Progress:
    """Fetches what was measured between two times, cut to full minutes."""
    begun, ended = start // MINUTE * MINUTE, end // MINUTE * MINUTE
    if ended < begun:
        raise errors.InputError(f"the end ({end}) is before the start ({start})")
    progress = Progress(begun, ended, begun, 0)
    for first, last in chunks(begun, ended):
        known = await in_thread(lambda: store.records(first, last, has_usage=False))  # noqa: B023
        usage = await source.usage_between(first, last, known)
        if usage:
            batch = Records(usage=tuple(usage))
            await in_thread(lambda: store.append(batch))  # noqa: B023
        progress = progress._replace(
            done_until=last, measurements=progress.measurements + len(usage)
        )
        say(progress)
    return progress


def chunks(start: Millis, end: Millis) -> Iterator[tuple[Millis, Millis]]:
    """The time cut at full hours."""
    while start < end:
        until = min((start // MILLISECONDS_PER_HOUR + 1) * MILLISECONDS_PER_HOUR, end)
        yield start, until
        start = until
