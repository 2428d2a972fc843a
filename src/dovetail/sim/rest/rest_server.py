"""Serves an in-memory API server over HTTPS on loopback, as a Kubernetes API server does.

Given a `SimApi`, a token and a certificate; `serve` runs it for the duration of a block and yields its address. Never
listens on an address that others can reach.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from dovetail import errors
from dovetail.sim.rest import loopback_certificate, request_options
from dovetail.sim.rest.commit_turns import Journal
from dovetail.sim.rest.request_handler import RequestHandler
from dovetail.sim.server.api_server import SimApi

STOP_SECONDS: Final = 2.0
SETTLED_WRITES: Final = 100  # of controllers in one turn of the loop: some 30 ms


@contextlib.asynccontextmanager
async def serve(
    api: SimApi,
    *,
    token: str,
    certificate: loopback_certificate.Files,
    host: str = "127.0.0.1",
    port: int = 0,
    journal: Journal | None = None,
    settle: Callable[[], object] | None = None,
) -> AsyncIterator[str]:
    """Serves while the block lasts; yields the address, such as https://127.0.0.1:34567.

    `settle` runs the controllers, by default those of the API; it is called at most once per turn of the loop, after
    changes, and may leave work for the turn after its own changes.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise errors.InputError(f"{host}: not a loopback address; this server has one user")
    if not token:
        raise errors.InputError(
            "the token is empty; every user of this machine could use the server"
        )
    controllers = settle or functools.partial(api.settle, SETTLED_WRITES)
    handler = RequestHandler(api, token=token, journal=journal, settle=controllers)
    app = web.Application(client_max_size=request_options.MAX_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", handler.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        async with handler.running():
            site = web.TCPSite(runner, host, port, ssl_context=certificate.context())
            await site.start()
            [address] = runner.addresses
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            yield f"https://{shown}:{address[1]}"
    finally:
        await runner.cleanup()
