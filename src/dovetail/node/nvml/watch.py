"""Notices within seconds when GPUs come, go, change their MIG mode or partitions, or the driver is replaced.

Given the control of a node and its session. Asks a few cheap questions every other second, reads everything only when
their answers change, and yields an inventory only when it differs from the last. One thread asks about all GPUs; each
GPU is asked in its own lane only while one of them fails or hangs. A driver that is not there is an inventory without
GPUs; one that does not answer at all changes nothing until it does. Never acts on a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.node import gpu_control
from dovetail.node.health_reading import GpuEvent
from dovetail.node.inventory import Inventory
from dovetail.node.nvml import discovery, events, procfs
from dovetail.node.nvml.answers import existing, optional, text
from dovetail.node.nvml.control import NvmlControl
from dovetail.node.nvml.session import Opened, Session, side_by_side
from dovetail.ports import clock as clocks

LOG = logging.getLogger("dovetail.node.gpus")
POLL_SECONDS: Final = 2.0
SWEEP_SECONDS: Final = 2.0  # for all GPUs in one thread; the fake ones take a millisecond
SWEEP_LANE: Final = "all GPUs"
EVENT_SECONDS: Final = 1.0

NO_DRIVER: Final = Inventory(driver_version="", cuda_driver_version="", gpus=())

# The answers to the cheap questions: comparable, otherwise meaningless.
Fingerprint = tuple[object, ...]


class GpuWatch:
    """The GPUs of one node over time."""

    def __init__(
        self,
        session: Session,
        control: NvmlControl,
        *,
        clock: clocks.Clock,
        proc_root: Path = Path("/proc"),
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._session = session
        self._control = control
        self._clock = clock
        self._proc_root = proc_root
        self._poll_seconds = poll_seconds
        self._waiter = events.EventWaiter(session)
        self._module = procfs.kernel_module(proc_root)

    async def changes(self) -> AsyncIterator[Inventory]:
        """The inventory now, and again whenever it differs from the last. Never ends by itself."""
        last: Inventory | None = None
        seen: Fingerprint | None = None
        while True:
            fingerprint = await asyncio.to_thread(self._fingerprint)
            if fingerprint != seen or last is None:
                inventory = await asyncio.to_thread(self._inventory)
                if inventory is not None:
                    seen = fingerprint
                    if last is None or _comparable(inventory) != _comparable(last):
                        last = inventory
                        self._waiter.register_again()
                        _log(inventory)
                        yield inventory
            await self._clock.sleep(self._poll_seconds)

    async def events(self) -> AsyncIterator[GpuEvent]:
        """What the driver reports by itself. Never ends by itself."""
        while True:
            try:
                collected = await asyncio.to_thread(self._waiter.wait, EVENT_SECONDS)
            except gpu_control.GpuFailure as failure:
                LOG.warning("gpus.events_failed error=%s", failure)
                await self._clock.sleep(self._poll_seconds)
                continue
            for event in collected:
                yield event

    def _inventory(self) -> Inventory | None:
        """Everything; None while the driver as a whole does not answer."""
        try:
            return self._control.inventory()
        except gpu_control.DriverUnavailable:
            return NO_DRIVER
        except gpu_control.GpuFailure as failure:
            LOG.warning("gpus.scan_failed error=%s", failure)
            return None

    def _fingerprint(self) -> Fingerprint:
        module = procfs.kernel_module(self._proc_root)
        if module != self._module:
            # NVML knows the GPUs that were there when it was opened.
            self._module = module
            self._session.reopen()
        try:
            return (module, *self._swept())
        except gpu_control.GpuFailure:
            # Which of them it was, and what the others answer, takes a lane for each.
            return (module, *self._asked_apart())

    def _swept(self) -> Fingerprint:
        """The driver and all GPUs in one thread: one wake-up instead of one for each GPU."""

        def job(opened: Opened) -> Fingerprint:
            versions = discovery.read_versions(opened)
            marks = [_mark(opened, index) for index in range(versions.gpu_count)]
            return (versions, *marks)

        # While a sweep hangs, its lane is closed: the next poll asks apart without waiting for it.
        return self._session.read(SWEEP_LANE, job, doing="look at all GPUs", seconds=SWEEP_SECONDS)

    def _asked_apart(self) -> Fingerprint:
        try:
            versions = self._session.read(
                "driver", discovery.read_versions, doing="read the driver's version"
            )
        except gpu_control.GpuFailure as failure:
            return (type(failure),)
        marks = side_by_side(self._mark_or_failure, range(versions.gpu_count))
        return (versions, *marks)

    def _mark_or_failure(self, index: int) -> object:
        try:
            return self._session.read(
                discovery.lane_of_index(index),
                lambda opened: _mark(opened, index),
                doing=f"look at GPU at index {index}",
            )
        except gpu_control.GpuFailure as failure:
            return type(failure)


def _mark(opened: Opened, index: int) -> object:
    """Which GPU is there, and how it is partitioned."""
    nvml = opened.nvml
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode = optional(opened, nvml.nvmlDeviceGetMigMode, handle)
    is_partitioned = mode is not None and bool(mode[0])
    partitions = _partitions(opened, handle) if is_partitioned else ()
    return (text(nvml.nvmlDeviceGetUUID(handle)), tuple(mode or ()), partitions)


def _partitions(opened: Opened, handle: Any) -> tuple[str, ...]:
    """The uuids of MIG devices; empty places are skipped."""
    nvml = opened.nvml
    uuids: list[str] = []
    for index in range(optional(opened, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = existing(opened, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is None:
            continue
        uuid = existing(opened, nvml.nvmlDeviceGetUUID, device)
        if uuid is not None:
            uuids.append(text(uuid))
    return tuple(sorted(uuids))


def _comparable(inventory: Inventory) -> Inventory:
    """Without words that change from one reading to the next."""
    unread = tuple(msgspec.structs.replace(gpu, reason="") for gpu in inventory.unread)
    return msgspec.structs.replace(inventory, unread=unread)


def _log(inventory: Inventory) -> None:
    LOG.info(
        "gpus.found driver=%s gpus=%d unread=%d",
        inventory.driver_version or "none",
        len(inventory.gpus),
        len(inventory.unread),
    )
    for gpu in inventory.unread:
        LOG.warning("gpus.unread index=%d minor=%s reason=%s", gpu.index, gpu.minor, gpu.reason)
