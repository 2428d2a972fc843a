"""TLS with real certificates: whom we trust, what we show, what stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from aiohttp import web

from dovetail import errors
from dovetail.devcluster import certificates
from dovetail.kube.auth import client_config, credentials, exec_plugin
from dovetail.kube.http import tls, transport
from dovetail.ports import failures
from tests.kube import serving
from tests.support import real


class Keys:
    """An authority, a server's certificate and two users'."""

    def __init__(self, directory: Path) -> None:
        authority = certificates.Authority(directory)
        self.authority = authority.pair.certificate
        self.server = authority.server("server")
        self.ann = authority.client("ann", ["people"])
        self.bob = authority.client("bob")
        self.stranger = certificates.Authority(directory / "other").pair.certificate

    def context(self) -> ssl.SSLContext:
        """A server that takes users' certificates."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        made.load_cert_chain(self.server.certificate, self.server.key)
        made.verify_mode = ssl.CERT_OPTIONAL
        return made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    try:
        yield Keys(tmp_path_factory.mktemp("keys"))
    except certificates.OpensslMissing as missing:
        real.missing(str(missing))


async def who(request: web.Request) -> web.Response:
    """Answers the common name of the user's certificate and the bearer token."""
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert") or {}
    names = dict(entry[0] for entry in peer.get("subject", ()))
    return serving.answer(
        {"name": names.get("commonName", ""), "token": request.headers.get("Authorization", "")}
    )


def ask(
    keys: Keys,
    *,
    handler: serving.Handler = who,
    given: dict[str, Any] | None = None,
    **connected: Any,
) -> Any:
    """What the server answers to a connection, to both of our clients."""
    pooled, brief = (
        _asked(keys, handler, given, dict(connected), is_brief=is_brief)
        for is_brief in (False, True)
    )
    assert pooled == brief
    return brief


def _asked(
    keys: Keys,
    handler: serving.Handler,
    given: dict[str, Any] | None,
    connected: dict[str, Any],
    *,
    is_brief: bool,
) -> Any:
    async def main() -> Any:
        async with serving.serving(handler, context=keys.context()) as url:
            connection = client_config.Connection(
                server=url,
                authority=connected.pop("authority", keys.authority.read_bytes()),
                credentials=credentials.Credentials(**(given or {})),
                **connected,
            )
            async with transport.Transport(connection, is_brief=is_brief) as over:
                return msgspec.json.decode((await over.request("GET", "/")).body)

    return asyncio.run(main())


def test_certificates_from_files_and_inline(keys: Keys) -> None:
    assert ask(keys)["name"] == ""
    files = {"certificate_file": str(keys.ann.certificate), "key_file": str(keys.ann.key)}
    assert ask(keys, given=files)["name"] == "ann"
    inline = {"certificate": keys.bob.certificate.read_bytes(), "key": keys.bob.key.read_bytes()}
    assert ask(keys, given=inline)["name"] == "bob"


def test_a_server_of_another_authority_is_not_trusted(keys: Keys) -> None:
    with pytest.raises(failures.Unavailable, match="certificate verify failed"):
        ask(keys, authority=keys.stranger.read_bytes())
    with pytest.raises(failures.Unavailable, match="certificate verify failed"):
        ask(keys, authority=b"")
    assert ask(keys, authority=b"", is_insecure=True)["name"] == ""


def test_the_name_is_checked_and_can_be_another_than_the_address(keys: Keys) -> None:
    with pytest.raises(failures.Unavailable, match="certificate verify failed"):
        ask(keys, server_name="elsewhere.example")
    assert ask(keys, server_name="kubernetes.default.svc")["name"] == ""


def test_old_protocols_are_not_spoken(keys: Keys) -> None:
    context = tls.context(client_config.Connection(server="https://x"), credentials.Identity())
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_invalid_authority_is_reported_when_the_transport_opens(keys: Keys) -> None:
    with pytest.raises(errors.InputError, match="authority is not PEM"):
        ask(keys, authority=b"nonsense")


@pytest.mark.parametrize(
    "given",
    [
        {"certificate": b"nonsense", "key": b"nonsense"},
        {"certificate": "ann.certificate", "key": "bob.key"},
        {"certificate": "ann.certificate", "key": "ann.certificate"},
    ],
)
def test_certificates_that_cannot_be_used_are_refused(keys: Keys, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, str):
            owner, _, part = value.partition(".")
            given[name] = getattr(getattr(keys, owner), part).read_bytes()
    with pytest.raises(failures.Unauthorised, match="client certificate and key cannot be used"):
        ask(keys, given=given)


