"""Repeats a synchronisation with the API server until it succeeds, whenever there may be something to do.

Given a coroutine that compares and writes, and is right to repeat at any time. Failures are repeated with growing
pauses; each attempt decides what to write, so the newest wish wins. Never ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.ports import clock as clocks
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.node.sync")
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0


class SyncLoop:
    """One thing that is kept in the server."""

    def __init__(
        self,
        sync: Callable[[], Awaitable[None]],
        *,
        what: str,
        clock: clocks.Clock,
        randomness: random.Random | None = None,
    ) -> None:
        self._sync = sync
        self._what = what
        self._clock = clock
        self._randomness = randomness or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._awake = asyncio.Event()
        self._is_done = asyncio.Event()
        self.failure = ""  # the last one, empty after a success

    def notice(self) -> None:
        """There may be something to do."""
        self._is_done.clear()
        self._awake.set()

    async def done(self) -> None:
        """Returns once everything noticed so far is in the server."""
        await self._is_done.wait()

    async def run(self) -> None:
        """Synchronises until cancelled."""
        failures_in_a_row = 0
        while True:
            await self._awake.wait()
            self._awake.clear()
            try:
                await self._sync()
            except failures.ApiFailure as failure:
                failures_in_a_row += 1
                self._awake.set()
                await self._pause(failure, failures_in_a_row)
            except BaseException:
                # A loop that is run again has the same thing to do.
                self._awake.set()
                raise
            else:
                failures_in_a_row = 0
                self.failure = ""
                if not self._awake.is_set():
                    self._is_done.set()

    async def _pause(self, failure: failures.ApiFailure, failures_in_a_row: int) -> None:
        self.failure = str(failure)
        longest = FIRST_PAUSE_SECONDS * 2 ** min(failures_in_a_row - 1, 16)
        seconds = min(LONGEST_PAUSE_SECONDS, longest) * self._randomness.uniform(0.5, 1.0)
        seconds = max(seconds, failure.retry_after or 0.0)
        LOG.warning("sync.failed what=%s retry_seconds=%.1f error=%s", self._what, seconds, failure)
        await self._clock.sleep(seconds)
