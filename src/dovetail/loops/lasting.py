"""Work that goes on beside the scheduler and must not end with a mistake: it is begun again, a little later each time.

Given work that runs until it is cancelled. What it raises is said and counted; a shut fence and a cancellation pass, as
they end the tenure. Never ends anything by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter

LOG = logging.getLogger("dovetail.schedule")
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 300.0  # work that went on for so long begins again as if it had never failed


async def lasting(name: str, work: Callable[[], Awaitable[None]], clock: clocks.Clock, meter_: meter.Meter) -> None:
    """Does the work until it returns or is cancelled, however often it fails."""
    failed = 0
    while True:
        began = clock.monotonic()
        try:
            await work()
        except failures.Fenced:
            raise
        except Exception as error:  # a fault of ours costs a pause, not the work of others
            failed = 1 if clock.monotonic() - began >= STEADY_SECONDS else failed + 1
            meter_.count("dovetail_turn_errors_total", where=name)
            LOG.error("work failed and begins again", exc_info=error, extra={"what": name, "in_a_row": failed})
            await clock.sleep(pause_after(failed))
        else:
            return


def pause_after(failed: int, *, first: float = FIRST_PAUSE) -> float:
    """How long to wait after so many failures in a row."""
    return min(first * float(1 << min(failed - 1, 16)), LONGEST_PAUSE)


def do_each(chores: Iterable[Callable[[], object]], meter_: meter.Meter) -> None:
    """One chore after the other; one that fails keeps none of the others from being done."""
    for chore in chores:
        try:
            chore()
        except Exception:  # a fault of ours is said, and costs this chore for now
            meter_.count("dovetail_turn_errors_total", where="housekeeping")
            LOG.exception("housekeeping failed")


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Ends tasks, and waits until they have ended, whichever way they do."""
    everything = [*tasks]
    for task in everything:
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)
