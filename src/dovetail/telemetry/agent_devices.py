"""Utilisation of devices straight from the node agents, for clusters without a Prometheus.

Implements `ports.device_metrics.Metrics`. Given a way to list the agents by node. Each look scrapes the agents of the
nodes in question, a few at a time and each for a bounded time and size, and keeps what they said for as long as a
frozen reading could last. An agent that does not answer has no samples, so its devices are not measured, and nothing
becomes idle by that. Raises AgentsFailure if no agent can be listed, or none of them answers. Never retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Self

import aiohttp
import msgspec

from dovetail import errors
from dovetail.files import small_files
from dovetail.model import dcgm_fields
from dovetail.model.idle import Device, Sample
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.telemetry import dcgm_series, exposition_reader, idle_samples, measured_devices
from dovetail.telemetry.measured_devices import MeasuredDevice
from dovetail.telemetry.prometheus_api import RawSeries

LOG = logging.getLogger("dovetail.metrics")
MAX_BYTES: Final = (
    8 * 1024 * 1024
)  # an agent with eight GPUs, all in slices and shared, sends 200 kB
CONNECT_SECONDS: Final = 2.0
_NAMES: Final = frozenset(
    name for field in idle_samples.FIELDS for name in dcgm_fields.names_of(field)
)

Targets = Callable[[], Awaitable[Mapping[str, str]]]  # node -> HOST:PORT of its agent


class AgentsFailure(errors.DovetailError):
    """The agents could not be listed, or none of them answered."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How agents let us in, and how much is asked at once."""

    token_file: str = ""
    timeout_seconds: float = 5.0
    concurrency: int = 32


class AgentDevices:
    """What the node agents say about GPUs. An asynchronous context, which belongs to the loop that opened it."""

    def __init__(
        self,
        targets: Targets,
        access: Access,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter | None = None,
        look_back_seconds: float = idle_samples.LOOK_BACK_SECONDS,
    ) -> None:
        self._targets = targets
        self._access = access
        self._clock = clock
        self._meter = meter_ or meter.NoMeter()
        self._look_back_seconds = look_back_seconds
        self._scrapes: dict[str, list[tuple[float, list[RawSeries]]]] = {}  # by node
        self._failing: frozenset[str] = frozenset()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._access.timeout_seconds, connect=CONNECT_SECONDS)
        # A connection per look: an agent whose address was given to another pod must not be taken for it.
        connector = aiohttp.TCPConnector(limit=self._access.concurrency, force_close=True)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """Recent samples of these devices, in percent, at times of our clock."""
        self._meter.gauge("dovetail_device_metrics_up", 0)
        addresses = await self._targets()
        nodes = {device.pool for device in devices} & addresses.keys()
        if devices and not addresses:
            raise AgentsFailure(
                "no node agent serves metrics: see that they run, and with which port (--metrics)"
            )
        await self._scrape({node: addresses[node] for node in nodes})
        self._forget(nodes)
        self._meter.gauge("dovetail_device_metrics_up", 1)

        measured = await asyncio.to_thread(_measured, dict(self._scrapes))
        samples = idle_samples.idle_samples(measured, devices)
        idle_samples.report(self._meter, devices, samples)
        return samples.measured

    async def _scrape(self, addresses: Mapping[str, str]) -> None:
        token = self._token()
        limit = asyncio.Semaphore(self._access.concurrency)
        failed: dict[str, str] = {}

        async def scrape_node(node: str, address: str) -> None:
            async with limit:
                try:
                    text = await self._text(address, token)
                except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
                    failed[node] = f"{type(error).__name__}: {error}"[:200]
                    return
            at = self._clock.now().timestamp()
            series = await asyncio.to_thread(exposition_reader.read, text, _NAMES, at=at)
            self._scrapes.setdefault(node, []).append((at, series))

        await asyncio.gather(*(scrape_node(node, address) for node, address in addresses.items()))
        self._log(failed)
        if addresses and len(failed) == len(addresses):
            node, why = min(failed.items())
            raise AgentsFailure(f"none of {len(failed)} node agents answers; that of {node}: {why}")

    async def _text(self, address: str, token: str) -> str:
        assert self._session is not None, "used as a context"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://{address}/metrics"
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ValueError(f"the answer is larger than {MAX_BYTES >> 20} MiB")
        return body.decode("utf-8")

    def _token(self) -> str:
        """Read for each look, as tokens are renewed on disk."""
        file = self._access.token_file
        if not file:
            return ""
        try:
            return small_files.content(file).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AgentsFailure(
                f"{file}: the token for the node agents cannot be read: {error}"
            ) from None

    def _forget(self, nodes: Collection[str]) -> None:
        """Drops what is too old, and nodes that nothing asks about."""
        oldest = self._clock.now().timestamp() - self._look_back_seconds
        kept: dict[str, list[tuple[float, list[RawSeries]]]] = {}
        for node in nodes:
            recent = [scrape for scrape in self._scrapes.get(node, []) if scrape[0] > oldest]
            if recent:
                kept[node] = recent
        self._scrapes = kept

    def _log(self, failed: Mapping[str, str]) -> None:
        """Says once which agents began to fail."""
        new = sorted(failed.keys() - self._failing)
        if new:
            LOG.warning(
                "metrics.agents.failing: their devices are not measured",
                extra={"nodes": len(failed), "first": new[0], "why": failed[new[0]]},
            )
        self._failing = frozenset(failed)


def _measured(
    scrapes: Mapping[str, Sequence[tuple[float, list[RawSeries]]]],
) -> list[MeasuredDevice]:
    """Devices of all nodes; an agent speaks for the node it was asked as, and for no other."""
    devices: list[MeasuredDevice] = []
    for node, listed in scrapes.items():
        merged: dict[tuple[tuple[str, str], ...], RawSeries] = {}
        for _, series in listed:
            for labels, points in series:
                key = tuple(sorted(labels.items()))
                merged.setdefault(key, RawSeries(labels, [])).points.extend(points)
        for device in measured_devices.measured(dcgm_series.read(merged.values())):
            own = frozenset(name for name in device.names if name.pool == node)
            devices.append(device._replace(names=own))
    return devices
