"""An event loop in a thread of its own, for what must go on while the main loop is held by a decision.

The lease is renewed there, and health is answered there. `run_on` carries work from one loop to the other: it ends when
the work has ended, also when it is cancelled, so that the caller never goes on beside work it thinks is over.
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
        self._thread.join()  # short: everything that was run here has ended, as `run` waits for it
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work on this loop; called on another one."""
        return await run_on(self._loop, work)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Runs the work on another loop and waits for its end. Each cancellation is passed on, and its effect awaited."""
    here = asyncio.get_running_loop()
    ended: asyncio.Future[asyncio.Task[T]] = here.create_future()
    started: list[asyncio.Task[T]] = []  # filled and read on the other loop only

    def start() -> None:
        task = loop.create_task(work)
        started.append(task)
        task.add_done_callback(lambda task: here.call_soon_threadsafe(ended.set_result, task))

    def cancel() -> None:
        started[0].cancel()

    loop.call_soon_threadsafe(start)
    while not ended.done():
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(cancel)
    return ended.result().result()


def stack_of(thread_id: int) -> str:
    """What a thread is doing right now, for the log."""
    frame = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
