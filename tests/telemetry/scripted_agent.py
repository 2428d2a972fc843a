"""A node agent's metrics endpoint that serves what a test sets, and ends when the test says so."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web

from dovetail.model import exposition


class ScriptedAgent:
    """The agent of node n0."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.failure: tuple[int, str] | None = None
        self.is_alive: Callable[[], bool] = lambda: True
        self.addresses: dict[str, str] = {}
        self.headers: list[str | None] = []

    def add(self, name: str, value: float, **labels: str) -> None:
        """A value from now on."""
        self.lines[name] = exposition.line(name, labels, value)

    async def targets(self) -> Mapping[str, str]:
        """By node."""
        return self.addresses

    async def answer(self, request: web.Request) -> web.Response:
        """What a scrape gets."""
        self.headers.append(request.headers.get("Authorization"))
        if not self.is_alive():
            assert request.transport is not None
            request.transport.abort()
        if self.failure is not None:
            status, body = self.failure
            return web.Response(status=status, text=body)
        return web.Response(text="".join(self.lines.values()))


@contextlib.asynccontextmanager
async def served(agent: ScriptedAgent) -> AsyncIterator[None]:
    """The agent answers meanwhile."""
    application = web.Application()
    application.router.add_get("/metrics", agent.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        agent.addresses["n0"] = f"127.0.0.1:{runner.addresses[0][1]}"
        yield
    finally:
        await runner.cleanup()
