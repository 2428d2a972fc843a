"""Each fault of the proxy, seen from both sides: what the client gets, and whether the server was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.faults import plans, proxy, request_classes
from tests.faults.injected import Log

CLAIM = "/apis/resource.k8s.io/v1/namespaces/t/resourceclaims/c"
PODS = "/api/v1/pods"
BINDING = "/api/v1/namespaces/t/pods/p/binding"


class Server:
    """An API server of a few lines: remembers requests, echoes bodies, sends the watch lines it is given."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, str]] = []
        self.lines: list[bytes] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.requests.append(
            (request.method, request.path, request.headers.get("Authorization", ""), body)
        )
        if request.query.get("watch"):
            return await self._watch(request)
        return web.json_response({"you": request.method, "said": body})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for line in self.lines:
            await answer.write(line)
        return answer


class Bench:
    """A client, the proxy and the server behind it."""

    def __init__(
        self, server: Server, through: proxy.Proxy, log: Log, session: aiohttp.ClientSession
    ) -> None:
        self.server, self.proxy, self.log, self.session = server, through, log, session

    def plan(self, **changes: Any) -> None:
        self.proxy.plan = plans.QUIET._replace(**changes)

    async def ask(self, method: str, path: str, body: str = "") -> tuple[int, dict[str, str], str]:
        headers = {"Authorization": "Bearer mine"}
        async with self.session.request(method, path, data=body or None, headers=headers) as answer:
            return answer.status, dict(answer.headers), await answer.text()

    async def watch(self) -> list[Any]:
        """Events until the stream ends; `cut` at the end where it broke off, a half line as text."""
        data = b""
        try:
            async with self.session.get(PODS, params={"watch": "1"}) as answer:
                if answer.status != 200:
                    return [answer.status]
                async for chunk in answer.content.iter_any():
                    data += chunk
            end: list[Any] = []
        except aiohttp.ClientError:
            end = ["cut"]
        *whole, rest = data.split(b"\n")
        return [*map(json.loads, whole), *([rest.decode()] if rest else []), *end]


@contextlib.asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    log = Log()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    through = proxy.Proxy(
        address, trust=None, serving=None, token="own", chance=random.Random(7), log=log
    )
    try:
        async with through, aiohttp.ClientSession(f"http://127.0.0.1:{through.port}") as session:
            yield Bench(server, through, log, session)
    finally:
        await runner.cleanup()


