"""Tasks that run next to the scheduling cycle, and what happens when one of them fails.

Long-running work (`lasting`) starts again after a failure, after a pause that grows; chores are each
tried again next time. Writes (`Background`) are different: a failure of one leaves open what is on the
server, so it ends the tenure. A closed fence and a cancellation always pass through. Never retries a
write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from dovetail.live.queue import crash_backoff
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

LOG = logging.getLogger("dovetail.schedule")
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 300.0  # after so long without a failure, the count of failures restarts


async def run_supervised(
    name: str, work: Callable[[], Awaitable[None]], clock: clocks.Clock, meter_: meter.Meter
) -> None:
    """Runs the work until it returns or is cancelled, however often it fails."""
    failed = 0
    while True:
        started = clock.monotonic()
        try:
            await work()
        except failures.Fenced:
            raise
        except Exception as error:  # our own fault costs a pause, not the other tasks
            failed = 1 if clock.monotonic() - started >= STEADY_SECONDS else failed + 1
            meter_.count("dovetail_turn_errors_total", where=name)
            LOG.error(
                "task.failed: it starts again after a pause",
                exc_info=error,
                extra={"what": name, "in_a_row": failed},
            )
            await clock.sleep(pause_after(failed))
        else:
            return


def pause_after(failed: int, *, first: float = FIRST_PAUSE) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(first * float(1 << min(failed - 1, 16)), LONGEST_PAUSE)


def run_each(chores: Iterable[Callable[[], object]], meter_: meter.Meter) -> None:
    """Runs each chore once; one that fails does not keep the others from running."""
    for chore in chores:
        try:
            chore()
        except Exception:  # our own fault is logged, and skips this chore until next time
            meter_.count("dovetail_turn_errors_total", where="housekeeping")
            LOG.exception("housekeeping.failed")


class Background:
    """Writes under way, and the failure that ends the tenure they belong to."""

    def __init__(self, clock: clocks.Clock, crash_backoffs: crash_backoff.CrashBackoff) -> None:
        self._clock = clock
        self._crash_backoff = crash_backoffs
        self._failure: asyncio.Future[None] | None = None  # while a tenure runs
        self.tasks: set[asyncio.Task[None]] = set()

    def open(self) -> asyncio.Future[None]:
        """Starts a tenure. The future gets the failure that ends it."""
        self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work until it ends or the tenure does."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def begin_guarded(
        self, what: str, work: Coroutine[Any, Any, None], *, uids: Iterable[str] = ()
    ) -> None:
        """Runs writes whose failure ends the tenure. `uids` are the pods they are for."""
        self.begin(self._guarded(what, work, uids))

    def end_tenure(self, error: Exception, uids: Iterable[str] = ()) -> None:
        """Ends scheduling with this error; the next tenure tries these pods later than others."""
        self._crash_backoff.failed(uids, self._clock.monotonic())
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _guarded(
        self, what: str, work: Coroutine[Any, Any, None], uids: Iterable[str]
    ) -> None:
        try:
            await work
        except failures.Fenced as fenced:
            self.end_tenure(fenced)
        except Exception as error:
            # It is unknown what is written: the next tenure starts from what the server has.
            LOG.exception("write.failed: the tenure ends", extra={"what": what})
            self.end_tenure(error, uids)


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks and waits until all have ended, whichever way they do."""
    ending = [*tasks]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
