"""A guard decides right before sending whether a write goes out; one that was held back or cancelled never does."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from dovetail.kube.auth import credentials, exec_plugin
from dovetail.kube.http import transport
from dovetail.ports import failures
from tests.kube import serving


class Gate:
    """A guard that shuts before a given question."""

    def __init__(self, opens: int) -> None:
        self.opens = opens
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked > self.opens:
            raise failures.Fenced("the lease ended")


@pytest.mark.parametrize("opens", [0, 1])
@pytest.mark.parametrize("body", [b'{"a":1}', None])
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_guard_that_shuts_at_the_last_moment_keeps_everything_back(
    opens: int, body: bytes | None, is_warm: bool
) -> None:
    received: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            received.append(data)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, transport.Transport(serving.connection(url)) as over:
            if is_warm:
                await over.request("GET", "/warm")
            before = len(received)
            gate = Gate(opens)
            with pytest.raises(failures.Fenced, match="the lease ended"):
                await over.request("POST", "/x", body=body, guard=gate)
            assert gate.asked == opens + 1
            assert (await over.request("POST", "/x", body=body, guard=Gate(2))).status == 200
            assert len(received) == before + 1, "bytes of the fenced request went out"

    asyncio.run(main())


def test_what_still_waits_to_go_out_is_taken_back_when_the_caller_gives_up() -> None:
    """A slow server must not get the rest of a write after its deadline, when another may lead already."""
    body = b"x" * 20_000_000
    may_read = asyncio.Event()

    async def main() -> int:
        received = 0
        is_over = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received
            await may_read.wait()
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    received += len(data)
            writer.close()
            is_over.set()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, transport.Transport(serving.connection(url)) as over:
            with pytest.raises(failures.Unavailable):
                await over.request("POST", "/x", body=body, timeout=0.2)
            may_read.set()
            async with asyncio.timeout(20):
                await is_over.wait()
        return received

    assert asyncio.run(main()) < len(body)


def test_the_guard_is_asked_again_for_a_repetition_with_new_credentials() -> None:
    async def handler(request: web.Request) -> web.Response:
        return serving.refusal(401, "Unauthorized")

    async def issue(plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        nonlocal issued
        issued += 1
        return exec_plugin.Issued(token=f"token-{issued}")

    plugin = exec_plugin.Plugin(command="plugin", api_version=exec_plugin.API_VERSIONS[0])
    source = credentials.Source(credentials.Credentials(plugin=plugin), issue=issue)

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url), source=source) as over,
        ):
            with pytest.raises(failures.Fenced):
                await over.request("POST", "/x", body=b"{}", guard=Gate(2))

    issued = 0
    asyncio.run(main())
