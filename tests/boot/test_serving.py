"""The small server: what it answers, to whom, and what it keeps to itself. Real sockets, loopback only."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest

from dovetail import errors
from dovetail.boot import http_server, port_holder
from dovetail.ports import failures
from dovetail.telemetry import metrics

OUTSIDE = "0.0.0.0"  # reachable from elsewhere; the tests ask over loopback


class Answer(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


class HealthClient:
    """Asks one server."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._port = port

    async def __call__(
        self, path: str, *, method: str = "GET", token: str = "", **options: Any
    ) -> Answer:
        headers = options.pop("headers", {}) | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        url = f"http://127.0.0.1:{self._port}{path}"
        async with self._session.request(method, url, headers=headers, **options) as answer:
            return Answer(answer.status, await answer.text(), dict(answer.headers))


@asynccontextmanager
async def served(**chosen: Any) -> AsyncIterator[HealthClient]:
    made = metrics.Metrics(is_strict=True)
    usual: dict[str, Any] = {
        "metrics": made.text,
        "ready": lambda: {"caches": True},
        "alive": lambda: True,
        "configuration": {"schedulerNames": ["dovetail"]},
    }
    async with http_server.Server(**(usual | chosen)) as server, aiohttp.ClientSession() as session:
        yield HealthClient(session, server.port)


def story(tell: Callable[[HealthClient], Awaitable[None]], **chosen: Any) -> None:
    async def main() -> None:
        async with served(**chosen) as ask:
            await tell(ask)

    asyncio.run(main())