def test_an_encrypted_key_is_refused_instead_of_asking_for_a_password(
    keys: Keys, tmp_path: Path
) -> None:
    encrypted = tmp_path / "key"
    command = [
        "openssl",
        "pkcs8",
        "-topk8",
        "-in",
        keys.ann.key,
        "-out",
        encrypted,
        "-passout",
        "pass:x",
    ]
    subprocess.run(command, check=True, capture_output=True)
    given = {"certificate": keys.ann.certificate.read_bytes(), "key": encrypted.read_bytes()}
    with pytest.raises(failures.Unauthorised, match="must not be encrypted"):
        ask(keys, given=given)


def test_inline_keys_leave_nothing_behind(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    identity = credentials.Identity(
        (), keys.ann.certificate.read_bytes(), keys.ann.key.read_bytes()
    )
    connection = client_config.Connection(server="https://x")
    before = set(os.listdir("/proc/self/fd"))
    tls.context(connection, identity)
    assert set(os.listdir("/proc/self/fd")) == before
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls.context(connection, identity)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_brief", [False, True], ids=["pooled", "brief"])
def test_a_renewed_certificate_is_shown_on_a_new_connection(keys: Keys, is_brief: bool) -> None:
    """A kept connection would go on as the old user."""
    pairs = [keys.ann, keys.bob]

    async def issue(plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        pair = pairs.pop(0)
        return exec_plugin.Issued(
            certificate=pair.certificate.read_bytes(), key=pair.key.read_bytes()
        )

    async def only_bob(request: web.Request) -> web.Response:
        answer = await who(request)
        assert isinstance(answer.body, bytes)
        return answer if b"bob" in answer.body else serving.refusal(401, "Unauthorized")

    plugin = exec_plugin.Plugin(command="x", api_version=exec_plugin.API_VERSIONS[0])

    async def main() -> None:
        async with serving.serving(only_bob, context=keys.context()) as url:
            connection = client_config.Connection(server=url, authority=keys.authority.read_bytes())
            source = credentials.Source(credentials.Credentials(plugin=plugin), issue=issue)
            async with transport.Transport(connection, source=source, is_brief=is_brief) as over:
                assert (await over.request("GET", "/")).status == 200

    asyncio.run(main())
    assert pairs == []


def test_a_watch_given_up_leaves_no_socket_behind(keys: Keys) -> None:
    """TLS shutdown waits for the peer's close_notify; the loop may be gone by then."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        async with serving.serving(handler, context=keys.context()) as url:
            connection = client_config.Connection(server=url, authority=keys.authority.read_bytes())
            async with transport.Transport(connection) as over:
                lines = over.lines("/watch")
                assert await anext(lines) == b"{}"
                before = len(os.listdir("/proc/self/fd"))
                await lines.aclose()
                await asyncio.sleep(0)
                assert len(os.listdir("/proc/self/fd")) < before

    asyncio.run(main())


class SilentServer:
    """Takes connections and requests, never answers, nor takes part in the end of a connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self.port = self._listening.getsockname()[1]
        self.has_request = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listening, *self._taken):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._taken.append(plain)
            self._threads.append(threading.Thread(target=self._read, args=(plain,)))
            self._threads[-1].start()

    def _read(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has gone before its request
            connection = self._context.wrap_socket(plain, server_side=True)
            self._taken.append(connection)
            if connection.recv(1):
                self.has_request.set()


@pytest.mark.parametrize("turns", [*range(12), None], ids=lambda turns: f"after-{turns}-turns")
@pytest.mark.parametrize("is_brief", [False, True], ids=["pooled", "brief"])
def test_cancelled_requests_leave_no_connection_behind(
    keys: Keys, turns: int | None, is_brief: bool
) -> None:
    """Cancelled while they connect, after so many turns of the loop, or once the server has one."""

    async def cancelled(server: SilentServer) -> None:
        client = client_config.Connection(
            server=f"https://127.0.0.1:{server.port}", authority=keys.authority.read_bytes()
        )
        async with transport.Transport(client, is_brief=is_brief) as asking:
            requests = [asyncio.create_task(asking.request("GET", "/version")) for _ in range(3)]
            if turns is None:
                await asyncio.to_thread(server.has_request.wait)
            for _ in range(turns or 0):
                await asyncio.sleep(0)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    with SilentServer(keys.context()) as server:
        asyncio.run(cancelled(server))
        with warnings.catch_warnings(record=True) as left_open:
            warnings.simplefilter("always")
            gc.collect()
    assert not [str(item.message) for item in left_open if "unclosed" in str(item.message)]
