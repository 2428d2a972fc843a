"""Limits how many pods are written at once, so that a large plan reaches the server in portions.

A pod that waits for another controller, or pauses before it tries a write again, steps aside: its place
goes to another pod. Given pods by uid. Never knows what is written.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

# The uid of the pod for which a task writes.
_WRITING: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("writing", default="")


class WriteLimiter:
    """The pods that write, and those that stepped aside."""

    def __init__(self, places: int, *, stepped: Callable[[], None]) -> None:
        self._places = asyncio.Semaphore(places)
        self._stepped = stepped  # called when a pod steps aside: another one may be decided about
        self._inside: set[str] = set()
        self._aside: set[str] = set()

    @property
    def aside(self) -> int:
        """How many pods wait for another controller, or for their next try."""
        return len(self._aside)

    @asynccontextmanager
    async def writing(self, uid: str) -> AsyncIterator[None]:
        """The pod has a place while this is open, unless it steps aside before."""
        await self._places.acquire()
        self._inside.add(uid)
        token = _WRITING.set(uid)
        try:
            yield
        finally:
            _WRITING.reset(token)
            self._leave(uid)

    @contextmanager
    def stepped_aside(self, uid: str) -> Iterator[None]:
        """The pod waits for another controller while this is open. It gets no place back."""
        self._leave(uid)
        with self._stepped_aside(uid):
            yield

    @asynccontextmanager
    async def pausing(self) -> AsyncIterator[None]:
        """The calling task pauses before its next try while this is open, then gets a place back."""
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
