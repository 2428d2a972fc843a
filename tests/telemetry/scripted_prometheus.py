"""A server that answers Prometheus' queries for raw samples from a script, with a clock and faults of its own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

SELECTOR = re.compile(r'^\{__name__=~"([^"]+)"\}\[(\d+)s\]$')


class ScriptedPrometheus:
    """Samples by name and labels. `now` is the server's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.series: list[tuple[dict[str, str], list[tuple[float, float]]]] = []
        self.failure: tuple[int, str] | None = None  # status and body of every answer
        self.headers: list[str | None] = []
        self.url = ""

    def add(self, name: str, value: float, *, at: float | None = None, **labels: str) -> None:
        """One more sample, by default now."""
        key = {"__name__": name, **labels}
        point = (self.now() if at is None else at, value)
        for known, points in self.series:
            if known == key:
                points.append(point)
                return
        self.series.append((key, [point]))

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("Authorization"))
        if self.failure is not None:
            status, body = self.failure
            return web.Response(status=status, text=body)
        form = await request.post()
        query = str(form["query"])
        at = float(str(form.get("time", self.now())))
        if query == "time()":
            return _success("scalar", [at, str(at)])
        match = SELECTOR.match(query)
        if match is None:
            error = {"status": "error", "errorType": "bad_data", "error": f"cannot parse {query}"}
            return web.json_response(error, status=400)
        result = [
            {"metric": labels, "values": [[t, str(v)] for t, v in inside]}
            for labels, points in self.series
            if re.fullmatch(match[1], labels["__name__"])
            and (inside := [(t, v) for t, v in points if at - int(match[2]) < t <= at])
        ]
        return _success("matrix", result)


def _success(kind: str, result: Any) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})


@contextlib.asynccontextmanager
async def served(script: ScriptedPrometheus) -> AsyncIterator[ScriptedPrometheus]:
    """On loopback meanwhile."""
    application = web.Application()
    application.router.add_post("/api/v1/query", script.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()
