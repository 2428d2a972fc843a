"""Series of DCGM under every name and label the field has for them, read as measurements of devices."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.dcgm_fields import Field
from dovetail.model.idle import Device
from dovetail.telemetry import dcgm_series, measured_devices
from dovetail.telemetry.dcgm_series import DeviceSeries
from dovetail.telemetry.prometheus_api import RawSeries

GPU = {"UUID": "GPU-a", "gpu": "0", "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3"}
TARGET = {"job": "dcgm", "instance": "10.0.0.1:9400"}


def raw(name: str, value: float = 50, **labels: str) -> RawSeries:
    return RawSeries({"__name__": name, **GPU, **TARGET, **labels}, [(100.0, value)])


def only(series: list[RawSeries]) -> DeviceSeries:
    (device,) = dcgm_series.read(series)
    return device


def values(series: list[RawSeries], field: Field) -> list[float]:
    (device,) = measured_devices.measured(dcgm_series.read(series))
    return [value for _, value in device.whole.get(field, ())]


def test_old_and_new_names_are_one_field() -> None:
    old = only([raw("DCGM_FI_DEV_GPU_UTIL", 50)])
    new = only([raw("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.5)])
    assert old == new
    both = [raw("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.5), raw("DCGM_FI_DEV_GPU_UTIL", 50)]
    assert values(both, Field.GPU_UTIL) == [50]
    assert only([raw("DCGM_FI_PROF_SM_UTIL_RATIO", 0.25)]).field is Field.SM_ACTIVE


def test_a_metric_that_is_none_of_dcgm_is_ignored() -> None:
    assert dcgm_series.read([raw("node_load1"), RawSeries({}, [(1, 1)])]) == []


def test_labels_that_prometheus_renamed_are_the_holder() -> None:
    renamed = raw(
        "DCGM_FI_DEV_GPU_UTIL",
        namespace="gpu-operator",
        pod="metrics-7",
        container="exporter",
        exported_namespace="ml",
        exported_pod="train-0",
        exported_container="main",
    )
    holding = only([renamed]).holding
    assert (holding.namespace, holding.pod) == ("ml", "train-0")


def test_labels_that_the_exporter_kept_are_the_holder_too() -> None:
    holding = only([raw("DCGM_FI_DEV_GPU_UTIL", namespace="ml", pod="train-0")]).holding
    assert (holding.namespace, holding.pod) == ("ml", "train-0")
    old = only([raw("DCGM_FI_DEV_GPU_UTIL", pod_namespace="ml", pod_name="train-0")]).holding
    assert (old.namespace, old.pod) == ("ml", "train-0")


def test_a_free_gpu_is_not_held_by_the_exporters_own_pod() -> None:
    held = raw("DCGM_FI_DEV_GPU_UTIL", pod="metrics-7", exported_pod="train-0")
    free = raw("DCGM_FI_DEV_GPU_UTIL", UUID="GPU-b", pod="metrics-7")
    by_uuid = {series.uuid: series for series in dcgm_series.read([held, free])}
    assert by_uuid["GPU-a"].holding.pod == "train-0"
    assert by_uuid["GPU-b"].holding.is_empty
    alone = raw("DCGM_FI_DEV_GPU_UTIL", namespace="gpu-operator", pod="nvidia-dcgm-exporter-x2")
    assert only([alone]).holding.is_empty


@pytest.mark.parametrize(
    "value",
    [
        9223372036854775794.0,  # not supported
        2147483632.0,
        math.nan,
        math.inf,
        -1.0,
        4294967295.0,  # more than 100 %
    ],
)
def test_placeholders_are_no_measurements(value: float) -> None:
    assert values([raw("DCGM_FI_DEV_GPU_UTIL", value)], Field.GPU_UTIL) == []


def test_a_large_energy_counter_is_a_measurement() -> None:
    assert values([raw("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 2147483640.0)], Field.ENERGY) == [
        2147483640.0
    ]


def test_copies_on_holders_count_once_and_parts_of_processes_add_up() -> None:
    shared = [
        raw(name, value, pod=pod, namespace="ml", vgpu=vgpu)
        for pod, vgpu, name, value in [
            ("a", "0", "DCGM_FI_DEV_GPU_UTIL", 30.0),
            ("b", "1", "DCGM_FI_DEV_GPU_UTIL", 20.0),
            ("a", "0", "DCGM_FI_DEV_POWER_USAGE", 400.0),
            ("b", "1", "DCGM_FI_DEV_POWER_USAGE", 400.0),
        ]
    ]
    assert values(shared, Field.GPU_UTIL) == [50]
    assert values(shared, Field.POWER_USAGE) == [400]
    (device,) = measured_devices.measured(dcgm_series.read(shared))
    assert {holding.pod for holding in device.holders} == {"a", "b"}


def test_a_gpu_that_two_targets_measure_is_used_once() -> None:
    twice = [
        raw("DCGM_FI_DEV_GPU_UTIL", 40),
        raw("DCGM_FI_DEV_GPU_UTIL", 42, job="node-agent", instance="10.0.0.1:9101"),
    ]
    devices = measured_devices.measured(dcgm_series.read(twice))
    assert len(devices) == 2
    (device,) = measured_devices.one_source_each(devices)
    assert device.source.job == "dcgm"


def test_a_device_is_named_by_its_claim_or_else_by_its_place() -> None:
    claimed = raw(
        "DCGM_FI_DEV_GPU_UTIL",
        dra_driver_name="gpu.nvidia.com",
        dra_pool_name="node-a",
        dra_device_name="gpu-0",
        dra_claim_name="c",
    )
    (device,) = measured_devices.measured(dcgm_series.read([claimed]))
    assert device.names == {Device("gpu.nvidia.com", "node-a", "gpu-0")}
    (device,) = measured_devices.measured(
        dcgm_series.read([raw("DCGM_FI_DEV_GPU_UTIL", hostname="node-b")])
    )
    assert device.names == {Device("gpu.nvidia.com", "node-b", "gpu-0")}


def counter(*points: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    return points


def test_a_counter_that_starts_again_loses_nothing_but_what_is_not_known() -> None:
    points = counter((0, 100), (10, 200), (20, 50), (30, 150))
    grown = measured_devices.increase(points, start=0, end=30, max_gap_seconds=60)
    assert grown == 100 + 50 + 100
    assert measured_devices.since_reset(points) == 20
    assert measured_devices.since_reset(points[2:]) is None


def test_a_gap_is_not_bridged() -> None:
    points = counter((0, 100), (1000, 5000), (1010, 5010))
    assert measured_devices.increase(points, start=0, end=1010, max_gap_seconds=60) == 10


def frozen_device(*energies: float, watts: float = 300) -> measured_devices.MeasuredDevice:
    times = [30.0 * number for number in range(len(energies))]
    series = [
        RawSeries(
            {"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **GPU},
            list(zip(times, energies, strict=True)),
        ),
        RawSeries({"__name__": "DCGM_FI_DEV_POWER_USAGE", **GPU}, [(at, watts) for at in times]),
    ]
    (device,) = measured_devices.measured(dcgm_series.read(series))
    return device


def test_readings_that_stand_still_are_found_by_the_energy_counter() -> None:
    assert measured_devices.is_frozen(frozen_device(5, 5, 5, 5))
    assert not measured_devices.is_frozen(frozen_device(5, 5, 6, 6))
    assert not measured_devices.is_frozen(frozen_device(5, 5, 5)), "60 s: an exporter may be slow"
    assert not measured_devices.is_frozen(frozen_device(5, 5, 5, 5, watts=0))


@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    step=st.floats(1, 60),
)
def test_the_mean_of_even_samples_is_their_mean(values: list[float], step: float) -> None:
    points = tuple((step * (number + 1), value) for number, value in enumerate(values))
    mean = measured_devices.mean(points, start=0, end=points[-1][0], max_gap_seconds=120)
    assert mean == pytest.approx(sum(values) / len(values))


@given(
    increments=st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    cut=st.integers(0, 20),
)
def test_windows_of_a_counter_add_up(increments: list[int], cut: int) -> None:
    total = 0
    points = [(0.0, 0.0)]
    for number, each in enumerate(increments):
        total += each
        points.append((10.0 * (number + 1), float(total)))
    end = points[-1][0]
    middle = min(cut * 7.0, end)
    parts = [
        measured_devices.increase(tuple(points), start=a, end=b, max_gap_seconds=60) or 0
        for a, b in ((0.0, middle), (middle, end))
    ]
    assert sum(parts) == total
