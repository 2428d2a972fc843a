"""Requests over real sockets to a server that misbehaves on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube.auth import client_config, credentials, exec_plugin
from dovetail.kube.http import transport
from dovetail.ports import failures
from tests.kube import serving
from tests.support import jumping


class Client:
    """Which client reads: the one of long-lived processes, or the one of commands."""

    is_brief = False


@pytest.fixture(autouse=True, params=[False, True], ids=["pooled", "brief"])
def _client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "is_brief", request.param)


def connected(connection: client_config.Connection, **options: Any) -> transport.Transport:
    return transport.Transport(connection, is_brief=Client.is_brief, **options)


def test_a_request_carries_what_was_asked_for_and_nothing_else() -> None:
    seen: list[web.Request] = []
    bodies: list[bytes] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request)
        bodies.append(await request.read())
        return web.Response(
            status=201, body=b'{"a":1}', headers={"X-Said": "yes", "Set-Cookie": "a=b"}
        )

    def over_prefix(url: str) -> transport.Transport:
        return connected(serving.connection(f"{url}/prefix", token="secret"))

    async def main() -> None:
        async with serving.serving(handler) as url, over_prefix(url) as over:
            for _ in range(2):
                answer = await over.request(
                    "PATCH",
                    "/apis/x%2Fy",
                    params={"fieldManager": "dove tail"},
                    body=b"{}",
                    content_type="application/merge-patch+json",
                    accept="application/json;as=X",
                )
        assert (answer.status, answer.body, answer.headers["x-said"]) == (201, b'{"a":1}', "yes")

    asyncio.run(main())
    request = seen[1]
    assert request.raw_path == "/prefix/apis/x%2Fy?fieldManager=dove+tail"
    assert bodies == [b"{}", b"{}"]
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.headers["Accept"] == "application/json;as=X"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["User-Agent"].startswith("dovetail/")
    assert "Cookie" not in request.headers
    assert seen[0].transport is seen[1].transport, "the connection was not kept"


def test_redirects_and_proxies_of_the_environment_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url, token="t")) as over,
        ):
            assert (await over.request("GET", "/here")).status == 302

    asyncio.run(main())
    assert asked == ["/here"]


def test_a_silent_server_is_unavailable_after_the_timeout() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            with pytest.raises(failures.Unavailable, match=r"GET /x: no answer within 0.05 s"):
                await over.request("GET", "/x", timeout=0.05)

    asyncio.run(main())


def test_a_body_that_never_ends_is_unavailable_after_the_timeout() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            with pytest.raises(failures.Unavailable):
                await over.request("GET", "/x", timeout=0.05)

    asyncio.run(main())


def test_a_refused_connection_and_a_reset_are_unavailable() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            for method in ("GET", "POST"):
                with pytest.raises(failures.Unavailable, match=f"{method} /x: "):
                    await over.request(method, "/x", body=None if method == "GET" else b"{}")
        async with connected(serving.connection(url)) as over:
            with pytest.raises(
                failures.Unavailable, match=r"GET /x: cannot connect to 127.0.0.1:\d+: Connect"
            ):
                await over.request("GET", "/x")

    asyncio.run(main())


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_a_write_that_broke_midway_is_never_sent_again_behind_the_callers_back(method: str) -> None:
    writes: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        if request.method != "GET":
            writes.append(request.method)
            assert request.transport is not None
            request.transport.abort()
        return web.Response()

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            await over.request("GET", "/warm")  # the write then goes over a kept connection
            with pytest.raises(failures.Unavailable):
                await over.request(method, "/x", body=b"{}")

    asyncio.run(main())
    assert writes == [method]


def test_an_encoding_that_was_not_requested_is_refused() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            with pytest.raises(failures.Unavailable, match="gzip"):
                await over.request("GET", "/x")
            with pytest.raises(failures.Unavailable, match="gzip"):
                await anext(over.lines("/x"))

    asyncio.run(main())


def test_no_more_requests_at_once_than_allowed_and_watches_do_not_count() -> None:
    at_once = most = 0
    let_go = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal at_once, most
        if request.path == "/watch":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"{}\n")
            await let_go.wait()
            return response
        at_once += 1
        most = max(most, at_once)
        if most == 3:
            let_go.set()
        await let_go.wait()
        at_once -= 1
        return web.Response()

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url), concurrency=3) as over,
        ):
            watches = [over.lines("/watch") for _ in range(5)]
            for watch in watches:
                assert await anext(watch) == b"{}"
            await asyncio.gather(*(over.request("GET", f"/{number}") for number in range(20)))
            for watch in watches:
                await watch.aclose()

    asyncio.run(main())
    assert most == 3


def test_waiting_for_a_slot_counts_against_the_timeout() -> None:
    let_go = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await let_go.wait()
        return web.Response()

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url), concurrency=1) as over,
        ):
            first = asyncio.create_task(over.request("GET", "/first"))
            await asyncio.sleep(0)
            with pytest.raises(failures.Unavailable):
                await over.request("GET", "/second", timeout=0.05)
            let_go.set()
            assert (await first).status == 200

    asyncio.run(main())


# Credentials that are refused


PLUGIN = exec_plugin.Plugin(command="plugin", api_version=exec_plugin.API_VERSIONS[0])


def over_plugin(url: str, issue: credentials.Issue) -> transport.Transport:
    given = credentials.Credentials(plugin=PLUGIN)
    return connected(
        serving.connection(url, plugin=PLUGIN), source=credentials.Source(given, issue=issue)
    )


def test_refused_credentials_are_renewed_once_for_all_who_wait() -> None:
    asked: list[str] = []
    runs = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Authorization"])
        if request.headers["Authorization"] != "Bearer token-2":
            return serving.refusal(401, "Unauthorized")
        return web.Response(body=b"{}\n")

    async def issue(plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0)
        return exec_plugin.Issued(token=f"token-{runs}")

    async def main() -> None:
        async with serving.serving(handler) as url, over_plugin(url, issue) as over:
            answers = await asyncio.gather(*(over.request("GET", "/x") for _ in range(8)))
            assert [answer.status for answer in answers] == [200] * 8
            assert [line async for line in over.lines("/x")] == [b"{}"]

    asyncio.run(main())
    assert runs == 2
    assert asked.count("Bearer token-1") == 8


def test_a_watch_renews_refused_credentials_too() -> None:
    runs = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        is_known = request.headers["Authorization"] == "Bearer token-2"
        return web.Response(body=b"{}\n") if is_known else serving.refusal(401, "Unauthorized")

    async def issue(plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        nonlocal runs
        runs += 1
        return exec_plugin.Issued(token=f"token-{runs}")

    async def main() -> None:
        async with serving.serving(handler) as url, over_plugin(url, issue) as over:
            assert [line async for line in over.lines("/x")] == [b"{}"]

    asyncio.run(main())
    assert runs == 2


def test_credentials_that_stay_refused_end_in_the_servers_words() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return serving.refusal(401, "Unauthorized", "who are you")

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url, token="t")) as over,
        ):
            assert (await over.request("GET", "/x")).status == 401
            with pytest.raises(failures.Unauthorised, match="who are you"):
                await anext(over.lines("/x"))

    asyncio.run(main())
    assert asked == 2, "the same credentials were tried twice"


def test_a_plugin_that_fails_during_a_watch_leaves_nothing_open() -> None:
    runs = 0

    async def handler(request: web.Request) -> web.Response:
        return serving.refusal(401, "Unauthorized")

    async def issue(plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        nonlocal runs
        runs += 1
        if runs > 1:
            raise failures.Unauthorised("plugin is broken")
        return exec_plugin.Issued(token="t")

    async def main() -> None:
        async with serving.serving(handler) as url, over_plugin(url, issue) as over:
            with pytest.raises(failures.Unauthorised, match="plugin is broken"):
                await anext(over.lines("/x"))

    asyncio.run(main())


# Lines


def streamed(*pieces: bytes, is_cut: bool = False) -> serving.Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if is_cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


def lines_of(
    handler: serving.Handler, *, silence: float = 0.0
) -> list[bytes | failures.ApiFailure]:
    """The lines, and the failure that ended them if one did; after each line so many seconds of silence pass."""

    async def main() -> list[bytes | failures.ApiFailure]:
        events: list[bytes | failures.ApiFailure] = []
        async with (
            serving.serving(handler) as url,
            connected(serving.connection(url)) as over,
        ):
            try:
                async for line in over.lines("/watch", {"watch": "true"}, idle_timeout=60.0):
                    events.append(line)
                    jumping.jump(silence)
            except failures.ApiFailure as failure:
                events.append(failure)
        return events

    return jumping.run(main())


def test_lines_come_whole_however_they_were_cut() -> None:
    assert lines_of(streamed(b"a", b"b\nc", b"\n", b"d\n\ne\n")) == [b"ab", b"c", b"d", b"", b"e"]


def test_a_line_far_beyond_any_buffer_comes_whole() -> None:
    long = b"x" * 5_000_000
    assert lines_of(streamed(long + b"\nshort\n")) == [long, b"short"]


def test_a_line_cut_short_is_left_out() -> None:
    assert lines_of(streamed(b"a\nhal")) == [b"a"]
    events = lines_of(streamed(b"a\nhal", is_cut=True))
    assert [line for line in events if isinstance(line, bytes)] in ([b"a"], [])
    assert type(events[-1]) is failures.Unavailable


def test_endless_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 1000)
    events = lines_of(streamed(b"a\n", b"x" * 2000))
    assert events[0] == b"a"
    assert type(events[-1]) is failures.Unavailable


def test_silence_is_a_dead_connection() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a\n")
        await asyncio.Event().wait()
        return response

    events = lines_of(handler, silence=61)
    assert events[0] == b"a"
    assert type(events[1]) is failures.Unavailable
    assert "silent for 60 s" in str(events[1])


def test_a_refused_watch_raises_what_the_server_said() -> None:
    async def handler(request: web.Request) -> web.Response:
        response = serving.refusal(429, "TooManyRequests")
        response.headers["Retry-After"] = "2"
        return response

    (failure,) = lines_of(handler)
    assert isinstance(failure, failures.Throttled)
    assert failure.retry_after == 2


def test_splitting_agrees_with_the_plain_way_for_any_pieces() -> None:
    text = b"one\ntwo\n\nthree\nfo"

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for start in range(0, len(text), size):
            yield text[start : start + size]

    async def main() -> None:
        for size in range(1, len(text) + 1):
            assert [line async for line in transport.split_lines(pieces(size))] == text.split(
                b"\n"
            )[:-1], size

    asyncio.run(main())


# What is shown


def test_nothing_shown_holds_a_secret() -> None:
    connection = serving.connection(
        "http://127.0.0.1:1",
        token="s3cret-token",
        password="s3cret-word",
        key=b"s3cret-key",
        plugin=exec_plugin.Plugin(
            command="p", api_version="v1", args=("s3cret-arg",), environment=(("A", "s3cret"),)
        ),
    )
    identity = credentials.Identity(
        (("Authorization", "Bearer s3cret"),), b"certificate", b"s3cret"
    )
    issued = exec_plugin.Issued(token="s3cret", key=b"s3cret")
    for shown in (
        connection,
        connection.credentials,
        connected(connection),
        identity,
        issued,
    ):
        assert "s3cret" not in repr(shown)
        assert "s3cret" not in str(shown)


def test_a_transport_must_be_open() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await connected(serving.connection("http://127.0.0.1:1")).request("GET", "/")

    asyncio.run(main())


def test_reads_share_a_connection_and_replace_one_that_the_server_closed() -> None:
    sockets: list[object] = []

    async def handler(request: web.Request) -> web.Response:
        sockets.append(request.transport)
        response = web.Response(body=b"read")
        if request.path == "/last":
            response.force_close()
        return response

    async def main() -> None:
        async with serving.serving(handler) as url, connected(serving.connection(url)) as over:
            for path in ("/a", "/last", "/b"):
                assert (await over.request("GET", path)).body == b"read"

    asyncio.run(main())
    assert sockets[0] is sockets[1]
    assert sockets[1] is not sockets[2]


def test_a_body_in_chunks_comes_whole() -> None:
    pieces = [b"x" * size for size in (1, 70_000, 3_000_000)]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    async def main() -> None:
        async with serving.serving(handler) as url, connected(serving.connection(url)) as over:
            for _ in range(2):
                assert (await over.request("GET", "/")).body == b"".join(pieces)

    asyncio.run(main())


def test_a_server_that_speaks_something_else_is_unavailable() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, connected(serving.connection(f"http://127.0.0.1:{port}")) as over:
            with pytest.raises(failures.Unavailable):
                await over.request("GET", "/")

    asyncio.run(main())
