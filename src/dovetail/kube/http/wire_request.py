"""One request on its way: method, address, headers, body, and the guard that has the last word before it is sent.

Also what breaks on the way, whichever client sends it. Given by a transport to a session. Never sends anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

Guard = Callable[[], None]

JSON: Final = "application/json"
CONNECT_SECONDS: Final = 10.0


class Broken(Exception):
    """A connection that could not be made, or ended before the response did. Its text is the reason."""


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300


class WireRequest:
    """One request and its guard."""

    def __init__(
        self,
        method: str,
        url: str,
        body: bytes | None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        guard: Guard | None = None,
    ) -> None:
        self.method = method
        self.url = url
        self.guard = guard
        self.stopped: Exception | None = None
        self.written_to: asyncio.Transport | None = None
        self.headers = [("Accept", accept)]
        self.body = body
        if body is not None:
            self.headers.append(("Content-Type", content_type))

    @property
    def is_plain_get(self) -> bool:
        """Whether it may be sent by a client that knows GET alone."""
        return self.method == "GET" and self.body is None and self.guard is None

    def abandon(self) -> None:
        """Discards the unsent bytes of a request without a response; closing alone would send them first."""
        if self.written_to is not None:
            self.written_to.abort()

    def last_word(self, transport: asyncio.Transport | None) -> None:
        """Called when the bytes are about to be written there. Raises where the guard does not allow it."""
        self.written_to = transport
        if self.guard is None:
            return
        try:
            self.guard()
        except Exception as error:
            self.stopped = (
                error  # a client may wrap what a body raises; the caller gets the original
            )
            raise
