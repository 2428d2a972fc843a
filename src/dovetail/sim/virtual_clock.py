"""A clock that advances only when it is advanced: virtual time for loops that run in memory.

`advance` goes from one wake-up time to the next in order and lets every woken task run until it waits again, so that a
loop sees the times it requested. Never reads a real clock.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
from typing import Any, Final

BEGINNING: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class VirtualClock:
    """Implements `ports.clock.Clock`. For one event loop, without threads or sockets in it."""

    def __init__(self, beginning: datetime.datetime = BEGINNING) -> None:
        self._beginning = beginning
        self._elapsed = 0.0
        self._serial = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime.datetime:
        """The time of day, with its zone."""
        return self._beginning + datetime.timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Sleeps until `advance` has passed that time. Zero seconds yields once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serial += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._serial, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Advances the time; sleepers that are due wake at their own time, earliest first."""
        until = self._elapsed + seconds
        await rest()
        while self._sleepers and self._sleepers[0][0] <= until:
            when, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, when)
            if not future.done():  # a cancelled sleeper is still on the list
                future.set_result(None)
                await rest()
        self._elapsed = until

    def next_wake_up(self) -> float | None:
        """The first wake-up time, in seconds since the beginning; None if there are no sleepers."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    @property
    def sleeping(self) -> int:
        """The number of sleepers."""
        return sum(not future.done() for _, _, future in self._sleepers)


async def rest() -> None:
    """Runs the event loop until every task waits."""
    ready: Any = getattr(asyncio.get_running_loop(), "_ready")  # noqa: B009 - asyncio has no public name for it
    await asyncio.sleep(0)
    while ready:
        await asyncio.sleep(0)
