"""Serves the resources of a node to the kubelet, and registers again whenever the kubelet has started again.

Given inventories and the health of GPUs. A kubelet that starts empties its directory of plugins and makes a new socket:
both are looked for every second. A resource that disappears keeps its socket and lists nothing, so that the kubelet
counts zero. Never serves GPUs that claims use: `mode_conflicts` is asked before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import grpc

from dovetail.node.cdi.claim_specs import Paths
from dovetail.node.cdi.driver_root import DriverRoot
from dovetail.node.device_plugin import plugin_server, preferred_allocation, resources
from dovetail.node.device_plugin.cdi_devices import CdiDevices
from dovetail.node.device_plugin.mode_conflicts import SOCKET_PREFIX
from dovetail.node.inventory import Inventory
from dovetail.node.kubelet import unix_server
from dovetail.node.kubelet.wire import device_plugin_v1beta1_pb2 as messages

KUBELET_SOCKET: Final = "kubelet.sock"
LOOK_SECONDS: Final = 1.0
REGISTER_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 10.0

LOG = logging.getLogger("dovetail.node.device_plugin")


class _Served:
    """One resource with its server and the kubelet it is registered with."""

    def __init__(
        self, resource: resources.Resource, folder: Path, spread: preferred_allocation.Spread
    ) -> None:
        self.plugin = plugin_server.PluginServer(resource, spread=spread)
        self.path = folder / f"{SOCKET_PREFIX}{resource.short_name}.sock"
        self.server = unix_server.UnixServer(self.path, self.plugin.handlers())
        self.kubelet: tuple[int, int] | None = None  # inode and time of its socket

    async def stop(self, *, grace_seconds: float) -> None:
        self.server.withdraw()
        self.plugin.close()
        await self.server.stop(grace_seconds=grace_seconds)


class DevicePlugins:
    """All resources of one node. `run` beside it keeps them registered."""

    def __init__(
        self,
        folder: Path,
        root: DriverRoot,
        paths: Paths,
        *,
        options: resources.OfferOptions,
        spread: preferred_allocation.Spread = preferred_allocation.Spread.DISTRIBUTED,
    ) -> None:
        self._folder = folder
        self._cdi = CdiDevices(root, paths)
        self._options = options
        self._spread = spread
        self._inventory: Inventory | None = None
        self._unfit: frozenset[int] = frozenset()
        self._served: dict[str, _Served] = {}
        self._awake = asyncio.Event()
        self._is_serving = False
        self._syncing = asyncio.Lock()

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet knows every resource."""
        return bool(self._served) and all(served.kubelet for served in self._served.values())

    def update(self, inventory: Inventory) -> None:
        """These GPUs are there now."""
        self._inventory = inventory
        self._awake.set()

    def judge(self, unfit: Collection[int]) -> None:
        """These GPUs, by minor number, are unfit for new work."""
        self._unfit = frozenset(unfit)
        self._awake.set()

    async def start(self) -> None:
        """Serves from now on."""
        unix_server.remove_dead_sockets(self._folder.glob(f"{SOCKET_PREFIX}*.sock"))
        self._is_serving = True
        await self.sync()

    async def stop(self) -> None:
        """Ends all servers; the kubelet notices by their streams."""
        async with self._syncing:
            self._is_serving = False
            for served in self._served.values():
                await served.stop(grace_seconds=GRACE_SECONDS)
            self._served.clear()

    async def run(self) -> None:
        """Follows changes of GPUs and of the kubelet until cancelled."""
        while True:
            await self.sync()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._awake.wait()
            except TimeoutError:
                continue
            self._awake.clear()

    async def sync(self) -> None:
        """Brings files, servers and registrations in line with what is known now."""
        async with self._syncing:
            await self._sync()

    async def _sync(self) -> None:
        inventory = self._inventory
        if not self._is_serving or inventory is None:
            return
        offered = resources.resources(inventory, self._options)
        if offered:
            # Before the kubelet can name a device in it.
            await asyncio.to_thread(
                self._cdi.write, offered, driver_version=inventory.driver_version
            )
        await self._serve(offered)
        await self._register()

    async def _serve(self, offered: Sequence[resources.Resource]) -> None:
        by_name = {resource.name: resource for resource in offered}
        for name, served in self._served.items():
            served.plugin.update(by_name.get(name, resources.Resource(name, ())), self._unfit)
        for resource in offered:
            known = self._served.get(resource.name)
            if known is not None and known.server.is_in_place():
                continue
            if known is not None:  # a kubelet that started has removed its socket
                await known.stop(grace_seconds=0)
            served = _Served(resource, self._folder, self._spread)
            served.plugin.update(resource, self._unfit)
            await served.server.start()
            self._served[resource.name] = served

    async def _register(self) -> None:
        kubelet = _identity(self._folder / KUBELET_SOCKET)
        for name, served in self._served.items():
            if kubelet is None:
                served.kubelet = None
            elif served.kubelet != kubelet and await self._register_one(name, served):
                served.kubelet = kubelet

    async def _register_one(self, name: str, served: _Served) -> bool:
        request = messages.RegisterRequest(
            version=plugin_server.API_VERSION,
            endpoint=served.path.name,
            resource_name=name,
            options=served.plugin.options(),
        )
        target = f"unix:{self._folder / KUBELET_SOCKET}"
        try:
            async with grpc.aio.insecure_channel(target) as channel:
                register = channel.unary_unary(
                    "/v1beta1.Registration/Register",
                    request_serializer=messages.RegisterRequest.SerializeToString,
                    response_deserializer=messages.Empty.FromString,
                )
                await register(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            LOG.warning(
                "device_plugin.not_registered: tries again",
                extra={"resource": name, "why": error.details()},
            )
            return False
        LOG.info("device_plugin.registered", extra={"resource": name})
        return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns)