def run(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bench() as ready:
            await test(ready)

    asyncio.run(main())


def always(kind: str, what: str) -> dict[str, Any]:
    return {"requests": {what: {kind: 1.0}}, "burst": 1}


def event(name: str, version: int, kind: str = "MODIFIED") -> bytes:
    meta = {"namespace": "t", "name": name, "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode() + b"\n"


def versions(events: list[Any]) -> list[Any]:
    return [
        item["object"]["metadata"]["resourceVersion"] if isinstance(item, dict) else item
        for item in events
    ]


@pytest.mark.parametrize(
    ("method", "path", "query", "what"),
    [
        ("GET", PODS, {}, "list"),
        ("GET", PODS, {"watch": "true"}, "watch"),
        ("GET", "/api/v1/namespaces/t/pods/p", {}, "get"),
        ("PATCH", CLAIM, {}, "claim"),
        ("PUT", f"{CLAIM}/status", {}, "claim-status"),
        ("POST", CLAIM.removesuffix("/c"), {}, "claim-create"),
        ("POST", BINDING, {}, "binding"),
        ("PATCH", "/api/v1/namespaces/t/pods/p/status", {}, "pod-status"),
        ("DELETE", "/api/v1/namespaces/t/pods/p", {}, "pod-delete"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/t/events", {}, "event"),
        ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/s/leases/l", {}, "lease"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/s/leases/l", {}, "lease"),
        ("GET", "/api/v1/namespaces/t", {}, "get"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {}, "other-write"),
    ],
)
def test_requests_are_classified(method: str, path: str, query: dict[str, str], what: str) -> None:
    assert request_classes.read(method, path, query).what == what


def test_a_quiet_proxy_passes_everything_on() -> None:
    async def story(b: Bench) -> None:
        status, _, text = await b.ask("PATCH", CLAIM, "hello")
        assert (status, json.loads(text)) == (200, {"you": "PATCH", "said": "hello"})
        assert b.server.requests == [("PATCH", CLAIM, "Bearer mine", "hello")]
        b.server.lines = [event("a", 1), event("b", 2)]
        assert versions(await b.watch()) == ["1", "2"]
        assert b.log.entries == []

    run(story)


@pytest.mark.parametrize(
    ("kind", "is_asked"), [(plans.BEFORE, False), (plans.AFTER, True), (plans.TRUNCATED, True)]
)
def test_a_broken_connection(kind: str, is_asked: bool) -> None:
    async def story(b: Bench) -> None:
        b.plan(**always(kind, "binding"))
        with pytest.raises(aiohttp.ClientError):
            await b.ask("POST", BINDING, "to a node")
        assert len(b.server.requests) == is_asked
        assert b.log.by_kind() == {kind: 1}
        assert b.log.entries[0].target == "pods/t/p"

    run(story)


@pytest.mark.parametrize("kind", [plans.THROTTLED, plans.CONFLICT, *plans.ERRORS])
def test_a_made_up_answer(kind: str) -> None:
    async def story(b: Bench) -> None:
        b.plan(**always(kind, "claim-status"))
        status, headers, text = await b.ask("PATCH", f"{CLAIM}/status", "{}")
        assert status == int(kind)
        assert json.loads(text)["kind"] == "Status"
        assert ("Retry-After" in headers) == (kind == plans.THROTTLED)
        assert b.server.requests == []

    run(story)


def test_errors_come_in_bursts() -> None:
    async def story(b: Bench) -> None:
        b.plan(requests={"get": {"503": 1.0}}, burst=5)
        first = await b.ask("GET", "/api/v1/namespaces/t/pods/p")
        b.plan()
        statuses = [first[0]] + [
            (await b.ask("GET", "/api/v1/namespaces/t/pods/p"))[0] for _ in range(5)
        ]
        failed = statuses.count(503)
        assert 1 < failed <= 5
        assert statuses == [503] * failed + [200] * (6 - failed)
        assert b.log.by_kind()["503"] == failed

    run(story)


def test_a_real_conflict_is_made_first() -> None:
    async def story(b: Bench) -> None:
        b.plan(**always(plans.TOUCHED, "claim-status"))
        await b.ask("PATCH", f"{CLAIM}/status", "mine")
        (first, second) = b.server.requests
        assert first[:3] == ("PATCH", CLAIM, "Bearer own")
        assert "touched" in first[3]
        assert second == ("PATCH", f"{CLAIM}/status", "Bearer mine", "mine")

    run(story)


def test_a_slow_answer_comes_all_the_same() -> None:
    async def story(b: Bench) -> None:
        b.plan(**always(plans.SLOW, "list"), slow_seconds=0.01)
        assert (await b.ask("GET", PODS))[0] == 200
        assert b.log.by_kind() == {plans.SLOW: 1}

    run(story)


@pytest.mark.parametrize("kind", [plans.GONE, plans.GONE_EVENT])
def test_a_watch_that_has_expired(kind: str) -> None:
    async def story(b: Bench) -> None:
        b.plan(**always(kind, "watch"))
        (result,) = await b.watch()
        if kind == plans.GONE:
            assert result == 410
        else:
            assert (result["type"], result["object"]["code"]) == ("ERROR", 410)
        assert b.server.requests == []

    run(story)


def test_a_watch_cut_in_the_middle_of_a_line() -> None:
    async def story(b: Bench) -> None:
        b.server.lines = [event("a", 1), event("b", 2)]
        b.plan(lines={plans.CUT: 1.0})
        seen = await b.watch()
        assert seen[-1] == "cut"
        assert len(seen) < 3
        for half in seen[:-1]:
            assert event("a", 1).decode().startswith(half)

    run(story)


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        (plans.TWICE, [event("a", 1)], ["1", "1"]),
        (plans.STALLED, [event("a", 1), event("b", 2)], ["1", "2"]),
        (plans.LATE, [event("a", 1), event("b", 2)], ["2", "1"]),
        (plans.LATE, [event("a", 1), event("a", 2)], ["1", "2"]),
        (plans.SWAPPED, [event("a", 1), event("b", 2), event("a", 3)], ["2", "3", "1"]),
        (plans.LATE, [event("a", 1), event("", 2, "BOOKMARK"), event("b", 3)], ["1", "2", "3"]),
        (plans.SWAPPED, [event("a", 1), event("", 2, "BOOKMARK"), event("a", 3)], ["1", "2", "3"]),
        (plans.SWAPPED, [event("a", 1)], ["1"]),
    ],
)
def test_lines_of_a_watch(kind: str, lines: list[bytes], expected: list[str]) -> None:
    async def story(b: Bench) -> None:
        b.server.lines = lines
        b.plan(lines={kind: 1.0}, stall_lines=1, stall_seconds=0.2, hold_seconds=60)
        assert versions(await b.watch()) == expected
        changes_something = kind in (plans.TWICE, plans.STALLED) or expected != sorted(expected)
        assert (b.log.by_kind()[kind] > 0) == changes_something

    run(story)


def test_a_blackhole_swallows_requests_and_ends() -> None:
    async def story(b: Bench) -> None:
        hole = asyncio.create_task(b.proxy.blackhole(requests=1))
        await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientError):
            await b.ask("POST", BINDING, "lost")  # no GET: the client would repeat that by itself
        await hole
        assert b.server.requests == []
        assert (await b.ask("POST", BINDING, "found"))[0] == 200
        assert b.log.by_kind() == {plans.BLACKHOLE: 1}

    run(story)


@pytest.mark.parametrize("is_before", [True, False])
def test_a_trap_springs_at_the_write_it_was_set_for(is_before: bool) -> None:
    async def story(b: Bench) -> None:
        sprung: list[str] = []
        b.proxy.trap = proxy.Trap(2, is_before, sprung.append)
        assert (await b.ask("PATCH", CLAIM, "1"))[0] == 200
        assert (await b.ask("GET", PODS))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await b.ask("POST", BINDING, "2")
        assert sprung == ["binding pods/t/p"]
        assert [request[3] for request in b.server.requests] == (
            ["1", ""] if is_before else ["1", "", "2"]
        )
        assert (await b.ask("PATCH", CLAIM, "3"))[0] == 200

    run(story)


def test_the_same_seed_breaks_the_same_requests() -> None:
    def struck() -> list[str]:
        chance, plan = random.Random(3), plans.stormy(0.5)
        return [plans.drawn(plan.requests["claim-status"], chance) for _ in range(200)]

    assert struck() == struck()
    assert set(struck()) == {"", *plans.ANY_REQUEST, *plans.CONFLICTS}


def test_a_storm_has_every_fault() -> None:
    plan = plans.stormy()
    kinds = {kind for rates in (*plan.requests.values(), plan.lines) for kind in rates}
    assert kinds | {plans.BLACKHOLE} == set(plans.ALL)
    totals = {what: sum(rates.values()) for what, rates in plan.requests.items()}
    assert totals == pytest.approx(
        {what: 0.4 if what == "watch" else 0.15 for what in request_classes.CLASSES}
    )
