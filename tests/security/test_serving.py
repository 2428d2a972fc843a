"""The scheduler's own server: no way to files, no room for floods, and nothing for strangers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.boot import http_server
from tests.boot.test_serving import OUTSIDE, HealthClient, Warden, served, story

TRAVERSALS = (
    "/debug/snapshot/../../etc/passwd",
    "/debug/snapshot?path=../../etc/passwd",
    "/debug/snapshot%2f..%2f..%2fetc%2fpasswd",
    "/metrics/../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "//etc/passwd",
    "/etc/passwd",
    "/.git/config",
    "/debug/",
    "/debug/pprof",
)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_to_a_file(path: str) -> None:
    taken: list[str] = []

    async def snapshot() -> str:
        taken.append("here")
        return "snapshots/1"

    async def tell(ask: HealthClient) -> None:
        for method in ("GET", "POST"):
            messages = await ask(path, method=method)
            assert "root:" not in messages.text
            assert messages.status in (200, 404, 405)
        assert messages.status != 200 or messages.text == '{"path": "snapshots/1"}', (
            "where it is written is not the caller's"
        )

    story(tell, snapshot=snapshot)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/metrics?" + "x" * 10_000, {}),
        ("/" + "x" * 10_000, {}),
        ("/metrics", {"headers": {"X-Long": "y" * 20_000}}),
        ("/metrics", {"headers": {f"X-{number}": "y" * 100 for number in range(1_000)}}),
    ],
    ids=["query", "path", "header", "headers"],
)
def test_requests_larger_than_any_honest_one_are_refused(
    path: str, options: dict[str, Any]
) -> None:
    async def tell(ask: HealthClient) -> None:
        assert (await ask(path, **options)).status == 400
        assert (await ask("/healthz")).status == 200

    story(tell)


def test_a_body_is_neither_read_nor_kept() -> None:
    async def snapshot() -> str:
        return "x"

    async def tell(ask: HealthClient) -> None:
        messages = await ask("/debug/snapshot", method="POST", data=b"z" * 900_000)
        assert messages.status in (200, 413)
        assert (await ask("/healthz")).status == 200

    story(tell, snapshot=snapshot)


@pytest.mark.parametrize(
    "path", ["/metrics", "/configz", "/debug/consistent", "/debug/snapshot", "/nothing"]
)
def test_strangers_beyond_this_machine_hear_nothing_but_health(path: str) -> None:
    warden = Warden()

    async def consistent() -> dict[str, bool]:
        return {}

    async def tell(ask: HealthClient) -> None:
        for headers in (
            {},
            {"Authorization": "Basic cmVhZGVy"},
            {"Authorization": "Bearer "},
            {"Authorization": "x"},
        ):
            assert (await ask(path, headers=dict(headers))).status == 401
        assert (await ask(path, token="wrong")).status == 403
        assert (await ask(path, token="x" * 5_000)).status == 403
        assert (await ask("/healthz")).status == (await ask("/readyz")).status == 200
        for spelled in (f"/healthz/..{path}", f"/healthz/%2e%2e{path}", f"//healthz{path}"):
            assert (await ask(spelled)).status in (401, 404), spelled

    story(tell, address=OUTSIDE, authorise=warden, answers={"/debug/consistent": consistent})


def test_a_header_cannot_pretend_to_be_this_machine() -> None:
    async def snapshot() -> str:
        return "x"

    async def yes(token: str, path: str, verb: str) -> bool:
        return True

    async def main() -> None:
        async with served(address=OUTSIDE, authorise=yes, snapshot=snapshot) as ask:
            headers = {
                "X-Forwarded-For": "127.0.0.1",
                "Forwarded": "for=127.0.0.1",
                "Host": "localhost",
            }
            assert (await ask("/metrics", headers=headers)).status == 401

    asyncio.run(main())
    assert not http_server.is_loopback("10.0.0.1")
    assert not http_server.is_loopback("127.0.0.1.example.com")
