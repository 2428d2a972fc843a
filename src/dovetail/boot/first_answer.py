"""Waits for the first answer of an API server that cannot be reached yet.

Given a question and a clock, asks again with growing pauses and logs each failure with the time of the next try. Never
gives up: refusals and other failures are the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dovetail.ports import clock as clocks
from dovetail.ports import failures

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 15.0  # the most by which a scheduler starts late

LOG = logging.getLogger("dovetail.scheduler")
_T = TypeVar("_T")


async def first_answer(
    ask: Callable[[], Awaitable[_T]], *, clock: clocks.Clock, log: logging.Logger = LOG
) -> _T:
    """What the server answers. Raises only what another try would not change."""
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await ask()
        except (failures.Unavailable, failures.Throttled) as failure:
            log.warning(
                "api.waiting: no answer from the API server yet",
                extra={"why": str(failure), "next_try_seconds": pause_seconds},
            )
        await clock.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
