"""Watches the GPUs of a node: readings every few seconds, events at once; passes on every change of their faults.

Given a source of readings and events, a policy and a clock. Calls of the driver run in threads and may hang: a hanging
driver makes the GPUs unmonitored, it does not stop the agent. Never evicts; taints and reports are others' work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from dovetail.node import gpu_control
from dovetail.node.health import device_taints, gpu_health
from dovetail.node.health.gpu_health import GpuHealth
from dovetail.node.health.health_record import HealthRecord
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.node.health.readings import (
    Event,
    GpuReading,
    GpuReset,
    HealthSource,
    XidEvent,
)
from dovetail.node.kubelet.claim_service import DeviceHealth
from dovetail.ports import clock as clock_port

READING_SECONDS: Final = 5.0
RESEND_SECONDS: Final = 20.0  # the kubelet calls a device unknown after 30 s without word

_LOG: Final = logging.getLogger(__name__)

DevicesOf = Callable[[int], Sequence[str]]  # the names of a GPU's devices, by its minor number


class HealthMonitor:
    """The faults of all GPUs now, and who wants to hear of changes."""

    def __init__(
        self,
        source: HealthSource,
        *,
        policy: HealthPolicy,
        record: HealthRecord,
        clock: clock_port.Clock,
    ) -> None:
        self._source = source
        self._policy = policy
        self._record = record
        self._clock = clock
        self._healths: dict[int, GpuHealth] = record.read()
        self._changed = asyncio.Condition()
        self._version = 0

    @property
    def healths(self) -> Mapping[int, GpuHealth]:
        """By minor number."""
        return self._healths

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_readings())
            tasks.create_task(self._follow_events())

    async def changes(self) -> AsyncIterator[Mapping[int, GpuHealth]]:
        """The faults now, and again after each change."""
        seen = -1
        while True:
            async with self._changed:
                while seen == self._version:
                    await self._changed.wait()
                seen = self._version
            yield dict(self._healths)

    async def observe(self, readings: Sequence[GpuReading], events: Sequence[Event] = ()) -> None:
        """Takes readings and events into account."""
        now = self._clock.now().timestamp()
        healths = dict(self._healths)
        for event in events:
            self._apply(event, healths, now=now)
        for reading in readings:
            health = healths.get(reading.minor, GpuHealth(reading.minor))
            healths[reading.minor] = gpu_health.after_reading(
                health, reading, self._policy, now=now
            )
        await self._replace(healths)

    def _apply(self, event: Event, healths: dict[int, GpuHealth], *, now: float) -> None:
        if isinstance(event, GpuReset):
            health = healths.get(event.minor, GpuHealth(event.minor))
            healths[event.minor] = gpu_health.after_reset(health, self._policy)
            return
        minors = list(healths) if event.minor is None else [event.minor]
        for minor in minors:
            health = healths.get(minor, GpuHealth(minor))
            healths[minor] = gpu_health.after_xid(health, event.code, now=now)

    async def _replace(self, healths: dict[int, GpuHealth]) -> None:
        differs = _meaning(healths) != _meaning(self._healths)
        self._healths = healths
        try:
            await asyncio.to_thread(self._record.write, healths)
        except OSError as error:
            _LOG.warning("health.record.unwritable: %s", error)
        if differs:
            async with self._changed:
                self._version += 1
                self._changed.notify_all()

    async def _follow_readings(self) -> None:
        while True:
            await self.observe(await self._readings())
            await self._clock.sleep(READING_SECONDS)

    async def _readings(self) -> tuple[GpuReading, ...]:
        try:
            return await asyncio.to_thread(self._source.readings)
        except gpu_control.GpuFailure as failure:
            _LOG.warning("health.readings.failed: %s", failure)
            return tuple(GpuReading(minor=minor, is_monitored=False) for minor in self._healths)

    async def _follow_events(self) -> None:
        while True:
            try:
                events = await asyncio.to_thread(self._source.wait_for_events, READING_SECONDS)
            except gpu_control.GpuFailure as failure:
                _LOG.warning("health.events.failed: %s", failure)
                await self._clock.sleep(READING_SECONDS)
                continue
            for event in events:
                if isinstance(event, XidEvent):
                    _LOG.warning("health.xid code=%d gpu=%s", event.code, event.minor)
            if events:
                # With a look at what the error left behind: a reset is later concluded from what is no longer there.
                await self.observe(await self._readings(), events)


class DeviceHealthStream:
    """Serves the kubelet's health stream: every device of the pool, with the state of its GPU."""

    def __init__(
        self,
        monitor: HealthMonitor,
        *,
        policy: HealthPolicy,
        pool_name: str,
        devices_of: DevicesOf,
        clock: clock_port.Clock,
    ) -> None:
        self._monitor = monitor
        self._policy = policy
        self._pool_name = pool_name
        self._devices_of = devices_of
        self._clock = clock

    async def changes(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The whole list at once, then again after each change and at least every 20 seconds."""
        following = aiter(self._monitor.changes())
        following_change: asyncio.Task[Mapping[int, GpuHealth]] | None = None
        try:
            while True:
                if following_change is None:
                    following_change = asyncio.ensure_future(anext(following))
                yield self._states()
                await asyncio.wait({following_change}, timeout=RESEND_SECONDS)
                if following_change.done():
                    following_change.result()
                    following_change = None
        finally:
            if following_change is not None:
                following_change.cancel()

    def _states(self) -> list[DeviceHealth]:
        now = int(self._clock.now().timestamp())
        states: list[DeviceHealth] = []
        for minor, health in sorted(self._monitor.healths.items()):
            state, message = device_taints.state(health, self._policy)
            states += [
                DeviceHealth(
                    pool_name=self._pool_name,
                    device_name=name,
                    state=state,
                    last_updated_seconds=now,
                    message=message,
                )
                for name in self._devices_of(minor)
            ]
        return states


def _meaning(healths: Mapping[int, GpuHealth]) -> dict[int, list[tuple[str, int, str]]]:
    """What a change is: faults that begin, end, or happen again; not that they were seen once more."""
    return {
        minor: [(fault.name, fault.count, _coarse(fault.detail)) for fault in health.faults]
        for minor, health in healths.items()
    }


def _coarse(detail: str) -> str:
    """Counters and temperatures move all the time; a slice is not published again for that."""
    return "" if detail.isdigit() else detail
