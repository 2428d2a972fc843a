"""An event loop in its own thread, for work that must continue while a decision blocks the main loop.

The lease is renewed there, and health checks are answered there. `run_on` runs a coroutine on another loop and returns
when it has ended, also after a cancellation, so that the caller never continues while the work still runs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
import types
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An asynchronous context: the loop runs while it is open."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()  # short: `run` waits for its work, so all of it has ended
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work on this loop; call it from another one."""
        return await run_on(self._loop, work)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work that must not be left out, such as closing what is open: a cancellation waits for its end."""
        return await run_on(self._loop, work, passes_cancellations=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())


async def run_on(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    *,
    passes_cancellations: bool = True,
) -> T:
    """Runs the work on another loop and waits until it ends. Each cancellation is passed on, its effect awaited.

    A cancellation that is not passed on, or reaches the work too late, is not lost: the caller gets the result, so that
    it can undo what was done, and is cancelled at its next await.
    """
    caller_loop = asyncio.get_running_loop()
    ended: asyncio.Future[asyncio.Task[T]] = caller_loop.create_future()
    started: list[asyncio.Task[T]] = []  # filled and read on the other loop only
    is_cancelled = False

    def start() -> None:
        task = loop.create_task(work)
        started.append(task)
        task.add_done_callback(report_end)

    def report_end(task: asyncio.Task[T]) -> None:
        caller_loop.call_soon_threadsafe(ended.set_result, task)

    def cancel() -> None:
        started[0].cancel()

    loop.call_soon_threadsafe(start)
    while not ended.done():
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            is_cancelled = True
            if passes_cancellations:
                loop.call_soon_threadsafe(cancel)

    task = ended.result()
    caller = asyncio.current_task()
    if is_cancelled and not task.cancelled() and caller is not None:
        caller.cancel()
    return task.result()


def stack_of(thread_id: int) -> str:
    """The current stack of a thread, for the log."""
    frame = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
