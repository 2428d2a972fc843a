"""How busy the GPUs of a cluster are now, from a Prometheus, for tables that people look at.

Given an address, or the scheduler's configuration, which names one. A Prometheus that does not answer is a sentence,
not a failure: the table is shown without use. Never queries unless an address is known.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final

from dovetail import errors
from dovetail.tables.work import gpu_holdings

if TYPE_CHECKING:
    from dovetail.telemetry.measured_devices import MeasuredDevice
    from dovetail.telemetry.prometheus_api import Endpoint

EVERY_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 5.0
NOTHING: Final = gpu_holdings.Measured()


def endpoint_of(url: str | None, file: str | None) -> Endpoint | None:
    """The Prometheus to ask: the given one, else that of the scheduler's configuration file."""
    if url is None and file is None:
        return None
    from dovetail.files import configuration_file
    from dovetail.telemetry import prometheus_api

    if url:
        return prometheus_api.Endpoint(url=url, timeout_seconds=TIMEOUT_SECONDS)
    if file is None:
        return None
    source = configuration_file.load(file).metrics.prometheus
    if not source.url:
        return None
    return prometheus_api.Endpoint(
        url=source.url,
        token_file=source.token_file,
        ca_file=source.ca_file,
        timeout_seconds=TIMEOUT_SECONDS,
    )


def measured_now(endpoint: Endpoint) -> tuple[gpu_holdings.Measured, str]:
    """What is measured, and what is wrong if nothing is."""
    from dovetail.boot import clocks
    from dovetail.telemetry import prometheus_api, prometheus_devices

    async def read() -> list[MeasuredDevice]:
        async with prometheus_api.Prometheus(endpoint) as prometheus:
            source = prometheus_devices.PrometheusDevices(prometheus, clock=clocks.SystemClock())
            return await source.now()

    try:
        devices = asyncio.run(read())
    except errors.DovetailError as error:
        return NOTHING, str(error)
    if not devices:
        return NOTHING, f"{endpoint.url} has no metrics of GPUs of the last minutes"
    return measured(devices), ""


def measured(devices: list[MeasuredDevice]) -> gpu_holdings.Measured:
    """The newest sample of each device, and of each pod on devices that pods share."""
    from dovetail.model.dcgm_fields import Field
    from dovetail.telemetry import measured_devices

    by_device: dict[gpu_holdings.DeviceId, float] = {}
    by_pod: dict[tuple[gpu_holdings.DeviceId, str], float] = {}
    for device in devices:
        points = measured_devices.busiest(device)
        if not points:
            continue
        for name in device.names:
            by_device[name] = points[-1][1] / 100
            for holding, figures in device.holders.items():
                own = figures.get(Field.GPU_UTIL, ())
                if holding.vgpu and holding.pod_uid and own:
                    by_pod[name, holding.pod_uid] = own[-1][1] / 100
    return gpu_holdings.Measured(by_device, by_pod)


class Following:
    """The newest measurements, read now and then by a thread while a picture is shown."""

    def __init__(self, endpoint: Endpoint | None) -> None:
        self.measured = NOTHING
        self.problem = ""
        if endpoint is not None:
            # A daemon: leaving the picture does not wait for an answer.
            threading.Thread(target=self._follow, args=(endpoint,), daemon=True).start()

    def _follow(self, endpoint: Endpoint) -> None:
        while True:
            self.measured, problem = measured_now(endpoint)
            self.problem = f"USED is n/a: {problem}" if problem else ""
            time.sleep(EVERY_SECONDS)
