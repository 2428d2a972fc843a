"""Measurements from Prometheus, as a source for history: the use of each GPU and allocation, minute by minute.

Given what one Prometheus knows about GPUs, and the allocations of the time in question. Never stores.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail.boot import clocks
from dovetail.history import backfill
from dovetail.model.accounting.records import Millis, Records
from dovetail.telemetry import prometheus_api, prometheus_devices


class PrometheusUsage:
    """Implements `ports.usage_source.UsageSource`. Use `connected`."""

    def __init__(self, devices: prometheus_devices.PrometheusDevices) -> None:
        self._devices = devices

    async def usage_between(self, start: Millis, end: Millis, known: Records) -> Records:
        """What was measured in each full minute of that time, and when nothing was."""
        minutes = [
            (minute, minute + backfill.MINUTE) for minute in range(start, end, backfill.MINUTE)
        ]
        return await self._devices.usage_of_windows(known, minutes)


@asynccontextmanager
async def connected(endpoint: prometheus_api.Endpoint) -> AsyncIterator[PrometheusUsage]:
    """The source while the connection is open."""
    async with prometheus_api.Prometheus(endpoint) as prometheus:
        devices = prometheus_devices.PrometheusDevices(prometheus, clock=clocks.SystemClock())
        yield PrometheusUsage(devices)
