"""Keyed work at its hour: each key at most once at a time, so many keys at once, later again when a request failed.

Given what to do with a key; it answers in how many seconds it wants to be done again. Never knows what a key means.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from dovetail.ports import clock as clocks
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.duties")
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 10.0

K = TypeVar("K")


class Duties(Generic[K]):
    """What is to be done. `put` is cheap and may be called for anything that could matter."""

    def __init__(
        self, clock: clocks.Clock, do: Callable[[K], Awaitable[float | None]], *, concurrency: int, name: str = "duty"
    ) -> None:
        self._clock = clock
        self._do = do
        self._concurrency = concurrency
        self._name = name
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0
        self._queue: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()  # in the queue
        self._busy: set[K] = set()  # in a worker's hands
        self._again: set[K] = set()  # asked for while in a worker's hands
        self._failures: dict[K, int] = {}
        self._stirred = asyncio.Event()
        self.done = 0
        self.failed = 0

    def put(self, key: K, after: float = 0.0) -> None:
        """To be done in so many seconds, or earlier if that was said before."""
        if after <= 0:
            self._enqueue(key)
            return
        at = self._clock.monotonic() + after
        if self._due.get(key, at) < at:
            return
        self._due[key] = at
        self._serial += 1
        heapq.heappush(self._heap, (at, self._serial, key))
        if self._heap[0][2] == key:
            self._stirred.set()

    def drop(self, key: K) -> None:
        """No longer to be done; what is under way ends by itself."""
        self._due.pop(key, None)
        self._again.discard(key)
        self._failures.pop(key, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done before some later hour."""
        return not self._waiting and not self._busy

    async def run(self) -> None:
        """Does what is due, for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._work())
            while True:
                self._stirred.clear()
                await self._until(self._take_due())

    def _enqueue(self, key: K) -> None:
        self._due.pop(key, None)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    def _take_due(self) -> float | None:
        """Enqueues whatever is due; the hour of the next one."""
        now = self._clock.monotonic()
        while self._heap:
            at, _, key = self._heap[0]
            if self._due.get(key) != at:  # done or moved since
                heapq.heappop(self._heap)
            elif at > now:
                return at
            else:
                heapq.heappop(self._heap)
                self._enqueue(key)
        return None

    async def _until(self, at: float | None) -> None:
        """Until that hour, or until something is due earlier."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._stirred.wait())]
        if at is not None:
            waits.append(asyncio.create_task(self._sleep(at - self._clock.monotonic())))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            self._busy.add(key)
            after = None
            try:
                after = await self._do(key)
                self.done += 1
                self._failures.pop(key, None)
            except failures.ApiFailure as failure:
                after = self._delay(key, failure)
            except Exception:
                # A fault in one key's work must not end the work on all others.
                self.failed += 1
                LOG.exception("broken", extra={"duty": self._name, "key": str(key)})
                after = LONGEST_DELAY
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._enqueue(key)
            elif after is not None:
                self.put(key, after)

    def _delay(self, key: K, failure: failures.ApiFailure) -> float | None:
        """How long to wait after a failure; None where only a change of the object can help."""
        self.failed += 1
        if isinstance(failure, failures.Missing):
            return None
        if isinstance(failure, failures.Refused):
            LOG.error("refused", extra={"duty": self._name, "key": str(key), "why": str(failure)})
            return None
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_DELAY * float(1 << min(count - 1, 10)), LONGEST_DELAY)
        if not isinstance(failure, failures.Conflict):  # after a conflict the news are on their way
            LOG.warning("put off", extra={"duty": self._name, "key": str(key), "why": str(failure), "seconds": delay})
        return max(delay, failure.retry_after or 0.0)
