"""Fetches measurements of a past time from a source and stores them, an hour at a time.

Given a store, a source and two times. An hour is stored as a whole or not at all, and storing it again changes nothing,
so a run that was cut short is simply repeated. Never asks for more than an hour at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from dovetail import errors
from dovetail.model.accounting.records import MILLISECONDS_PER_HOUR, Gap, Millis, Records
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
    silences: tuple[tuple[Millis, Millis], ...] = ()  # without samples of any GPU


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
        # From a moment before, so that a gap which reaches the hour is known, and goes on.
        known = await in_thread(lambda: store.records(first - 1, last, has_usage=False))  # noqa: B023
        measured = await source.usage_between(first, last, known)
        gaps = tuple(_continued(gap, known.gaps) for gap in measured.gaps)
        if measured.usage or gaps:
            batch = Records(usage=measured.usage, gaps=gaps)
            await in_thread(lambda: store.append(batch))  # noqa: B023
        silent = tuple(
            (gap.start, last if gap.end is None else gap.end)
            for gap in measured.gaps
            if not gap.subject
        )
        progress = progress._replace(
            done_until=last,
            measurements=progress.measurements + len(measured.usage),
            silences=progress.silences + silent,
        )
        say(progress)
    return progress


def _continued(gap: Gap, known: Iterable[Gap]) -> Gap:
    """The gap, begun when a known one did that reaches it: one gap over hours is one record, however often found."""
    reaching = [
        each.start
        for each in known
        if (each.source, each.subject) == (gap.source, gap.subject)
        and each.start <= gap.start
        and (each.end is None or each.end >= gap.start)
    ]
    return msgspec.structs.replace(gap, start=min(reaching, default=gap.start))


def chunks(start: Millis, end: Millis) -> Iterator[tuple[Millis, Millis]]:
    """The time cut at full hours."""
    while start < end:
        until = min((start // MILLISECONDS_PER_HOUR + 1) * MILLISECONDS_PER_HOUR, end)
        yield start, until
        start = until
