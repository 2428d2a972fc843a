"""A watch, line by line, with faults: events twice, late, swapped, stalled, cut in the middle.

Given lines as they come and a sink; keeps the promise of a watch where the fault is not to break it: before a
bookmark, and before the end, every event held back is delivered, else a client could not know what it missed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from tests.faults import plans
from tests.faults.injected import Log
from tests.support.waiting import comes_true_within

Write = Callable[[bytes], Awaitable[None]]


class Broken(Exception):
    """The stream is to end here, without a goodbye."""


class Line(NamedTuple):
    """One event, as far as faults look at it."""

    data: bytes
    type: str
    key: str


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines with their ends; what is left unfinished is left out."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"


def read(data: bytes) -> Line:
    """The event's type and whom it is about."""
    tree = json.loads(data)
    meta = (tree.get("object") or {}).get("metadata") or {}
    return Line(data, tree["type"], f"{meta.get('namespace', '')}/{meta.get('name', '')}")


class Stream:
    """One watch on its way to the client."""

    def __init__(
        self, write: Write, *, plan: Callable[[], plans.Plan], chance: random.Random, log: Log
    ) -> None:
        self._write = write
        self._plan = plan  # asked for each line: plans change while a watch goes on
        self._chance = chance
        self._log = log
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def carry(self, chunks: AsyncIterator[bytes], target: str) -> None:
        """Until the server ends the watch. Raises Broken where a fault ends it."""
        reader = asyncio.create_task(self._read(chunks))
        try:
            while (data := await self._queue.get()) is not None:
                await self._deliver(read(data), target)
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for line in lines(chunks):
                self._queue.put_nowait(line)
        finally:
            self._queue.put_nowait(None)

    async def _deliver(self, line: Line, target: str) -> None:
        plan = self._plan()
        kind = plans.drawn(plan.lines, self._chance) if line.type != "BOOKMARK" else ""
        if not kind:
            await self._write(line.data)
            return
        if kind == plans.CUT:
            self._log.add(kind, "watch", target)
            await self._write(line.data[: self._chance.randrange(1, len(line.data))])
            raise Broken
        if kind == plans.TWICE:
            self._log.add(kind, "watch", target)
            await self._write(line.data * 2)
        elif kind == plans.STALLED:
            self._log.add(kind, "watch", target)
            await comes_true_within(
                lambda: self._queue.qsize() >= plan.stall_lines, seconds=plan.stall_seconds
            )
            await self._write(line.data)
        else:
            await self._overtaken(line, kind, target=target)

    async def _overtaken(self, held: Line, kind: str, *, target: str) -> None:
        """Holds an event until another comes that may go first; gives up after a while."""
        deadline = asyncio.get_running_loop().time() + self._plan().hold_seconds
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    data = await self._queue.get()
            except TimeoutError:
                await self._write(held.data)
                return
            if data is None:
                self._queue.put_nowait(None)
                await self._write(held.data)
                return
            line = read(data)
            if line.type == "BOOKMARK":
                await self._write(held.data + data)
                return
            if (
                line.key == held.key and kind == plans.LATE
            ):  # what follows on it must not overtake it
                await self._write(held.data + data)
                return
            await self._write(data)
            if line.key == held.key or kind == plans.LATE:
                self._log.add(kind, "watch", f"{target} {held.key}")
                await self._write(held.data)
                return
