"""Runs the application on a socket that listens already, by uvicorn, until a signal or its caller ends it.

Given the application. The address is known and announced before anything slow is imported. A connection that sends no
whole request head in time is closed. Never trusts forwarded addresses, never logs by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail import errors

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

BACKLOG: Final = 256
IDLE_SECONDS: Final = 75
HEAD_SECONDS: Final = 15.0
SHUTDOWN_SECONDS: Final = 2
MOST_CONNECTIONS: Final = 2000
MOST_HEAD_BYTES: Final = 64 << 10


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any free one. Raises InputError with the next step."""
    try:
        family, *_, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise errors.InputError(f"--address {address}: {error.strerror or error}") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise errors.InputError(
                f"port {port} of {address} is taken; name another by --port, or leave it out for a free one"
            ) from None
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise errors.InputError(f"cannot listen on {address} port {port}: {reason}") from None
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that it listens on."""
    return int(listener.getsockname()[1])


def url_of(address: str, port: int, *, is_secure: bool = False) -> str:
    """How a browser on this machine reaches it."""
    wildcard = address in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
    host = "127.0.0.1" if wildcard else address
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if is_secure else 'http'}://{name}:{port}/"


async def serve(
    application: ASGIApp,
    listener: socket.socket,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    ending: asyncio.Event | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or `ending`."""
    server = _server(application, certificate, key)
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    with contextlib.ExitStack() as handlers:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(RuntimeError, ValueError):  # not the main thread: a test
                loop.add_signal_handler(number, end)
                handlers.callback(loop.remove_signal_handler, number)
        waiting = asyncio.create_task(_ended(ending, end))
        try:
            await server.serve(sockets=[listener])
        finally:
            waiting.cancel()


async def _ended(ending: asyncio.Event | None, end: Any) -> None:
    if ending is not None:
        await ending.wait()
        end()


def _server(application: ASGIApp, certificate: Path | None, key: Path | None) -> uvicorn.Server:
    import uvicorn
    from uvicorn.protocols.http import h11_impl

    class Protocol(h11_impl.H11Protocol):
        """Closes connections whose first request does not come."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(HEAD_SECONDS, self._close_if_silent)

        def _close_if_silent(self) -> None:
            cycle: object = self.cycle  # of the first request; None before it
            if cycle is None and not self.transport.is_closing():
                self.transport.close()

    class Server(uvicorn.Server):
        """Leaves signals to `serve`."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    config = uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        ssl_certfile=str(certificate) if certificate is not None else None,
        ssl_keyfile=str(key) if key is not None else None,
    )
    return Server(config)
