"""Reads series of DCGM, under any of its names and labels, as measurements of devices.

Given series as Prometheus returns them. Old and new names mean the same field, and labels that Prometheus renamed mean
the exporter's own; a target's own pod is never taken for the holder of a GPU. Placeholders and impossible values are
dropped. Pure. Never asks a server, never joins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dovetail.model import dcgm_fields
from dovetail.model.dcgm_fields import Field
from dovetail.telemetry.prometheus_api import Point, RawSeries

_PERCENTAGES: Final = frozenset({Field.GPU_UTIL, Field.MEM_COPY_UTIL})
_RATIOS: Final = frozenset(
    {Field.GR_ENGINE_ACTIVE, Field.SM_ACTIVE, Field.TENSOR_ACTIVE, Field.DRAM_ACTIVE}
)
_FIELDS: Final = {field.value: field for field in Field} | dcgm_fields.NEW_NAMES
# Labels by which Prometheus may name the target itself.
_TARGET_LABELS: Final = ("namespace", "pod", "container", "pod_uid")
# A target with these words in its pod's name measures GPUs, it does not hold them.
_EXPORTERS: Final = ("dcgm-exporter", "node-agent")
_ROUNDING: Final = 1e-6


class Source(NamedTuple):
    """Which target, through which job, the series comes from."""

    job: str
    instance: str


class Holding(NamedTuple):
    """Who holds what is measured, as far as labels say it."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    claim_namespace: str = ""
    claim: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    vgpu: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no holder is named."""
        return not (self.pod or self.pod_uid or self.claim)


class DeviceSeries(NamedTuple):
    """Samples of one field of one GPU or MIG device, for one holder."""

    field: Field
    uuid: str
    instance_id: str  # of a GPU instance; empty for a whole GPU
    profile: str
    node: str
    minor: str
    source: Source
    holding: Holding
    points: tuple[Point, ...]


def read(raw: Iterable[RawSeries]) -> list[DeviceSeries]:
    """What is measured, in the order of the series. Series of the same thing under two names appear once."""
    listed = list(raw)
    renamed = _renamed_labels(listed)
    series: dict[tuple[object, ...], DeviceSeries] = {}
    for labels, points in listed:
        name = labels.get("__name__", "")
        field = _FIELDS.get(name)
        if field is None:
            continue
        measured = _measured(labels, points, name=name, field=field, renamed=renamed)
        if measured is None:
            continue
        key = measured[:-1]
        # The old name comes first where an exporter has both.
        if key not in series or name == field.value:
            series[key] = measured
    return list(series.values())


def usable(points: Iterable[Point], field: Field, *, factor: float = 1.0) -> tuple[Point, ...]:
    """Points in the order of time with values that can be measurements; of two at one time the larger."""
    by_time: dict[float, float] = {}
    for at, value in points:
        if not math.isfinite(value) or value < 0 or value >= dcgm_fields.LEAST_SENTINEL:
            continue
        if field is not Field.ENERGY and value in dcgm_fields.SENTINELS_32:
            continue
        scaled = value * factor
        if field in _PERCENTAGES and scaled > 100 + _ROUNDING:
            continue
        if field in _RATIOS and scaled > 1 + _ROUNDING:
            continue
        by_time[at] = max(scaled, by_time.get(at, 0.0))
    return tuple(sorted(by_time.items()))


def _measured(
    labels: dict[str, str],
    points: Sequence[Point],
    *,
    name: str,
    field: Field,
    renamed: frozenset[tuple[Source, str]],
) -> DeviceSeries | None:
    source = _source(labels)
    targets = [name for name in _TARGET_LABELS if (source, name) in renamed]
    own = _own_labels(labels, targets)
    uuid = own.get("UUID", "") or own.get("uuid", "")
    if not uuid:
        return None
    factor = 100.0 if name in dcgm_fields.RATIOS_OF_PERCENT else 1.0
    return DeviceSeries(
        field=field,
        uuid=uuid,
        instance_id=own.get("GPU_I_ID", ""),
        profile=own.get("GPU_I_PROFILE", "") or own.get("dra_mig_profile", ""),
        node=own.get("Hostname", "") or own.get("node", ""),
        minor=_minor(own),
        source=source,
        holding=_holding(own),
        points=usable(points, field, factor=factor),
    )


def _holding(own: dict[str, str]) -> Holding:
    return Holding(
        namespace=own.get("namespace", ""),
        pod=own.get("pod", ""),
        pod_uid=own.get("pod_uid", ""),
        claim_namespace=own.get("dra_claim_namespace", ""),
        claim=own.get("dra_claim_name", ""),
        driver=own.get("dra_driver_name", ""),
        pool=own.get("dra_pool_name", ""),
        device=own.get("dra_device_name", ""),
        vgpu=own.get("vgpu", ""),
    )


def _own_labels(labels: dict[str, str], targets: Sequence[str]) -> dict[str, str]:
    """The exporter's labels under their present names, without those by which Prometheus names the target."""
    own = {
        dcgm_fields.OLD_LABELS.get(name, name): value
        for name, value in labels.items()
        if not name.startswith(dcgm_fields.EXPORTED)
    }
    if any(word in own.get("pod", "") for word in _EXPORTERS):
        targets = _TARGET_LABELS
    for name in targets:
        own.pop(name, None)
    for name, value in labels.items():
        if name.startswith(dcgm_fields.EXPORTED):
            plain = name.removeprefix(dcgm_fields.EXPORTED)
            own[dcgm_fields.OLD_LABELS.get(plain, plain)] = value
    return own


def _renamed_labels(raw: Iterable[RawSeries]) -> frozenset[tuple[Source, str]]:
    """Labels that some series of a target has renamed: there the plain one is Prometheus' own, on every series."""
    return frozenset(
        (_source(series.labels), name)
        for series in raw
        for name in _TARGET_LABELS
        if f"{dcgm_fields.EXPORTED}{name}" in series.labels
    )


def _source(labels: dict[str, str]) -> Source:
    return Source(labels.get("job", ""), labels.get("instance", ""))


def _minor(own: dict[str, str]) -> str:
    device = own.get("device", "")
    return device.removeprefix("nvidia") if device.startswith("nvidia") else own.get("gpu", "")
