"""A small HTTP server on loopback that says what a test wants an API server to say, faults included."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from dovetail.kube.auth import client_config, credentials
from tests.support import waiting

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that answers everything by the handler."""
    server = web.Server(handler)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def connection(url: str, **given: Any) -> client_config.Connection:
    """A connection to it; keyword arguments are those of Credentials."""
    return client_config.Connection(server=url, credentials=credentials.Credentials(**given))


def status(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    """A metav1.Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def refusal(code: int, reason: str = "", message: str = "", **details: Any) -> web.Response:
    """An answer that carries a metav1.Status."""
    body = msgspec.json.encode(status(code, reason, message, **details))
    return web.Response(status=code, body=body, content_type="application/json")


def answer(tree: Any) -> web.Response:
    """An answer of success."""
    return web.Response(body=msgspec.json.encode(tree), content_type="application/json")


async def eventually(claim: Callable[[], object]) -> None:
    """Waits until the claim holds."""
    await waiting.until(claim, "what the test is about", pause=0.001)
