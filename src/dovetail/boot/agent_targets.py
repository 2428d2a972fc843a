"""Finds the node agents that serve metrics: the ready endpoints of their Service, by node.

Given a transport and the Service. Reads its EndpointSlices, which are small, and again only after a minute. Never
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.kube import client
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, registry
from dovetail.ports import clock as clocks

FRESH_SECONDS: Final = 60.0
SERVICE_LABEL: Final = "kubernetes.io/service-name"  # on every slice of a Service
PORT_NAME: Final = "metrics"
ENDPOINT_SLICE: Final = registry.Kind(
    "discovery.k8s.io/v1",
    "EndpointSlice",
    "endpointslices",
    is_namespaced=True,
    struct=codec.Generic,
)


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    addresses: tuple[str, ...] = ()
    node_name: str = ""
    conditions: _Conditions = _Conditions()


class _Port(msgspec.Struct, frozen=True):
    name: str | None = None
    port: int | None = None


class _Slice(msgspec.Struct, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None
    ports: tuple[_Port, ...] | None = None


class AgentTargets:
    """The agents behind one Service. Call it: node -> HOST:PORT."""

    def __init__(
        self, over: transport.Transport, clock: clocks.Clock, *, namespace: str, service: str
    ) -> None:
        self._over = over
        self._clock = clock
        self._namespace = namespace
        self._service = service
        self._listed_at: float | None = None
        self._addresses: Mapping[str, str] = {}

    async def __call__(self) -> Mapping[str, str]:
        """At most a minute old. Raises as any request does."""
        now = self._clock.monotonic()
        if self._listed_at is None or now - self._listed_at >= FRESH_SECONDS:
            documents, _ = await client.list_documents(
                self._over,
                ENDPOINT_SLICE,
                namespace=self._namespace,
                params={"labelSelector": f"{SERVICE_LABEL}={self._service}"},
            )
            self._addresses = await asyncio.to_thread(addresses, documents)
            self._listed_at = now
        return self._addresses


def addresses(documents: Iterable[bytes]) -> dict[str, str]:
    """By node, the agent's address. An endpoint that is not ready, or on no node, is none."""
    by_node: dict[str, str] = {}
    for document in documents:
        slice_ = msgspec.json.decode(document, type=_Slice)
        ports = [each.port for each in slice_.ports or () if each.name == PORT_NAME and each.port]
        for endpoint in slice_.endpoints or ():
            is_ready = endpoint.conditions.ready is not False
            if ports and is_ready and endpoint.node_name and endpoint.addresses:
                host = endpoint.addresses[0]
                shown = f"[{host}]" if ":" in host else host
                by_node[endpoint.node_name] = f"{shown}:{ports[0]}"
    return by_node
