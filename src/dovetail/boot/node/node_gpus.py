"""The GPUs of a node while the agent runs: one session with the driver, and the newest inventory for everyone.

Given the places of the driver. `run` follows changes and passes each inventory on; the others read the last one without
asking the driver. Never changes a GPU.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dovetail.boot.node import node_agent
from dovetail.node.cdi.claim_specs import Paths as CdiPaths
from dovetail.node.health_reading import GpuEvent
from dovetail.node.inventory import Inventory
from dovetail.node.nvml import events
from dovetail.node.nvml.control import NvmlControl
from dovetail.node.nvml.session import Session
from dovetail.node.nvml.watch import NO_DRIVER, GpuWatch
from dovetail.node.slices import feature_labels
from dovetail.ports import clock as clocks

TOOLKIT: Final = "nvidia-ctk"  # NVIDIA's container toolkit
REMINDER_SECONDS: Final = 60.0

LOG = logging.getLogger("dovetail.node.gpus")


class NodeGpus:
    """One node's GPUs."""

    def __init__(self, options: node_agent.Options, clock: clocks.Clock) -> None:
        self.session = Session(options.visible_driver_root)
        self.control = NvmlControl(self.session, sysfs_root=options.sysfs_root)
        self.event_waiter = events.EventWaiter(self.session)
        self._last_xids: dict[str, int] = {}
        self._root = options.visible_driver_root
        self._watch = GpuWatch(self.session, self.control, clock=clock, proc_root=options.proc_root)
        self._clock = clock
        self._inventory = NO_DRIVER
        self._has_driver = asyncio.Event()
        self._listeners: list[Callable[[Inventory], None]] = []

    def inventory(self) -> Inventory:
        """The newest one; without GPUs until a driver was found."""
        return self._inventory

    def on_change(self, listener: Callable[[Inventory], None]) -> None:
        """Calls the listener with each inventory from now on."""
        self._listeners.append(listener)

    def wait_for_events(self, seconds: float) -> list[GpuEvent]:
        """What the driver reports by itself. Blocks. The last XID of each GPU is remembered."""
        collected = self.event_waiter.wait(seconds)
        for event in collected:
            if event.xid is not None:
                self._last_xids[event.uuid] = event.xid
        return collected

    def last_xids(self) -> Mapping[str, int]:
        """Codes by uuid of the GPU, since the agent started."""
        return self._last_xids

    async def driver_found(self) -> None:
        """Returns once there is a driver, and reminds the log of it meanwhile."""
        while not self._has_driver.is_set():
            try:
                async with asyncio.timeout(REMINDER_SECONDS):
                    await self._has_driver.wait()
            except TimeoutError:
                LOG.warning("gpus.waiting: no NVIDIA driver yet", extra={"driver_root": self._root})

    async def run(self) -> None:
        """Follows the GPUs until cancelled."""
        async for inventory in self._watch.changes():
            self._inventory = inventory
            for listener in self._listeners:
                listener(inventory)
            if inventory.driver_version:
                self._has_driver.set()

    async def close(self) -> None:
        """Ends the session with the driver."""
        await asyncio.to_thread(self.session.close)


def cdi_paths(options: node_agent.Options) -> CdiPaths:
    """Where CDI files go, and what their contents are made from."""
    toolkit = shutil.which(TOOLKIT)
    return CdiPaths(
        cdi_folder=options.cdi_directory,
        proc_root=options.proc_root,
        sysfs_root=options.sysfs_root,
        hook_path=str(options.nvidia_cdi_hook),
        toolkit=Path(toolkit) if toolkit else None,
    )


def machine_type(options: node_agent.Options) -> str:
    """The server's product name as its firmware states it, for the label nvidia.com/gpu.machine."""
    try:
        return (options.sysfs_root / "class/dmi/id/product_name").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return feature_labels.UNKNOWN