class Warden:
    """Knows two tokens."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.is_down = False

    async def __call__(self, token: str, path: str, verb: str) -> bool:
        self.asked.append((path, verb))
        if self.is_down:
            raise failures.Unavailable("no API server")
        return token == "reader" and path == "/metrics"


def test_health_and_readiness_are_answered_with_text_and_status() -> None:
    state = {"caches": False, "lease": True}
    alive = [True]

    async def tell(ask: HealthClient) -> None:
        assert (await ask("/healthz"))[:2] == (200, "ok\n")
        assert (await ask("/readyz"))[:2] == (
            503,
            "[-]caches failed\n[+]lease ok\nrole: standby\nreadyz check failed\n",
        )
        state["caches"] = True
        assert (await ask("/readyz"))[:2] == (200, "ok standby\n")
        verbose = await ask("/readyz?verbose")
        assert verbose[:2] == (
            200,
            "[+]caches ok\n[+]lease ok\nrole: standby\nreadyz check passed\n",
        )
        alive[0] = False
        assert (await ask("/healthz"))[:2] == (503, "[-]loop failed\nhealthz check failed\n")

    story(tell, ready=lambda: state, alive=lambda: alive[0], role=lambda: "standby")


def test_metrics_are_served_as_prometheus_wants_them() -> None:
    async def tell(ask: HealthClient) -> None:
        messages = await ask("/metrics")
        assert messages.status == 200
        assert messages.headers["Content-Type"] == metrics.CONTENT_TYPE
        assert "dovetail_leader 0.0" in messages.text

    story(tell)


def test_head_answers_without_a_body() -> None:
    async def tell(ask: HealthClient) -> None:
        for path in ("/healthz", "/readyz", "/metrics", "/configz"):
            messages = await ask(path, method="HEAD")
            assert (messages.status, messages.text) == (200, "")
            assert int(messages.headers["Content-Length"]) > 0

    story(tell)


def test_the_configuration_is_shown_without_secrets() -> None:
    configuration = {
        "name": "a",
        "client": {
            "token": "hush",
            "tokenFile": "kept",
            "client-key-data": "hush",
            "Password": "hush",
        },
        "hooks": [{"url": "http://127.0.0.1", "sharedSecret": "hush"}],
    }

    async def tell(ask: HealthClient) -> None:
        messages = await ask("/configz")
        assert messages.headers["Content-Type"].startswith("application/json")
        assert (
            messages.text
            == '{"name":"a","client":{"tokenFile":"kept"},"hooks":[{"url":"http://127.0.0.1"}]}'
        )

    story(tell, configuration=configuration)


def test_snapshots_are_taken_one_at_a_time_where_configured() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def snapshot() -> str:
        begun.set()
        await go_on.wait()
        return "snapshots/1.json"

    async def tell(ask: HealthClient) -> None:
        first = asyncio.ensure_future(ask("/debug/snapshot", method="POST"))
        await begun.wait()
        assert (await ask("/debug/snapshot", method="POST")).status == 409
        go_on.set()
        assert (await first)[:2] == (200, '{"path": "snapshots/1.json"}')
        assert (await ask("/debug/snapshot", method="POST")).status == 200
        assert (await ask("/debug/snapshot")).status == 405
        page = {"Origin": "http://evil.example"}
        assert (await ask("/debug/snapshot", method="POST", headers=page)).status == 403

    story(tell, snapshot=snapshot)

    async def without(ask: HealthClient) -> None:
        assert (await ask("/debug/snapshot", method="POST")).status == 404

    story(without)


def test_other_answers_are_json_and_failures_say_nothing() -> None:
    async def fine() -> dict[str, bool]:
        return {"consistent": True}

    async def broken() -> None:
        raise RuntimeError("the password is hush")

    async def tell(ask: HealthClient) -> None:
        assert (await ask("/debug/consistent"))[:2] == (200, '{"consistent":true}')
        assert (await ask("/debug/broken"))[:2] == (500, "failed; the log says why\n")

    story(tell, answers={"/debug/consistent": fine, "/debug/broken": broken})


def test_what_is_not_served_is_not_there() -> None:
    async def tell(ask: HealthClient) -> None:
        for path in ("/", "/debug", "/debug/", "/metrics/", "/healthz/x", "/../etc/passwd"):
            assert (await ask(path)).status == 404, path
        assert (await ask("/metrics", method="DELETE")).status == 405
        assert (await ask("/healthz?" + "a" * 5000)).status == 400
        assert (await ask("/healthz", headers={"X-Long": "a" * 9000})).status == 400

    story(tell)


def test_beyond_this_machine_a_token_is_needed() -> None:
    warden = Warden()

    async def tell(ask: HealthClient) -> None:
        assert (await ask("/healthz")).status == 200
        assert (await ask("/readyz")).status == 200
        assert warden.asked == []
        without = await ask("/metrics")
        assert (without.status, without.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (await ask("/metrics", headers={"Authorization": "Basic cmVhZGVy"})).status == 401
        assert (await ask("/metrics", token="stranger")).status == 403
        assert (await ask("/metrics", token="reader")).status == 200
        assert (await ask("/metrics", token="reader", method="HEAD")).status == 200
        assert (await ask("/configz", token="reader")).status == 403
        assert (
            await ask("/nothing", token="reader")
        ).status == 403  # the answer does not reveal which paths exist
        assert (await ask("/debug/snapshot", token="reader", method="POST")).status == 403
        assert warden.asked[-1] == ("/debug/snapshot", "post")
        assert {verb for _, verb in warden.asked} == {"get", "post"}
        warden.is_down = True
        assert (await ask("/metrics", token="reader")).status == 503

    story(tell, address=OUTSIDE, authorise=warden)


def test_beyond_loopback_without_authorization_only_health_is_served() -> None:
    async def tell(ask: HealthClient) -> None:
        assert (await ask("/healthz")).status == 200
        for path in ("/metrics", "/configz", "/nothing"):
            assert (await ask(path, token="reader")).status == 403

    story(tell, address=OUTSIDE)


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_what_counts_as_this_machine(address: str, is_local: bool) -> None:
    assert http_server.is_loopback(address) is is_local


def test_a_port_that_is_taken_names_its_holder_and_the_setting_and_nothing_stays_open() -> None:
    async def tell(ask: HealthClient) -> None:
        with pytest.raises(errors.InputError) as refusal:
            async with served(port=ask._port):
                pass
        message = str(refusal.value)
        assert f"cannot be served on 127.0.0.1 port {ask._port}: process {os.getpid()} (" in message
        assert "set serving.port to another port or 0" in message
        assert (await ask("/healthz")).status == 200

    story(tell)


def test_an_address_of_another_machine_names_the_settings() -> None:
    async def tell(ask: HealthClient) -> None:
        with pytest.raises(errors.InputError, match=r"192\.0\.2\.1 .* set serving\.address"):
            async with served(address="192.0.2.1"):  # RFC 5737: no machine has it
                pass

    story(tell)


def test_a_port_without_a_listener_has_no_holder() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert port_holder.holder_of(bound.getsockname()[1]) == "another process"
