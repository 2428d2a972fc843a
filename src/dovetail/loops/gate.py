"""Lets so many write at once; who waits for others to make something ready steps aside and keeps nobody from writing.

Given pods by uid. Asked by whoever writes, so that a thousand placements decided at once reach the server in portions.
Never knows what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


class Gate:
    """Who is inside, and who stepped aside."""

    def __init__(self, places: int, *, stepped: Callable[[], None]) -> None:
        self._places = asyncio.Semaphore(places)
        self._stepped = stepped
        self._inside: set[str] = set()
        self._aside: set[str] = set()

    @property
    def aside(self) -> int:
        """How many wait for others to make something ready."""
        return len(self._aside)

    @asynccontextmanager
    async def entered(self, uid: str) -> AsyncIterator[None]:
        """The pod of this uid writes for as long as this is open, unless it steps aside before."""
        await self._places.acquire()
        self._inside.add(uid)
        try:
            yield
        finally:
            self._leave(uid)

    @contextmanager
    def waiting(self, uid: str) -> Iterator[None]:
        """The pod of this uid waits for others for as long as this is open. It need not come in again afterwards."""
        self._leave(uid)
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
