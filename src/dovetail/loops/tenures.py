"""One tenure after the other: when scheduling fails by a fault of ours it begins again, from a fresh list.

Given work that schedules until it is cancelled or fenced, and tasks that must go on meanwhile. What fails is said,
counted, and shown in readiness if it goes on. An API server that refuses us before anything ever worked is a mistake in
an installation, and ends the process. Never writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.loops import lasting
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

LOG = logging.getLogger("dovetail.scheduler")
FIRST_PAUSE: Final = 5.0  # by then requests of the tenure before have arrived, or never will
MOST_FAILURES: Final = 2  # in a row, before that is shown in readiness


class Tenures:
    """Begins tenures, and knows how many failed in a row."""

    def __init__(self, clock: clocks.Clock, meter_: meter.Meter) -> None:
        self._clock = clock
        self._meter = meter_
        self._failed = 0
        self._began = 0.0
        self._worked = False  # whether any tenure went on for longer than a first pause
        self._broken: asyncio.Future[Exception] | None = None

    @property
    def is_steady(self) -> bool:
        """False once tenures failed one after the other, until one goes on for a while."""
        return self._failed < MOST_FAILURES or self._lasted() >= lasting.LONGEST_PAUSE

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """To be told of each task without which a tenure cannot go on. A shut fence is for the tenure to find."""
        if task.cancelled() or (error := task.exception()) is None or self._broken is None or self._broken.done():
            return
        if isinstance(error, Exception) and not isinstance(error, failures.Fenced):
            self._broken.set_result(error)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Tenure after tenure until one returns, is fenced (raises Fenced) or cancelled."""
        while True:
            self._began = self._clock.monotonic()
            error = await self._one(work)
            if error is None:
                return
            lasted = self._lasted()
            self._worked = self._worked or lasted >= FIRST_PAUSE
            if isinstance(error, failures.ApiFailure) and not self._worked:
                raise error
            self._failed = 1 if lasted >= lasting.STEADY_SECONDS else self._failed + 1
            self._began = self._clock.monotonic()
            self._meter.count("dovetail_tenure_errors_total")
            pause = lasting.pause_after(self._failed, first=FIRST_PAUSE)
            told = {"in_a_row": self._failed, "pause_seconds": pause}
            LOG.error("scheduling failed and begins again", exc_info=error, extra=told)
            await self._clock.sleep(pause)

    def _lasted(self) -> float:
        return self._clock.monotonic() - self._began

    async def _one(self, work: Callable[[], Awaitable[None]]) -> Exception | None:
        """What a tenure failed with, or one of the tasks it needs; None where it returned."""
        broken = self._broken = asyncio.get_running_loop().create_future()
        tenure = asyncio.ensure_future(work())
        try:
            await asyncio.wait({tenure, broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._broken = None
            await _ended(tenure)
        if tenure.cancelled():
            return broken.result() if broken.done() else None
        error = tenure.exception()
        if error is None or isinstance(error, failures.Fenced) or not isinstance(error, Exception):
            tenure.result()
        return error if isinstance(error, Exception) else None


async def _ended(tenure: asyncio.Future[None]) -> None:
    """Cancels it and waits until it has ended, however often we are cancelled meanwhile; each time it hears of it."""
    is_cancelled = False
    while not tenure.done():
        tenure.cancel()
        try:
            await asyncio.wait({tenure})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
