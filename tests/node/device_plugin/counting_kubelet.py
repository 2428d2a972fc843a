"""The kubelet's side of the device plugin interface: a registry that calls plugins back, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from dovetail.node.kubelet import method_handlers
from dovetail.node.kubelet.wire import device_plugin_v1beta1_pb2 as messages

CALL_SECONDS = 60.0


class CountingKubelet:
    """Registers plugins and follows their lists, as the kubelet's device manager does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[Any] = []
        self.devices: dict[str, dict[str, str]] = {}  # by resource: health by id
        self.numa: dict[str, list[int]] = {}  # by id
        self._server: grpc.aio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoints: dict[str, str] = {}

    async def start(self) -> None:
        """Empties the directory as the kubelet does, then listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self.devices.clear()
        self._server = grpc.aio.server()
        handler = method_handlers.service_handler(
            "v1beta1.Registration",
            {"Register": method_handlers.Unary(messages.RegisterRequest, self._register)},
        )
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        """Ends with everything it opened."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(None)

    def count(self, resource: str) -> int:
        """What the node would show as allocatable."""
        health = self.devices.get(resource, {})
        return sum(1 for state in health.values() if state == "Healthy")

    async def allocate(self, resource: str, *containers: list[str]) -> list[list[str]]:
        """The CDI devices of each container."""
        request = messages.AllocateRequest()
        for ids in containers:
            request.container_requests.add(devices_ids=ids)
        response = await self._call(resource, "Allocate", request, messages.AllocateResponse)
        return [
            [device.name for device in container.cdi_devices]
            for container in response.container_responses
        ]

    async def prefer(self, resource: str, size: int) -> list[str]:
        """What the plugin would choose of everything healthy."""
        request = messages.PreferredAllocationRequest()
        healthy = [id_ for id_, state in self.devices[resource].items() if state == "Healthy"]
        request.container_requests.add(available_deviceIDs=healthy, allocation_size=size)
        response = await self._call(
            resource, "GetPreferredAllocation", request, messages.PreferredAllocationResponse
        )
        return list(response.container_responses[0].deviceIDs)

    async def _call(self, resource: str, method: str, request: Any, response: Any) -> Any:
        async with grpc.aio.insecure_channel(self._endpoints[resource]) as channel:
            call = channel.unary_unary(
                f"/v1beta1.DevicePlugin/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            return await call(request, timeout=CALL_SECONDS)

    async def _register(self, request: Any, context: method_handlers.Context) -> Any:
        self.requests.append(request)
        self._endpoints[request.resource_name] = f"unix:{self.folder / request.endpoint}"
        task = asyncio.create_task(self._follow(request.resource_name))
        self._tasks.add(task)
        return messages.Empty()

    async def _follow(self, resource: str) -> None:
        async with grpc.aio.insecure_channel(self._endpoints[resource]) as channel:
            watch = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=messages.Empty.SerializeToString,
                response_deserializer=messages.ListAndWatchResponse.FromString,
            )
            try:
                async for response in watch(messages.Empty()):
                    listed = {device.ID: device.health for device in response.devices}
                    self.devices[resource] = listed
                    for device in response.devices:
                        self.numa[device.ID] = [node.ID for node in device.topology.nodes]
            except grpc.aio.AioRpcError:
                pass
            # A plugin that is gone has no healthy devices.
            self.devices[resource] = dict.fromkeys(self.devices.get(resource, {}), "Unhealthy")
