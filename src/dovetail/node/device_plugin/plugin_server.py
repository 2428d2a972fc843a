"""The service DevicePlugin of one resource: lists its devices to the kubelet and names them for containers.

Given the devices and which GPUs are unfit; both may change while streams are open. Refuses ids it does not list, since
the kubelet may have them from an earlier time. Never counts: the kubelet does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from dovetail.node.device_plugin import cdi_devices, preferred_allocation
from dovetail.node.device_plugin.resources import PluginDevice, Resource
from dovetail.node.kubelet import method_handlers
from dovetail.node.kubelet.wire import device_plugin_v1beta1_pb2 as messages

API_VERSION: Final = "v1beta1"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

LOG = logging.getLogger("dovetail.node.device_plugin")


class PluginServer:
    """One resource."""

    def __init__(
        self,
        resource: Resource,
        *,
        spread: preferred_allocation.Spread = preferred_allocation.Spread.DISTRIBUTED,
    ) -> None:
        self.resource = resource
        self._spread = spread
        self._unfit: frozenset[int] = frozenset()
        self._version = 0
        self._changed = asyncio.Event()
        self._is_closing = False

    def options(self) -> messages.DevicePluginOptions:
        """What the kubelet may call."""
        return messages.DevicePluginOptions(get_preferred_allocation_available=True)

    def update(self, resource: Resource, unfit: Collection[int]) -> None:
        """These are the devices now; those of unfit GPUs, by minor number, get no new containers."""
        if resource == self.resource and frozenset(unfit) == self._unfit:
            return
        self.resource = resource
        self._unfit = frozenset(unfit)
        self._wake()

    def close(self) -> None:
        """Ends the streams: they would keep the server from stopping."""
        self._is_closing = True
        self._wake()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The one version there is."""
        unary = method_handlers.Unary
        methods: dict[str, method_handlers.Unary | method_handlers.Streaming] = {
            "GetDevicePluginOptions": unary(messages.Empty, self._get_options),
            "ListAndWatch": method_handlers.Streaming(messages.Empty, self._list_and_watch),
            "GetPreferredAllocation": unary(messages.PreferredAllocationRequest, self._prefer),
            "Allocate": unary(messages.AllocateRequest, self._allocate),
            "PreStartContainer": unary(messages.PreStartContainerRequest, self._pre_start),
        }
        return [method_handlers.service_handler("v1beta1.DevicePlugin", methods)]

    def _wake(self) -> None:
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _get_options(self, request: Any, context: method_handlers.Context) -> Message:
        return self.options()

    async def _list_and_watch(
        self, request: Any, context: method_handlers.Context
    ) -> AsyncIterator[Message]:
        sent = -1
        while not self._is_closing:
            changed = self._changed
            if sent != self._version:
                sent = self._version
                yield self._listed()
            else:
                await changed.wait()

    def _listed(self) -> Message:
        return messages.ListAndWatchResponse(
            devices=[self._described(device) for device in self.resource.devices]
        )

    def _described(self, device: PluginDevice) -> messages.Device:
        node = device.gpu.numa_node
        topology = (
            None if node is None else messages.TopologyInfo(nodes=[messages.NUMANode(ID=node)])
        )
        is_fit = device.gpu.minor not in self._unfit
        return messages.Device(
            ID=device.id, health=HEALTHY if is_fit else UNHEALTHY, topology=topology
        )

    async def _prefer(self, request: Any, context: method_handlers.Context) -> Message:
        response = messages.PreferredAllocationResponse()
        for container in request.container_requests:
            ids = preferred_allocation.preferred(
                self.resource.devices,
                available=set(container.available_deviceIDs),
                required=list(container.must_include_deviceIDs),
                size=container.allocation_size,
                spread=self._spread,
            )
            response.container_responses.add(deviceIDs=ids)
        return response

    async def _allocate(self, request: Any, context: method_handlers.Context) -> Message:
        by_id = {device.id: device for device in self.resource.devices}
        response = messages.AllocateResponse()
        for container in request.container_requests:
            unknown = [id_ for id_ in container.devices_ids if id_ not in by_id]
            if unknown:
                shown = ", ".join(id_[:80] for id_ in unknown[:3])
                words = (
                    f"{self.resource.name}: {len(unknown)} devices are not on this node: {shown}"
                )
                LOG.warning("device_plugin.refused", extra={"why": words})
                await context.abort(grpc.StatusCode.NOT_FOUND, words)
            # Two replicas of one GPU are one device for the container.
            uuids = dict.fromkeys(by_id[id_].uuid for id_ in container.devices_ids)
            names = [messages.CDIDevice(name=cdi_devices.device_id(uuid)) for uuid in uuids]
            response.container_responses.add(cdi_devices=names)
        count = len(response.container_responses)
        LOG.info(
            "device_plugin.allocated",
            extra={"resource": self.resource.name, "containers": count},
        )
        return response

    async def _pre_start(self, request: Any, context: method_handlers.Context) -> Message:
        return messages.PreStartContainerResponse()
