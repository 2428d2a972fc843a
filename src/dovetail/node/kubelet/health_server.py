"""The service DRAResourceHealth in its two versions: sends the state of devices to the kubelet while it listens.

Given a HealthService, which repeats the list often enough. The kubelet shows a device's state in the status of the pods
that use it, and takes it for unknown when no list comes for HOLD_SECONDS. Never judges a device.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from dovetail.node.kubelet import method_handlers
from dovetail.node.kubelet.claim_service import DeviceHealth, HealthService, HealthState
from dovetail.node.kubelet.wire import health_v1_pb2, health_v1alpha1_pb2

SUPPORTED: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
HOLD_SECONDS: Final = 60  # three lists of a HealthService, which repeats after at most 20 seconds
MAX_MESSAGE_CHARACTERS: Final = 1024  # the kubelet cuts there
_MESSAGES: Final[Mapping[str, ModuleType]] = {"v1": health_v1_pb2, "v1alpha1": health_v1alpha1_pb2}
# HealthStatus of the protocol
_NUMBERS: Final = {HealthState.UNKNOWN: 0, HealthState.HEALTHY: 1, HealthState.UNHEALTHY: 2}

LOG = logging.getLogger("dovetail.node.health")
_T = TypeVar("_T")


class HealthServer:
    """Serves any number of streams until `close`."""

    def __init__(self, service: HealthService) -> None:
        self._service = service
        self._closing = asyncio.Event()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """One per version of the interface."""
        return [self._handler(version, messages) for version, messages in _MESSAGES.items()]

    def close(self) -> None:
        """Ends the streams: they would keep the server from stopping."""
        self._closing.set()

    def _handler(self, version: str, messages: ModuleType) -> grpc.GenericRpcHandler:
        async def watch(request: Any, context: method_handlers.Context) -> AsyncIterator[Message]:
            LOG.info("health.stream.opened", extra={"version": version})
            try:
                async for devices in _until(self._closing, self._service.changes()):
                    yield _response(messages, devices)
            except Exception:
                # The stream ends with an error, and the kubelet opens another after a pause.
                LOG.exception("health.stream.broken")
                raise
            finally:
                LOG.info("health.stream.closed", extra={"version": version})

        return method_handlers.service_handler(
            f"{version}.DRAResourceHealth",
            {
                "NodeWatchResources": method_handlers.Streaming(
                    messages.NodeWatchResourcesRequest, watch
                )
            },
        )


async def _until(end: asyncio.Event, values: AsyncIterator[_T]) -> AsyncIterator[_T]:
    """The values until the event is set, also while the next one is awaited."""
    ending = asyncio.create_task(end.wait())
    try:
        while not end.is_set():
            coming = asyncio.ensure_future(anext(values))
            try:
                await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                yield coming.result()
            except StopAsyncIteration:
                return
            finally:
                if not coming.done():
                    coming.cancel()
                    with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                        await coming
    finally:
        ending.cancel()
        if hasattr(values, "aclose"):
            await values.aclose()


def _response(messages: ModuleType, devices: Sequence[DeviceHealth]) -> Message:
    response: Message = messages.NodeWatchResourcesResponse()
    for device in devices:
        response.devices.add(  # type: ignore[attr-defined]  # one of two generated classes
            device=messages.DeviceIdentifier(
                pool_name=device.pool_name, device_name=device.device_name
            ),
            health=_NUMBERS[device.state],
            last_updated_time=device.last_updated_seconds,
            health_check_timeout_seconds=HOLD_SECONDS,
            message=device.message[:MAX_MESSAGE_CHARACTERS],
        )
    return response
