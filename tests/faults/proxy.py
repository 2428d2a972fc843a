"""A proxy on loopback between a scheduler and the API server that breaks requests by plan and writes down each fault.

Credentials pass through untouched. It also counts the writes that place pods, so that a process can be killed right
before or right after one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import aiohttp
from aiohttp import web

from tests.faults import plans, request_classes, streams
from tests.faults.injected import Log
from tests.support.waiting import comes_true_within

NOT_FORWARDED: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
)
NOT_RETURNED: Final = frozenset(
    {"connection", "content-length", "transfer-encoding", "content-encoding", "keep-alive"}
)
REASONS: Final = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Trap(NamedTuple):
    """Springs at a write: before it is forwarded, which then never happens, or once the server has answered it."""

    write: int  # counted from the start of the proxy
    is_before: bool
    spring: Callable[[str], None]  # gets the class and target of the write
    what: str = ""  # only at a write of this class


class Answer(NamedTuple):
    """A response that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes


class Proxy:
    """One scheduler's way to the server."""

    def __init__(
        self,
        server: str,
        *,
        trust: ssl.SSLContext | None,
        serving: ssl.SSLContext | None,
        token: str,
        chance: random.Random,
        log: Log,
    ) -> None:
        self._server = server
        self._trust = trust  # towards the server; None for plain HTTP
        self._serving = serving  # towards the client; None for plain HTTP
        self._token = token  # the proxy's own, to touch objects with
        self._chance = chance
        self._log = log
        self.plan = plans.QUIET
        self.trap: Trap | None = None
        self.writes = 0
        self.requests = 0
        self.leases = 0  # how often the server took a lease from this client
        self.port = 0
        self.bugs: list[str] = []
        self._open = asyncio.Event()  # closed during a blackhole
        self._open.set()
        self._burst: dict[str, list[str]] = {}
        self._under_way: set[asyncio.Task[web.StreamResponse]] = set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Proxy:
        connector = aiohttp.TCPConnector(ssl=self._trust if self._trust else True, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=True
        )
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # A client that goes away takes its watches along; what else it asked for goes on as it would on a real wire.
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._serving)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        assert self._session is not None
        self._open.set()
        await self._runner.cleanup()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._session.close()

    async def settled(self) -> None:
        """Waits until everything that was asked has been answered, also for those who died meanwhile."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def blackhole(self, *, requests: int, at_most: float = 10.0) -> None:
        """Nothing gets through until so many requests hang, which then break; watches fall silent meanwhile."""
        self._log.add(plans.BLACKHOLE, "all")
        self._open.clear()
        last = self.requests + requests
        await comes_true_within(lambda: self.requests >= last, seconds=at_most)
        self._open.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        """A fault of the proxy itself is none that was planned: the proxy keeps it for the campaign to read."""
        try:
            return await self._answered(request)
        except ConnectionResetError:  # the client went away meanwhile
            return _reset(request)
        except Exception as error:
            self.bugs.append(f"{request.method} {request.path}: {error!r}")
            raise

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        asked = request_classes.read(request.method, request.path, request.query)
        self.requests += 1
        body = await request.read()
        if not self._open.is_set():
            await self._open.wait()
            return _reset(request)  # a client that waited this long has given up
        kind = self._drawn(asked)
        if asked.what == "watch":
            return await self._watch(request, asked, kind=kind)
        exchange = asyncio.create_task(self._exchange(request, asked, body=body, kind=kind))
        self._under_way.add(exchange)
        exchange.add_done_callback(self._under_way.discard)
        return await asyncio.shield(exchange)

    def _drawn(self, wanted: request_classes.Asked) -> str:
        """The fault for this request: what a burst left over, or chance."""
        if self._burst.get(wanted.what):
            return self._burst[wanted.what].pop()
        kind = plans.drawn(self.plan.requests.get(wanted.what, {}), self._chance)
        if kind in plans.ERRORS:
            self._burst[wanted.what] = [kind] * self._chance.randrange(self.plan.burst)
        return kind

    async def _exchange(
        self, request: web.Request, wanted: request_classes.Asked, *, body: bytes, kind: str
    ) -> web.StreamResponse:
        if kind:
            self._log.add(kind, wanted.what, wanted.target)
        if kind == plans.BEFORE:
            return _reset(request)
        if kind in (plans.THROTTLED, plans.CONFLICT, *plans.ERRORS):
            return _failure(int(kind))
        if kind == plans.TOUCHED:
            await self._touch(request, wanted)
        if kind == plans.SLOW and self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.random() * self.plan.slow_seconds)
        if wanted.what in request_classes.PLACING:
            self.writes += 1
            if self._springs(wanted, self.writes, is_before=True):
                return _reset(request)
        number = self.writes
        answer = await self._forward(request, body)
        if answer is None:
            return _reset(request)
        if wanted.what == "lease" and request.method != "GET" and answer.status < 300:
            self.leases += 1
        if wanted.what in request_classes.PLACING and self._springs(
            wanted, number, is_before=False
        ):
            return _reset(request)
        if not self._open.is_set() or kind == plans.AFTER:
            return _reset(request)
        if kind == plans.SLOW:
            await asyncio.sleep(self._chance.random() * self.plan.slow_seconds)
        if kind == plans.TRUNCATED:
            return await _truncated(request, answer)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    def _springs(self, wanted: request_classes.Asked, number: int, *, is_before: bool) -> bool:
        trap = self.trap
        if (
            trap is None
            or trap.is_before != is_before
            or number < trap.write
            or trap.what not in ("", wanted.what)
        ):
            return False
        self.trap = None
        trap.spring(f"{wanted.what} {wanted.target}")
        return True

    async def _forward(self, request: web.Request, body: bytes) -> Answer | None:
        """The server's answer; None where it cannot be reached or breaks off."""
        assert self._session is not None
        try:
            async with self._session.request(
                request.method,
                self._server + request.path_qs,
                headers=_forwarded(request),
                data=body or None,
            ) as response:
                headers = {
                    name: text
                    for name, text in response.headers.items()
                    if name.lower() not in NOT_RETURNED
                }
                return Answer(response.status, headers, await response.read())
        except (aiohttp.ClientError, OSError):
            return None

    async def _touch(self, request: web.Request, wanted: request_classes.Asked) -> None:
        """Changes the object just before the client does."""
        assert self._session is not None
        path = request.path.removesuffix("/status")
        patch = {"metadata": {"annotations": {"faults.dovetail.dev/touched": str(self.requests)}}}
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/merge-patch+json",
        }
        if wanted.name:
            async with self._session.patch(
                self._server + path, data=json.dumps(patch), headers=headers
            ) as response:
                await response.read()

    async def _watch(
        self, request: web.Request, wanted: request_classes.Asked, *, kind: str
    ) -> web.StreamResponse:
        if kind:
            self._log.add(kind, wanted.what, wanted.target)
        if kind == plans.BEFORE:
            return _reset(request)
        if kind in (plans.THROTTLED, *plans.ERRORS):
            return _failure(int(kind))
        if kind == plans.GONE:
            return _failure(410)
        if kind == plans.GONE_EVENT:
            return await _gone(request)
        assert self._session is not None
        try:
            async with self._session.get(
                self._server + request.path_qs, headers=_forwarded(request)
            ) as response:
                return await self._carried(request, response, wanted)
        except (aiohttp.ClientError, OSError, streams.Broken):
            return _reset(request)

    async def _carried(
        self, request: web.Request, response: aiohttp.ClientResponse, wanted: request_classes.Asked
    ) -> web.StreamResponse:
        if response.status != 200:
            headers = {
                name: text
                for name, text in response.headers.items()
                if name.lower() not in NOT_RETURNED
            }
            return web.Response(status=response.status, headers=headers, body=await response.read())
        answer = web.StreamResponse(headers={"Content-Type": response.headers["Content-Type"]})
        answer.enable_chunked_encoding()
        await answer.prepare(request)

        async def write(data: bytes) -> None:
            await self._open.wait()
            await answer.write(data)

        stream = streams.Stream(write, plan=lambda: self.plan, chance=self._chance, log=self._log)
        await stream.carry(response.content.iter_any(), wanted.target)
        await answer.write_eof()
        return answer


def _forwarded(request: web.Request) -> dict[str, str]:
    return {
        name: text for name, text in request.headers.items() if name.lower() not in NOT_FORWARDED
    }


def _reset(request: web.Request) -> web.Response:
    """Breaks the connection off. The response is never sent, because there is nowhere to send it."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _failure(status: int) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response(_status(status), status=status, headers=headers)


def _status(code: int) -> dict[str, Any]:
    reason = REASONS[code]
    message = f"made up by the fault proxy: {reason}"
    about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**about, "message": message, "reason": reason, "code": code}


async def _gone(request: web.Request) -> web.StreamResponse:
    """A watch that begins with the news that its version has expired."""
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    await answer.write(json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n")
    await answer.write_eof()
    return answer


async def _truncated(request: web.Request, whole: Answer) -> web.StreamResponse:
    """Half of what was announced, then the end."""
    answer = web.StreamResponse(status=whole.status, headers=whole.headers)
    answer.content_length = len(whole.body)
    with contextlib.suppress(ConnectionResetError):  # the client may be dead by now
        await answer.prepare(request)
        await answer.write(whole.body[: len(whole.body) // 2])
    return _reset(request)
