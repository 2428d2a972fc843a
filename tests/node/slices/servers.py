"""Servers for publishers: the embedded one behind HTTP, or a real one, with a node of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from dovetail.boot import clocks
from dovetail.devcluster import control_plane
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from tests.support import rest_place

Tree = dict[str, Any]


class Node(NamedTuple):
    """One node on a server."""

    over: transport.Transport
    name: str

    @property
    def api(self) -> client.KubeApi:
        """For single objects."""
        return client.KubeApi(self.over)

    async def slices(self) -> list[Tree]:
        """All slices of the node, in the order of their names."""
        documents, _ = await client.list_documents(
            self.over, registry.SLICE, params={"fieldSelector": f"spec.nodeName={self.name}"}
        )
        trees: list[Tree] = [msgspec.json.decode(document) for document in documents]
        return sorted(trees, key=lambda tree: str(tree["metadata"]["name"]))

    async def read(self) -> Tree:
        """The Node object."""
        document = await self.api.get(Target(registry.NODE, name=self.name))
        return dict(msgspec.json.decode(document))

    async def patch(self, change: Tree) -> None:
        """Changes the Node object as another writer."""
        await self.api.patch(Target(registry.NODE, name=self.name), msgspec.json.encode(change))


class Place(Protocol):
    """Where a story runs."""

    def node(self) -> contextlib.AbstractAsyncContextManager[Node]:
        """A fresh node, for as long as the block lasts."""
        ...


class Embedded:
    """A fresh embedded server behind HTTP."""

    @contextlib.asynccontextmanager
    async def node(self) -> AsyncIterator[Node]:
        """A fresh node."""
        api = SimApi(clocks.SystemClock(), namespaces=["default"], is_complete=True)
        with tempfile.TemporaryDirectory(prefix="dovetail-rest-") as folder:
            async with (
                rest_place.served(api, Path(folder)) as kubeconfig,
                _opened(kubeconfig) as at,
            ):
                yield at


class Real:
    """A real API server."""

    def __init__(self, plane: control_plane.ControlPlane) -> None:
        self._plane = plane

    @contextlib.asynccontextmanager
    async def node(self) -> AsyncIterator[Node]:
        """A fresh node, deleted with its slices."""
        async with _opened(self._plane.kubeconfig) as at:
            try:
                yield at
            finally:
                for tree in await at.slices():
                    await at.api.delete(Target(registry.SLICE, name=tree["metadata"]["name"]))
                await at.api.delete(Target(registry.NODE, name=at.name))


def run(place: Place, story: Callable[[Node], Awaitable[None]]) -> None:
    """Runs a story with a node of its own."""

    async def main() -> None:
        async with place.node() as node:
            await story(node)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def _opened(kubeconfig: Path) -> AsyncIterator[Node]:
    async with transport.Transport(client_config.load(str(kubeconfig))) as over:
        node = Node(over, f"gpu-node-{uuid.uuid4().hex[:8]}")
        tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
        await node.api.create(Target(registry.NODE), msgspec.json.encode(tree))
        yield node
