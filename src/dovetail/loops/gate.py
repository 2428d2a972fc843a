"""Lets so many write at once; who waits for others to make something ready steps aside and keeps nobody from writing.

Given pods by uid. Asked by whoever writes, so that a thousand placements decided at once reach the server in portions.
So does who pauses between two tries of a write, and comes in again for the next. Never knows what is written.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

_WRITING: Final[contextvars.ContextVar[str]] = contextvars.ContextVar(
    "writing", default=""
)  # the pod a task writes for


class Gate:
    """Who is inside, and who stepped aside."""

    def __init__(self, places: int, *, stepped: Callable[[], None]) -> None:
        self._places = asyncio.Semaphore(places)
        self._stepped = stepped
        self._inside: set[str] = set()
        self._aside: set[str] = set()

    @property
    def aside(self) -> int:
        """How many wait for others to make something ready, or for their next try."""
        return len(self._aside)

    @asynccontextmanager
    async def entered(self, uid: str) -> AsyncIterator[None]:
        """The pod of this uid writes for as long as this is open, unless it steps aside before."""
        await self._places.acquire()
        self._inside.add(uid)
        token = _WRITING.set(uid)
        try:
            yield
        finally:
            _WRITING.reset(token)
            self._leave(uid)

    @contextmanager
    def waiting(self, uid: str) -> Iterator[None]:
        """The pod of this uid waits for others for as long as this is open. It need not come in again afterwards."""
        self._leave(uid)
        with self._stepped_aside(uid):
            yield

    @asynccontextmanager
    async def pausing(self) -> AsyncIterator[None]:
        """The task that asks pauses before its next try for as long as this is open, and then comes in again."""
        uid = _WRITING.get()
        if not uid:
            yield  # it writes for no pod
            return
        was_inside = uid in self._inside
        self._leave(uid)
        with self._stepped_aside(uid):
            yield
        if was_inside:
            await self._places.acquire()
            self._inside.add(uid)

    @contextmanager
    def _stepped_aside(self, uid: str) -> Iterator[None]:
        self._aside.add(uid)
        self._stepped()
        try:
            yield
        finally:
            self._aside.discard(uid)

    def _leave(self, uid: str) -> None:
        if uid in self._inside:
            self._inside.discard(uid)
            self._places.release()
