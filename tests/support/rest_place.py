"""The server in memory behind HTTP, for tests: served with a kubeconfig, and asked with plain requests."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec

from dovetail.boot import clocks
from dovetail.sim.rest import local_kubeconfig, loopback_certificate, rest_server
from dovetail.sim.server.api_server import SimApi

Tree = dict[str, Any]
TOKEN = "a-token-of-tests"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@functools.cache
def certificate() -> loopback_certificate.Files:
    """Made once: it takes a tenth of a second."""
    folder = tempfile.mkdtemp(prefix="dovetail-certificate-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return loopback_certificate.kept_in(Path(folder), datetime.datetime.now(datetime.UTC))


@contextlib.asynccontextmanager
async def served(api: SimApi, folder: Path, **options: Any) -> AsyncIterator[Path]:
    """Serves while the block lasts; yields the kubeconfig."""
    files = certificate()
    async with rest_server.serve(api, token=TOKEN, certificate=files, **options) as server:
        kubeconfig = folder / "kubeconfig"
        local_kubeconfig.write(
            kubeconfig, server=server, token=TOKEN, certificate=files.certificate
        )
        yield kubeconfig


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def tree(self) -> Tree:
        """The document."""
        return msgspec.json.decode(self.body, type=Tree)


class Asker:
    """Plain requests to a server."""

    def __init__(self, server: str, token: str = TOKEN) -> None:
        trust = ssl.create_default_context(cafile=str(certificate().certificate))
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Any = None, *, status: int | None = None, **headers: str
    ) -> Answer:
        """One request; headers with underscores for hyphens. Fails if another status was expected."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        url = self._server + path
        async with self._session.request(
            method, url, data=data, headers=self._headers | sent
        ) as response:
            answer = Answer(response.status, response.headers, await response.read())
        if status is not None:
            assert answer.status == status, answer.body.decode()
        return answer

    async def get(self, path: str, **headers: str) -> Tree:
        """A document that has to be there."""
        return (await self.ask("GET", path, status=200, **headers)).tree

    async def create(self, path: str, tree: Tree) -> Tree:
        """A new object."""
        return (await self.ask("POST", path, tree, status=201)).tree

    async def patch(self, path: str, change: Any, media: str = MERGE_PATCH) -> Tree:
        """A patched object."""
        return (await self.ask("PATCH", path, change, status=200, Content_Type=media)).tree

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Tree]]:
        """The events of a watch, one after another."""
        join = "&" if "?" in path else "?"
        url = f"{self._server}{path}{join}watch=true"
        async with self._session.get(url, headers=self._headers | headers) as response:

            async def events() -> AsyncIterator[Tree]:
                async for line in response.content:
                    yield msgspec.json.decode(line, type=Tree)

            assert response.status == 200, await response.text()
            yield events()


@contextlib.asynccontextmanager
async def asked(api: SimApi | None = None, **options: Any) -> AsyncIterator[Asker]:
    """A server, and a client of it."""
    api = api or SimApi(clocks.SystemClock(), collects_all_kinds=True, is_complete=True)
    async with (
        rest_server.serve(api, token=TOKEN, certificate=certificate(), **options) as server,
        Asker(server) as asker,
    ):
        yield asker
