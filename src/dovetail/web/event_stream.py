"""Serves `GET /api/v1/stream`: server-sent events that say which resources changed, never the changes themselves.

Given the feed of a source. A client that comes back with Last-Event-ID gets a change event at once if the version has
moved since, or if the id is of another process. Streams end after a while, so that clients are authenticated
again; browsers come back by themselves. Never sends what a user may not see: an event holds numbers and resource names.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from dovetail.web import change_feed

KEEP_ALIVE_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 600.0
SLOWEST_SECONDS: Final = 30.0  # for one event to be taken by the connection
RETRY_MILLISECONDS: Final = 1000  # after which browsers come back
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]


class EventStream:
    """One response, as an ASGI application."""

    def __init__(
        self,
        feed: change_feed.ChangeFeed,
        *,
        cluster: str,
        last_event_id: str,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._feed = feed
        self._cluster = cluster
        self._last_event_id = last_event_id
        self._longest_seconds = longest_seconds
        self._version = feed.announced  # up to which this client knows of changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the client leaves or the time is over."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        subscriber = self._feed.subscribe()
        self._version = self._feed.announced
        sending = asyncio.create_task(self._send_events(subscriber, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait(
                {sending, leaving},
                timeout=self._longest_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._feed.unsubscribe(subscriber)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if not leaving.done() or leaving.cancelled():
            await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, subscriber: change_feed.Subscriber, send: Send) -> None:
        await _send(send, self._first_events())
        while True:
            try:
                await asyncio.wait_for(subscriber.wake.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                await _send(send, _KEEP_ALIVE)
                continue
            subscriber.wake.clear()
            await _send(send, self._due_events(subscriber))

    def _first_events(self) -> bytes:
        feed = self._feed
        hello = {"version": feed.version, "cluster": self._cluster}
        events = f"retry: {RETRY_MILLISECONDS}\n".encode() + self._event("hello", hello)
        if self._last_event_id and self._last_event_id != self._id:
            events += self._change(change_feed.Change(feed.version, change_feed.RESOURCES))
        if feed.stale_since is not None:
            events += self._event("stale", {"since": feed.stale_since})
        return events

    def _due_events(self, subscriber: change_feed.Subscriber) -> bytes:
        events = b""
        if subscriber.is_staleness_due:
            subscriber.is_staleness_due = False
            since = self._feed.stale_since
            events += self._event("stale", {"since": since}) if since else self._event("fresh", {})
        if subscriber.change is not None:
            events += self._change(subscriber.change)
            subscriber.change = None
        return events

    def _change(self, change: change_feed.Change) -> bytes:
        self._version = change.version
        return self._event(
            "change", {"version": change.version, "resources": sorted(change.resources)}
        )

    def _event(self, name: str, data: dict[str, Any]) -> bytes:
        # JSON has no line breaks, so that one data line is enough.
        body = msgspec.json.encode(data)
        return f"id: {self._id}\nevent: {name}\ndata: ".encode() + body + b"\n\n"

    @property
    def _id(self) -> str:
        return f"{self._feed.boot}-{self._version}"


async def _send(send: Send, events: bytes) -> None:
    if events:
        async with asyncio.timeout(SLOWEST_SECONDS):
            await send({"type": "http.response.body", "body": events, "more_body": True})


async def _left(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
