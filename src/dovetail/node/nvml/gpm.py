"""Activity of GPUs and MIG devices between two readings, through NVML's GPM, which Hopper and newer GPUs have.

Keeps one sample for each GPU and GPU instance, a few kilobytes each; a reading compares the new one with it. Samples
belong to one opening of the library and are forgotten with it. Called from one thread at a time. Never waits for a
second sample.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from dovetail.node.device_use import Activity
from dovetail.node.nvml.answers import existing, optional
from dovetail.node.nvml.session import Opened

_PERCENT: Final = 100.0
Key = tuple[str, int | None]  # uuid of the GPU, id of the GPU instance


class Gpm:
    """The samples of one node."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        self._samples: dict[Key, Any] = {}
        self._request: Any = None

    def activity(
        self, opened: Opened, handle: Any, uuid: str, *, gi_id: int | None = None
    ) -> Activity:
        """Since the reading before; empty for the first one, and where there is no GPM."""
        if self._opened is not opened:
            # Samples of an earlier opening went with it, and must not be freed.
            self._opened, self._samples, self._request = opened, {}, None
        support = optional(opened, opened.nvml.nvmlGpmQueryDeviceSupport, handle)
        if support is None or not support.isSupportedDevice:
            return Activity()

        key = (uuid, gi_id)
        sample = self._sample(opened, handle, gi_id)
        before = self._samples.pop(key, None)
        if sample is None:
            self._free(opened, before)
            return Activity()
        self._samples[key] = sample
        if before is None:
            return Activity()
        try:
            return self._compared(opened, before, sample)
        finally:
            self._free(opened, before)

    def keep_only(self, keys: set[Key]) -> None:
        """Forgets GPUs and partitions that are gone."""
        for key in [key for key in self._samples if key not in keys]:
            if self._opened is not None:
                self._free(self._opened, self._samples.pop(key))

    def _sample(self, opened: Opened, handle: Any, gi_id: int | None) -> Any | None:
        nvml = opened.nvml
        sample = nvml.nvmlGpmSampleAlloc()
        try:
            if gi_id is None:
                result = existing(opened, nvml.nvmlGpmSampleGet, handle, sample)
            else:
                result = existing(opened, nvml.nvmlGpmMigSampleGet, handle, gi_id, sample)
        except BaseException:
            self._free(opened, sample)
            raise
        if result is None:
            self._free(opened, sample)
        return result

    def _compared(self, opened: Opened, before: Any, sample: Any) -> Activity:
        nvml = opened.nvml
        if self._request is None:  # 19 KB
            self._request = nvml.c_nvmlGpmMetricsGet_t()
        request = self._request
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 2
        request.sample1, request.sample2 = before, sample
        request.metrics[0].metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        request.metrics[1].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        if optional(opened, nvml.nvmlGpmMetricsGet, request) is None:
            return Activity()
        return Activity(
            engine=_ratio(request.metrics[0]), multiprocessors=_ratio(request.metrics[1])
        )

    def _free(self, opened: Opened, sample: Any) -> None:
        if sample is not None:
            with contextlib.suppress(opened.nvml.NVMLError):
                opened.nvml.nvmlGpmSampleFree(sample)


def _ratio(metric: Any) -> float | None:
    if metric.nvmlReturn != 0 or not 0.0 <= metric.value <= _PERCENT:
        return None
    return float(metric.value) / _PERCENT
