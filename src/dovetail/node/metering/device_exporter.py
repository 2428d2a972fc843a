"""The text of a node's device metrics, read when Prometheus asks, at most once in a few seconds.

Given a way to read the GPUs, the prepared claims and the pods of claims. The driver and files are read in a thread, so
that a GPU that hangs delays this text and nothing else; scrapes that come together share one reading. A GPU that does
not answer is left out. Never raises: without a reading there is no text, and a metric says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from dovetail import errors
from dovetail.model import dcgm_fields, exposition
from dovetail.node.claims import checkpoint
from dovetail.node.device_use import GpuUse
from dovetail.node.inventory import Gpu, Inventory
from dovetail.node.metering import device_holders, device_series, process_pods
from dovetail.node.metering.device_holders import Holder, HolderPod
from dovetail.ports import meter
from dovetail.ports.clock import Clock

LOG = logging.getLogger("dovetail.node.metering")


class Reading(Protocol):
    """GPUs that answered, and the minor numbers of those that did not."""

    @property
    def gpus(self) -> tuple[GpuUse, ...]:
        """Those that answered."""
        ...

    @property
    def unread(self) -> tuple[int, ...]:
        """Those that did not."""
        ...


class Consumers(Protocol):
    """Which pods use a claim."""

    async def pods_of(
        self, prepared: Sequence[checkpoint.Claim], *, doubtful: Sequence[str] = ()
    ) -> Mapping[str, Sequence[HolderPod]]:
        """By claim uid."""
        ...


class Sources(NamedTuple):
    """Where figures and names come from. The functions block, except `inventory`, and are called in a thread."""

    inventory: Callable[[], Inventory]
    read: Callable[[Sequence[Gpu]], Reading]
    claims: Callable[[], Sequence[checkpoint.Claim]]
    consumers: Consumers
    last_xids: Callable[[], Mapping[str, int]]


class DeviceExporter:
    """The metrics of one node's devices."""

    def __init__(
        self,
        sources: Sources,
        *,
        node_name: str,
        fresh_seconds: float,
        clock: Clock,
        meter_: meter.Meter,
        proc_root: Path = Path("/proc"),
    ) -> None:
        self._sources = sources
        self._node_name = node_name
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._meter = meter_
        self._proc_root = proc_root
        self._lock = asyncio.Lock()
        self._text = ""
        self._read_at: float | None = None

    async def text(self) -> str:
        """All series as text, at most `fresh_seconds` old."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= self._fresh_seconds:
                self._text = await self._read()
                self._read_at = now
                self._meter.gauge(
                    "dovetail_node_device_reading_seconds", self._clock.monotonic() - now
                )
            return self._text

    async def _read(self) -> str:
        inventory = self._sources.inventory()
        try:
            reading, claims = await asyncio.to_thread(self._read_blocking, inventory)
        except errors.DovetailError as error:
            LOG.warning("metering.failed", extra={"why": str(error)})
            self._meter.count("dovetail_node_device_readings_total", result="failed")
            return ""
        pods = await self._sources.consumers.pods_of(claims)
        holders = device_holders.holders(claims, pods)

        pods_of_processes: Mapping[int, str] = {}
        if pids := _pids_on_shared(reading.gpus, holders):
            pods_of_processes = await asyncio.to_thread(
                process_pods.pods_of, pids, proc_root=self._proc_root
            )
            if doubtful := _doubtful(reading.gpus, holders, pods_of_processes):
                pods = await self._sources.consumers.pods_of(claims, doubtful=doubtful)
                holders = device_holders.holders(claims, pods)

        self._count(reading, inventory)
        series = device_series.series(
            inventory,
            reading.gpus,
            holders=holders,
            pods_of_processes=pods_of_processes,
            xids=self._sources.last_xids(),
            node_name=self._node_name,
        )
        return exposition.text(dcgm_fields.FAMILIES, series)

    def _read_blocking(self, inventory: Inventory) -> tuple[Reading, Sequence[checkpoint.Claim]]:
        # Claims first: one that is prepared in between appears with the next reading, with all of its use.
        claims = self._sources.claims()
        return self._sources.read(inventory.gpus), claims

    def _count(self, reading: Reading, inventory: Inventory) -> None:
        unread = len(reading.unread) + len(inventory.unread)
        self._meter.count(
            "dovetail_node_device_readings_total", result="partly" if unread else "ok"
        )
        self._meter.gauge("dovetail_node_gpus", len(reading.gpus), state="read")
        self._meter.gauge("dovetail_node_gpus", unread, state="unread")


def _pids_on_shared(uses: Sequence[GpuUse], holders: Mapping[str, Sequence[Holder]]) -> list[int]:
    """Processes on GPUs with several holders: only these must be told apart."""
    shared = [use for use in uses if len(holders.get(use.uuid, ())) > 1]
    return [process.pid for use in shared for process in use.processes]


def _doubtful(
    uses: Sequence[GpuUse],
    holders: Mapping[str, Sequence[Holder]],
    pods_of_processes: Mapping[int, str],
) -> list[str]:
    """Claims on GPUs that a process of a pod uses which is none of the holders: a pod that came later."""
    claims: dict[str, None] = {}
    for use in uses:
        held_by = holders.get(use.uuid, ())
        known = {holder.pod.uid for holder in held_by if holder.pod is not None}
        seen = {pods_of_processes.get(process.pid, "") for process in use.processes} - {""}
        if len(held_by) > 1 and seen - known:
            claims |= dict.fromkeys(holder.claim_uid for holder in held_by)
    return list(claims)
