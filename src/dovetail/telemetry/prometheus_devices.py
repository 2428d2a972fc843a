"""Measurements of devices from Prometheus: samples for the idle watch, and records of use for accounting.

Implements `ports.device_metrics.Metrics`. Asks for samples as they were scraped, never for values the server fills in,
and corrects their times by the difference between its clock and ours. Parsing runs in a thread. Raises
PrometheusFailure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dovetail.model import dcgm_fields
from dovetail.model.accounting.records import Allocation, Millis, Records
from dovetail.model.dcgm_fields import Field
from dovetail.model.idle import Device, Sample
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.telemetry import (
    dcgm_series,
    idle_samples,
    measured_devices,
    metrics_gaps,
    usage_records,
)
from dovetail.telemetry.measured_devices import MeasuredDevice
from dovetail.telemetry.prometheus_api import Prometheus, RawSeries

LOG = logging.getLogger("dovetail.metrics")
LARGE_SKEW_SECONDS: Final = 30.0
CHUNK_SECONDS: Final = 900  # of one query about a longer time
_FOR_USAGE: Final = (
    Field.GPU_UTIL,
    Field.GR_ENGINE_ACTIVE,
    Field.SM_ACTIVE,
    Field.FB_USED,
    Field.ENERGY,
    Field.TENSOR_ACTIVE,
    Field.DRAM_ACTIVE,
)
_FOR_NOW: Final = (Field.GPU_UTIL, Field.GR_ENGINE_ACTIVE, Field.SM_ACTIVE, Field.FB_USED)


class PrometheusDevices:
    """What one Prometheus knows about GPUs."""

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter | None = None,
        look_back_seconds: int = idle_samples.LOOK_BACK_SECONDS,
        frozen_seconds: float = measured_devices.FROZEN_SECONDS,
    ) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._meter = meter_ or meter.NoMeter()
        self._look_back_seconds = look_back_seconds
        self._frozen_seconds = frozen_seconds
        self._has_skew = False

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """Recent samples of these devices, in percent, at times of our clock."""
        self._meter.gauge("dovetail_device_metrics_up", 0)
        skew = await self._skew()
        raw = await self._recent(idle_samples.FIELDS, self._look_back_seconds)
        self._meter.gauge("dovetail_device_metrics_up", 1)
        found = await asyncio.to_thread(_measured, raw)
        samples = idle_samples.idle_samples(
            found, devices, skew_seconds=skew, frozen_seconds=self._frozen_seconds
        )
        idle_samples.report(self._meter, devices, samples)
        return samples.measured

    async def usage(
        self,
        allocations: Sequence[Allocation],
        assets: Collection[str],
        *,
        start: Millis,
        end: Millis,
        max_gap_seconds: float = usage_records.MAX_GAP_SECONDS,
    ) -> usage_records.Joined:
        """Records of use for a window, as the server's clock has it."""
        raw = await self._samples_between(start, end, round(max_gap_seconds))
        return await asyncio.to_thread(
            lambda: usage_records.joined(
                _measured(_merged(raw)),
                allocations=allocations,
                assets=assets,
                start=start,
                end=end,
                max_gap_seconds=max_gap_seconds,
            )
        )

    async def usage_of_windows(
        self,
        known: Records,
        windows: Sequence[tuple[Millis, Millis]],
        *,
        max_gap_seconds: float = usage_records.MAX_GAP_SECONDS,
    ) -> Records:
        """Records of use for adjoining windows, each by itself, and the gaps of all their time.

        `known` has the assets and allocations of that time. Samples are read once.
        """
        if not windows:
            return Records()
        start, end = windows[0][0], windows[-1][1]
        raw = await self._samples_between(start, end, round(max_gap_seconds))

        def join() -> Records:
            devices = _measured(_merged(raw))
            joined = [
                usage_records.joined(
                    devices,
                    allocations=known.allocations,
                    assets={asset.asset for asset in known.assets},
                    start=begun,
                    end=ended,
                    max_gap_seconds=max_gap_seconds,
                )
                for begun, ended in windows
            ]
            return Records(
                usage=tuple(usage for each in joined for usage in each.usage),
                gaps=metrics_gaps.gaps(
                    devices, known.assets, start=start, end=end, max_gap_seconds=max_gap_seconds
                ),
            )

        return await asyncio.to_thread(join)

    async def _samples_between(
        self, start: Millis, end: Millis, margin_seconds: int
    ) -> list[RawSeries]:
        raw: list[RawSeries] = []
        edge = start
        while edge < end:
            until = min(edge + CHUNK_SECONDS * 1000, end)
            # The margin has the sample before the window, from which counters grow.
            span = (until - edge) // 1000 + 1 + (margin_seconds if edge == start else 0)
            raw.extend(await self._recent(_FOR_USAGE, span, at=until / 1000))
            edge = until
        return raw

    async def now(
        self, *, within_seconds: int = idle_samples.LOOK_BACK_SECONDS
    ) -> list[MeasuredDevice]:
        """Every device that was measured lately, once."""
        raw = await self._recent(_FOR_NOW, within_seconds)
        found = await asyncio.to_thread(_measured, raw)
        return measured_devices.one_source_each(found)

    async def _recent(
        self, fields: Sequence[Field], seconds: int, *, at: float | None = None
    ) -> list[RawSeries]:
        queries = [query(field, seconds) for field in fields]
        answers = await asyncio.gather(*(self._prometheus.instant(text, at=at) for text in queries))
        return [series for answer in answers for series in answer]

    async def _skew(self) -> float:
        """The server's clock minus ours, in seconds."""
        before = self._clock.now().timestamp()
        server = await self._prometheus.now()
        after = self._clock.now().timestamp()
        skew = server - (before + after) / 2
        self._meter.gauge("dovetail_device_metrics_skew_seconds", skew)
        has_skew = abs(skew) > LARGE_SKEW_SECONDS
        if has_skew and not self._has_skew:
            LOG.warning(
                "metrics.skew: the clock of Prometheus differs from ours; times are corrected",
                extra={"seconds": round(skew, 1), "url": self._prometheus.endpoint.url},
            )
        self._has_skew = has_skew
        return skew


def query(field: Field, seconds: int) -> str:
    """Samples of a field under all of its names, as they were scraped in the last so many seconds."""
    names = "|".join(dcgm_fields.names_of(field))
    return f'{{__name__=~"{names}"}}[{max(1, seconds)}s]'


def _measured(raw: Sequence[RawSeries]) -> list[MeasuredDevice]:
    return measured_devices.measured(dcgm_series.read(raw))


def _merged(raw: Sequence[RawSeries]) -> list[RawSeries]:
    """Series of several queries as one each."""
    merged: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for series in raw:
        key = tuple(sorted(series.labels.items()))
        if key in merged:
            merged[key].points.extend(series.points)
        else:
            merged[key] = RawSeries(series.labels, list(series.points))
    return list(merged.values())
