"""A keyed work queue: each key runs at most once at a time, with delays and backoff after failures.

Given an async function of one key, which returns after how many seconds the key runs again, or None. A bounded number
of keys run concurrently. Never knows what a key means.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from dovetail.ports import clock as clocks
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.workqueue")
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 10.0

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Pending keys. `put` is cheap and may be called for anything that could matter."""

    def __init__(
        self,
        clock: clocks.Clock,
        do: Callable[[K], Awaitable[float | None]],
        *,
        concurrency: int,
        name: str = "duty",
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
        self._busy: set[K] = set()  # being worked on
        self._again: set[K] = set()  # put while being worked on
        self._failures: dict[K, int] = {}
        self._woken = asyncio.Event()
        self.done = 0
        self.failed = 0

    def put(self, key: K, after: float = 0.0) -> None:
        """Runs the key after this many seconds, or earlier if it was put so before."""
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
            self._woken.set()

    def drop(self, key: K) -> None:
        """Removes the key; work on it that is under way finishes."""
        self._due.pop(key, None)
        self._again.discard(key)
        self._failures.pop(key, None)

    @property
    def is_idle(self) -> bool:
        """Whether no key is due or being worked on."""
        return not self._waiting and not self._busy

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._work())
            while True:
                self._woken.clear()
                await self._until(self._take_due())

    def _enqueue(self, key: K) -> None:
        self._due.pop(key, None)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    def _take_due(self) -> float | None:
        """Enqueues every key that is due; returns when the next one is."""
        now = self._clock.monotonic()
        while self._heap:
            at, _, key = self._heap[0]
            if self._due.get(key) != at:  # done or rescheduled since
                heapq.heappop(self._heap)
            elif at > now:
                return at
            else:
                heapq.heappop(self._heap)
                self._enqueue(key)
        return None

    async def _until(self, at: float | None) -> None:
        """Waits until then, or until an earlier key is put."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._woken.wait())]
        if at is not None:
            waits.append(asyncio.create_task(self._sleep(at - self._clock.monotonic())))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

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
                # A bug in one key's work must not stop the others.
                self.failed += 1
                LOG.exception("workqueue.failed", extra={"duty": self._name, "key": str(key)})
                after = LONGEST_DELAY
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._enqueue(key)
            elif after is not None:
                self.put(key, after)

    def _delay(self, key: K, failure: failures.ApiFailure) -> float | None:
        """The backoff in seconds after a failure; None where only a change of the object can help."""
        self.failed += 1
        if isinstance(failure, failures.Missing):
            return None
        if isinstance(failure, failures.Refused):
            LOG.error(
                "workqueue.refused: not retried",
                extra={"duty": self._name, "key": str(key), "why": str(failure)},
            )
            return None
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_DELAY * float(1 << min(count - 1, 10)), LONGEST_DELAY)
        if not isinstance(
            failure, failures.Conflict
        ):  # after a conflict the new version is on its way
            LOG.warning(
                "workqueue.retry",
                extra={"duty": self._name, "key": str(key), "why": str(failure), "seconds": delay},
            )
        return max(delay, failure.retry_after or 0.0)
