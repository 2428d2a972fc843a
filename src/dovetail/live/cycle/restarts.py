"""Restarts scheduling after a failure: one tenure after another, each from a fresh list.

Given work that schedules until it is cancelled or fenced, and tasks that it needs. A failure is logged,
counted, and shown in readiness if failures go on. An API server that refuses us before anything ever
worked means a wrong installation, and ends the process. Never writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.live import supervised_tasks
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

LOG = logging.getLogger("dovetail.scheduler")
FIRST_PAUSE: Final = 5.0  # by then requests of the last tenure have arrived, or never will
MOST_FAILURES: Final = 2  # in a row, before readiness shows them


class Restarts:
    """Runs tenures, and knows how many failed in a row."""

    def __init__(self, clock: clocks.Clock, meter_: meter.Meter) -> None:
        self._clock = clock
        self._meter = meter_
        self._failed = 0
        self._began = 0.0
        self._worked = False  # whether any tenure lasted longer than a first pause
        self._broken: asyncio.Future[Exception] | None = None

    @property
    def is_steady(self) -> bool:
        """False once several tenures failed in a row, until one lasts for a while."""
        return self._failed < MOST_FAILURES or self._lasted() >= supervised_tasks.LONGEST_PAUSE

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """Ends the tenure if a task that it needs failed. A closed fence the tenure finds itself."""
        if task.cancelled():
            return
        error = task.exception()  # read in any case, or asyncio would report it as lost
        if self._broken is None or self._broken.done():
            return
        if isinstance(error, Exception) and not isinstance(error, failures.Fenced):
            self._broken.set_result(error)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs tenure after tenure until one returns, is fenced (raises Fenced) or cancelled."""
        while True:
            self._began = self._clock.monotonic()
            error = await self._run_tenure(work)
            if error is None:
                return
            lasted = self._lasted()
            self._worked = self._worked or lasted >= FIRST_PAUSE
            if isinstance(error, failures.ApiFailure) and not self._worked:
                raise error
            self._failed = 1 if lasted >= supervised_tasks.STEADY_SECONDS else self._failed + 1
            self._began = self._clock.monotonic()
            self._meter.count("dovetail_tenure_errors_total")
            pause = supervised_tasks.pause_after(self._failed, first=FIRST_PAUSE)
            LOG.error(
                "tenure.failed: scheduling starts again",
                exc_info=error,
                extra={"in_a_row": self._failed, "pause_seconds": pause},
            )
            await self._clock.sleep(pause)

    def _lasted(self) -> float:
        return self._clock.monotonic() - self._began

    async def _run_tenure(self, work: Callable[[], Awaitable[None]]) -> Exception | None:
        """The error of a tenure, or of a task it needs; None if the tenure returned."""
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
    """Cancels the tenure and waits for its end, even if we are cancelled meanwhile.

    Each of our cancellations is passed on to it.
    """
    is_cancelled = False
    while not tenure.done():
        tenure.cancel()
        try:
            await asyncio.wait({tenure})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
