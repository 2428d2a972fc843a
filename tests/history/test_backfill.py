"""Backfill from a scripted source: hour by hour, repeated without effect, cut short and taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import errors
from dovetail.history import backfill, stores
from dovetail.model.accounting.records import Gap, GapSource, Records
from tests.history import drawn
from tests.history.drawn import HOUR, MINUTE

ALWAYS = 1 << 50


class Script:
    """A source that measures the known allocations, and fails once where it is told to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self._fails_at = fails_at

    async def usage_between(self, start: int, end: int, known: Records) -> Records:
        self.asked.append((start, end))
        if self._fails_at is not None and start >= self._fails_at:
            self._fails_at = None
            raise ConnectionError("the source is away")
        assert known.usage == ()
        usage = [
            each
            for allocation in known.allocations
            for each in drawn.minutes(
                (end - start) // MINUTE, start=start, allocation=allocation.allocation
            )
        ]
        return Records(usage=tuple(usage))


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


def fill(store: stores.Store, source: Script, start: int, end: int) -> backfill.Progress:
    return asyncio.run(backfill.backfill(store, source, start, end, in_thread=at_once))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with stores.open_store(str(tmp_path / "history.sqlite"), create=True) as opened:
        opened.append(Records(allocations=(drawn.allocation(),)))
        yield opened


def test_a_past_time_is_fetched_hour_by_hour(store: stores.Store) -> None:
    source = Script()
    progress = fill(store, source, HOUR // 2 + 17, 2 * HOUR + 10 * MINUTE + 5)
    assert source.asked == [(HOUR // 2, HOUR), (HOUR, 2 * HOUR), (2 * HOUR, 2 * HOUR + 10 * MINUTE)]
    assert progress.measurements == 100
    assert len(store.records(0, ALWAYS).usage) == 100


def test_fetching_again_changes_nothing(store: stores.Store) -> None:
    fill(store, Script(), 0, 2 * HOUR)
    before = store.records(0, ALWAYS)
    store.compact(100 * HOUR)
    fill(store, Script(), 0, 2 * HOUR)
    assert len(before.usage) == 120
    assert len(store.records(0, ALWAYS).usage) == 2


def test_a_run_that_was_cut_short_is_taken_up_again(store: stores.Store) -> None:
    source = Script(fails_at=HOUR)
    with pytest.raises(ConnectionError):
        fill(store, source, 0, 2 * HOUR)
    assert len(store.records(0, ALWAYS).usage) == 60
    fill(store, source, 0, 2 * HOUR)
    assert len(store.records(0, ALWAYS).usage) == 120


def test_a_window_that_ends_before_it_begins_is_refused(store: stores.Store) -> None:
    with pytest.raises(errors.InputError, match="before the start"):
        fill(store, Script(), 2 * HOUR, HOUR)


class Silence:
    """A source without samples until a time; afterwards it has some."""

    def __init__(self, until: int) -> None:
        self._until = until

    async def usage_between(self, start: int, end: int, known: Records) -> Records:
        silent = min(end, self._until)
        gaps = (Gap(GapSource.METRICS, start, silent, "no samples"),) if start < silent else ()
        count = (end - max(start, silent)) // MINUTE
        return Records(usage=drawn.minutes(count, start=end - count * MINUTE), gaps=gaps)


def test_a_silence_over_hours_is_one_gap_however_often_it_is_found(store: stores.Store) -> None:
    source = Silence(until=2 * HOUR + 30 * MINUTE)
    for start in (0, HOUR, 0):
        asyncio.run(backfill.backfill(store, source, start, 4 * HOUR, in_thread=at_once))
    [gap] = store.records(0, ALWAYS).gaps
    assert (gap.source, gap.start, gap.end) == (GapSource.METRICS, 0, 2 * HOUR + 30 * MINUTE)
    assert len(store.records(0, ALWAYS).usage) == 90
