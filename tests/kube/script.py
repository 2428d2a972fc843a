"""An API server that plays a script of lists and watches, and a sink that records its calls."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from aiohttp import web

from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from tests.kube import serving

CUT = "cut"  # the connection breaks
HOLD = "hold"  # silence until the client goes

Line = bytes
Action = Line | str | web.Response


def node(name: str, version: int, uid: str = "", **labels: str) -> dict[str, Any]:
    """A Node as an item of a list has it."""
    metadata = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {"metadata": metadata}


def listed(version: int, *items: dict[str, Any], token: str = "") -> dict[str, Any]:
    """A NodeList."""
    metadata = {"resourceVersion": str(version), "continue": token}
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def event(kind: str, tree: dict[str, Any]) -> Line:
    """A line of a watch."""
    return (
        msgspec.json.encode({"type": kind, "object": {"kind": "Node", "apiVersion": "v1", **tree}})
        + b"\n"
    )


def added(name: str, version: int, uid: str = "", **labels: str) -> Line:
    return event("ADDED", node(name, version, uid, **labels))


def modified(name: str, version: int, uid: str = "", **labels: str) -> Line:
    return event("MODIFIED", node(name, version, uid, **labels))


def deleted(name: str, version: int, uid: str = "") -> Line:
    return event("DELETED", node(name, version, uid))


def bookmark(version: int) -> Line:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def error(code: int, reason: str) -> Line:
    return msgspec.json.encode({"type": "ERROR", "object": serving.status(code, reason)}) + b"\n"


class Server:
    """Plays lists and watches in order; the last list is repeated, further watches hold."""

    def __init__(
        self, lists: Sequence[dict[str, Any] | web.Response], watches: Sequence[Sequence[Action]]
    ) -> None:
        self._lists = list(lists)
        self._watches = list(watches)
        self.asked: list[dict[str, str]] = []  # the query of each list and watch

    @property
    def lists(self) -> list[dict[str, str]]:
        """The queries of the lists."""
        return [query for query in self.asked if "watch" not in query]

    @property
    def watches(self) -> list[dict[str, str]]:
        """The queries of the watches."""
        return [query for query in self.asked if "watch" in query]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.asked.append(dict(request.query))
        if "watch" in request.query:
            return await self._watch(request, self._watches.pop(0) if self._watches else [HOLD])
        answer = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        return answer if isinstance(answer, web.Response) else serving.answer(answer)

    async def _watch(self, request: web.Request, script: Sequence[Action]) -> web.StreamResponse:
        response = web.StreamResponse()
        for action in script:
            if isinstance(action, web.Response):
                return action
            if not response.prepared:
                await response.prepare(request)
            if isinstance(action, bytes):
                await response.write(action)
            elif action == CUT:
                await _drained(request)
                assert request.transport is not None
                request.transport.abort()
                return response
            else:
                await asyncio.Event().wait()
        if not response.prepared:
            await response.prepare(request)
        return response


async def _drained(request: web.Request) -> None:
    """Until what was written left the server: an abort throws away what has not."""
    assert request.transport is not None
    while request.transport.get_write_buffer_size():
        await asyncio.sleep(0)


class Sink:
    """Remembers. `objects` is what a cache would hold: name to version."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.objects: dict[str, int] = {}
        self.structs: list[Any] = []

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """A list."""
        self.objects = {
            result.metadata.name: int(result.metadata.resource_version) for result in objects
        }
        self.structs += objects
        self.calls.append(("replaced", sorted(self.objects), resource_version))

    def changed(self, result: Any) -> None:
        """A change, which must be newer than what is held."""
        name, version = result.metadata.name, int(result.metadata.resource_version)
        assert version > self.objects.get(name, 0), f"{name} went back to {version}"
        self.objects[name] = version
        self.structs.append(result)
        self.calls.append(("changed", name, version))

    def deleted(self, result: Any) -> None:
        """A deletion."""
        self.objects.pop(result.metadata.name, None)
        self.structs.append(result)
        self.calls.append(("deleted", result.metadata.name, result.metadata.uid))

    def broken(self, reason: str) -> None:
        """A loss."""
        self.calls.append(("broken", reason))

    def unreadable(self, name: str, problem: str) -> None:
        """An unreadable object."""
        self.calls.append(("unreadable", name, problem))

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of these names."""
        return [entry for entry in self.calls if entry[0] in names]


class Clock:
    """Real time, except that sleeping takes none and is written down."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime.datetime:
        """The time of day."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """No time at all."""
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Meter:
    """Adds up counters by name."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """One more."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Not of interest."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Not of interest."""


class Followed:
    """A watch that goes on while a test looks."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.clock = Clock()
        self.meter = Meter()
        self.restored = 0

    def was_restored(self) -> None:
        """Counts."""
        self.restored += 1


@contextlib.asynccontextmanager
async def following(server: Server, *, idle_timeout: float = 30.0) -> AsyncIterator[Followed]:
    """Follows nodes on the server."""
    followed = Followed()
    async with (
        serving.serving(server.handle) as url,
        transport.Transport(serving.connection(url)) as over,
    ):
        task = asyncio.create_task(
            watch.follow(
                over,
                registry.NODE,
                followed.sink,
                clock=followed.clock,
                randomness=random.Random(1),
                idle_timeout=idle_timeout,
                meter=followed.meter,
                restored=followed.was_restored,
            )
        )
        try:
            yield followed
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
