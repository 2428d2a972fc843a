"""Runs answers on worker threads, one after the other, so that the event loop never waits for the engine.

Given functions. A lane has one thread and a bound on how many requests wait for it; more are refused with the time to
come back, and so is one that takes too long. Answers that need no replica have a lane of their own: a list never waits
for a long question. Never interrupts an answer: threads cannot be.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from dovetail.web import problems

T = TypeVar("T")

MOST_WAITING: Final = 32
LONGEST_SECONDS: Final = 60.0

LOG = logging.getLogger("dovetail.dashboard")


class Lane:
    """One thread, and the requests that wait for it."""

    def __init__(
        self,
        name: str,
        *,
        most_waiting: int = MOST_WAITING,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._name = name
        self._most_waiting = most_waiting
        self._longest_seconds = longest_seconds
        self._waiting = 0
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def waiting(self) -> int:
        """How many requests wait or are answered."""
        return self._waiting

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns. Raises a refusal where too many wait, or it takes too long."""
        if self._waiting > self._most_waiting:
            raise problems.unavailable(
                f"{self._waiting} questions wait for an answer already", retry_after=2.0
            )
        self._waiting += 1
        running = self._executor.submit(work)
        loop = asyncio.get_running_loop()
        running.add_done_callback(lambda _: _call_soon(loop, self._note_end))
        try:
            async with asyncio.timeout(self._longest_seconds):
                return await asyncio.wrap_future(running)  # cancels it while it still waits
        except TimeoutError:
            LOG.warning("dashboard.answer.late", extra={"lane": self._name})
            raise problems.unavailable(
                f"no answer within {self._longest_seconds:.0f} s; ask for less, or again later",
                retry_after=5.0,
            ) from None

    def close(self) -> None:
        """Takes no more work. A thread that still works ends with the process."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _note_end(self) -> None:
        self._waiting -= 1


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
