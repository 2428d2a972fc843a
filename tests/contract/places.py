"""Where a contract test runs: a server in memory, the same over HTTP, or a real one; and unique names."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dovetail.boot import clocks
from dovetail.devcluster import control_plane
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import Api, Target
from dovetail.sim.server import builtin_kinds
from dovetail.sim.server.api_server import SimApi
from tests.support import cluster, rest_place, waiting

Tree = dict[str, Any]


class Place(Protocol):
    """A server."""

    namespace: str

    def connected(self) -> contextlib.AbstractAsyncContextManager[Api]:
        """The server, for as long as the block lasts."""
        ...

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Waits until the controllers have made the condition true; fails if they do not."""
        ...


class InMemory:
    """A fresh server in memory."""

    def __init__(self) -> None:
        self.namespace = "contract"

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Api]:
        self._api = SimApi(namespaces=[self.namespace], is_complete=True)
        yield self._api

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        self._api.settle()
        assert await holds(), "the controllers have settled, and the condition does not hold"


class OverHttp:
    """A fresh server in memory behind HTTP, with its controllers running, reached through our client."""

    def __init__(self) -> None:
        self.namespace = "contract"

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Api]:
        api = SimApi(
            clocks.SystemClock(),
            namespaces=[self.namespace],
            collects_all_kinds=True,
            is_complete=True,
        )
        async with contextlib.AsyncExitStack() as open_:
            folder = open_.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-rest-"))
            kubeconfig = await open_.enter_async_context(rest_place.served(api, Path(folder)))
            connection = client_config.load(str(kubeconfig))
            opened = await open_.enter_async_context(transport.Transport(connection))
            yield client.KubeApi(opened)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await waiting.until(holds, "the server's controllers")


class OnServer:
    """A namespace on a real server."""

    def __init__(self, plane: control_plane.ControlPlane) -> None:
        self._plane = plane
        self.namespace = cluster.fresh_namespace(plane)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Api]:
        async with transport.Transport(client_config.load(str(self._plane.kubeconfig))) as opened:
            yield client.KubeApi(opened)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await waiting.until(holds, "the server's controllers")


class TreeClient:
    """A client that takes and returns trees instead of bytes."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def create(self, tree: Tree, *, subresource: str = "", brief: bool = False) -> Tree:
        kind = _KINDS[tree["kind"]]
        place = self.namespace if kind.is_namespaced else ""
        name = tree["metadata"]["name"] if subresource else ""
        return parsed(
            await self.api.create(
                Target(kind, place, name, subresource), encoded(tree), brief=brief
            )
        )

    async def bind(self, pod: str, node: str, **metadata: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, **metadata},
            "target": {"kind": "Node", "name": node},
        }
        await self.api.create(self.at("Pod", pod, "binding"), encoded(body))

    @property
    def node(self) -> str:
        """A node name for this test alone: the garbage collector may delete pods of missing nodes at any time."""
        return f"{self.namespace}-node"

    async def find(self, kind: str, name: str) -> Tree | None:
        try:
            return await self.get(kind, name)
        except failures.Missing:
            return None

    async def get(self, kind: str, name: str) -> Tree:
        return parsed(await self.api.get(self.at(kind, name)))

    async def patch(
        self,
        kind: str,
        name: str,
        change: Tree,
        *,
        sub: str = "",
        brief: bool = False,
        adds: bool = False,
    ) -> Tree:
        return parsed(
            await self.api.patch(self.at(kind, name, sub), encoded(change), brief=brief, adds=adds)
        )

    async def delete(self, kind: str, name: str, **conditions: str) -> None:
        await self.api.delete(self.at(kind, name), **conditions)

    def at(self, kind: str, name: str, subresource: str = "") -> Target:
        known = _KINDS[kind]
        return Target(known, self.namespace if known.is_namespaced else "", name, subresource)


def run_story(place: Place, story: Callable[[TreeClient], Awaitable[None]]) -> None:
    """Runs a test's story against a server."""

    async def main() -> None:
        async with place.connected() as api:
            await story(TreeClient(api, place.namespace))

    asyncio.run(main())


def fresh(prefix: str) -> str:
    """A unique name, also for cluster-scoped objects on a shared server."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def encoded(tree: Tree) -> bytes:
    return msgspec.json.encode(tree)


def parsed(document: bytes) -> Tree:
    return msgspec.json.decode(document, type=Tree)


_KINDS = {
    kind.name: kind
    for kind in (
        *registry.WATCHED,
        registry.NAMESPACE,
        registry.TEMPLATE,
        registry.LEASE,
        registry.EVENT,
        *registry.STORAGE,
        builtin_kinds.LIMIT_RANGE,
        builtin_kinds.RESOURCE_QUOTA,
        builtin_kinds.PRIORITY_CLASS,
        builtin_kinds.SERVICE_ACCOUNT,
    )
}
