"""The kubelet's side of the conversation: a gRPC client that uses the sockets as the kubelet does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from dovetail.node.kubelet.wire import (
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1_pb2,
    health_v1alpha1_pb2,
    registration_v1_pb2,
)

DRIVER = "gpu.nvidia.com"
CALL_SECONDS = 45.0  # as the kubelet
DRA: dict[str, ModuleType] = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH: dict[str, ModuleType] = {"v1": health_v1_pb2, "v1alpha1": health_v1alpha1_pb2}


class Client:
    """A connection to one socket."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def info(self) -> Any:
        """GetInfo of the registration."""
        method = self._unary(
            "/pluginregistration.Registration/GetInfo", registration_v1_pb2.PluginInfo
        )
        return await method(registration_v1_pb2.InfoRequest())

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """NotifyRegistrationStatus."""
        method = self._unary(
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            registration_v1_pb2.RegistrationStatusResponse,
        )
        await method(
            registration_v1_pb2.RegistrationStatus(plugin_registered=registered, error=error)
        )

    async def prepare(
        self,
        *claims: tuple[str, str, str],
        version: str = "v1",
        seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        """Entries by claim uid. A claim is (namespace, name, uid)."""
        messages = DRA[version]
        method = self._unary(
            f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources",
            messages.NodePrepareResourcesResponse,
        )
        request = messages.NodePrepareResourcesRequest(claims=_claims(messages, claims))
        return dict((await method(request, timeout=seconds)).claims)

    async def unprepare(self, *claims: tuple[str, str, str], version: str = "v1") -> dict[str, Any]:
        """Entries by claim uid."""
        messages = DRA[version]
        method = self._unary(
            f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodeUnprepareResources",
            messages.NodeUnprepareResourcesResponse,
        )
        request = messages.NodeUnprepareResourcesRequest(claims=_claims(messages, claims))
        return dict((await method(request, timeout=CALL_SECONDS)).claims)

    def health(self, version: str = "v1") -> Any:
        """The stream of device states."""
        messages = HEALTH[version]
        method = self._channel.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.NodeWatchResourcesResponse.FromString,
        )
        return method(messages.NodeWatchResourcesRequest())

    async def raw(self, method: str, content: bytes) -> bytes:
        """Any bytes to any method."""
        answer = await self._channel.unary_unary(
            method, request_serializer=bytes, response_deserializer=bytes
        )(content, timeout=CALL_SECONDS)
        assert isinstance(answer, bytes)
        return answer

    def _unary(self, method: str, response: Any) -> Any:
        return self._channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )


@contextlib.asynccontextmanager
async def connected(socket: Path | str) -> AsyncIterator[Client]:
    """A client of this socket."""
    # Each client has its own connection, as each process has.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        yield Client(channel)


def registrations(registry: Path) -> list[Path]:
    """The sockets the kubelet would find: it leaves out hidden names."""
    if not registry.is_dir():
        return []
    return sorted(path for path in registry.iterdir() if not path.name.startswith("."))


async def service_of(registration: Path) -> Path:
    """Registers the plugin as the kubelet does; returns where it serves."""
    async with connected(registration) as client:
        info = await client.info()
        await client.notify(registered=True)
    assert info.type == "DRAPlugin"
    assert info.name == DRIVER
    return Path(info.endpoint)


def _claims(messages: ModuleType, claims: Iterable[Sequence[str]]) -> list[Any]:
    return [
        messages.Claim(namespace=namespace, name=name, uid=uid) for namespace, name, uid in claims
    ]
