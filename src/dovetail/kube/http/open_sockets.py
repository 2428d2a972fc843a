"""The sockets of a session, so that all of them can be ended, also those that no other object refers to any more.

A request that is cancelled while it connects can leave such a socket behind: asyncio forgets to close a connection on
which TLS has not begun. One that is cancelled later closes it by the TLS shutdown, which waits for the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from typing import Any, Final

_CLOSE_SECONDS: Final = 1.0  # for the event loop to see that a connection has ended


class OpenSockets:
    """Creates sockets and remembers those that are open."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def create(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for an address as `getaddrinfo` returns it."""
        family, kind, protocol, *_ = address
        created = socket.socket(family, kind, protocol)
        self._sockets.add(created)
        return created

    async def end_all(self) -> None:
        """Ends every connection and waits until the event loop has closed it."""
        for left in self._open():
            with contextlib.suppress(OSError):  # the other side was first
                left.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._open():
                    await asyncio.sleep(0.001)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() != -1]
