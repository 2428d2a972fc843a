"""Times without samples: said once, of as much as they are about. A sample every 15 s; times are minutes."""

from __future__ import annotations

from dovetail.model.accounting.records import Asset
from dovetail.telemetry import dcgm_series, measured_devices, metrics_gaps
from dovetail.telemetry.prometheus_api import RawSeries

MINUTE = 60_000
HOUR = 60 * MINUTE
A, B, C = (
    Asset(f"GPU-{name}", node, "H100", 0) for name, node in (("a", "n"), ("b", "n"), ("c", "m"))
)


def sampled(uuid: str, *spans: tuple[float, float], node: str = "n") -> RawSeries:
    points = [
        (float(at), 50.0)
        for begun, ended in spans
        for at in range(round(begun * 60), round(ended * 60) + 1, 15)
    ]
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": uuid, "gpu": "0", "Hostname": node}
    return RawSeries(labels, points)


def gaps(raw: list[RawSeries], *assets: Asset, start: int = 0) -> list[tuple[str, float, float]]:
    devices = measured_devices.measured(dcgm_series.read(raw))
    made = metrics_gaps.gaps(devices, assets, start=start, end=HOUR, max_gap_seconds=180)
    return [(gap.subject, gap.start / MINUTE, (gap.end or 0) / MINUTE) for gap in made]


def test_a_server_without_samples_is_one_gap_of_all() -> None:
    assert gaps([], A, B, C) == [("", 0, 60)]


def test_gpus_that_are_sampled_all_the_time_have_no_gaps() -> None:
    assert gaps([sampled("GPU-a", (0, 60)), sampled("GPU-b", (0, 57.5))], A, B) == []


def test_a_pause_of_all_is_not_repeated_for_each_although_scrapes_differ() -> None:
    raw = [
        sampled("GPU-a", (0, 10), (30, 60)),
        sampled("GPU-b", (0, 10), (30, 60)),
        sampled("GPU-c", (0, 11), (29, 60), node="m"),
    ]
    assert gaps(raw, A, B, C) == [("", 11, 29)]


def test_a_silent_node_is_named_and_a_silent_gpu_beside_others() -> None:
    raw = [sampled("GPU-a", (0, 60)), sampled("GPU-b", (0, 20)), sampled("GPU-a", (0, 60))]
    assert gaps(raw, A, B, C) == [("m", 0, 60), ("GPU-b", 20, 60)]


def test_a_gpu_has_gaps_only_while_it_is_there() -> None:
    late = Asset("GPU-b", "n", "H100", 40 * MINUTE, 50 * MINUTE)
    assert gaps([sampled("GPU-a", (0, 60))], A, late) == [("GPU-b", 40, 50)]


def test_a_gap_that_began_before_the_window_is_as_long_as_it_is() -> None:
    raw = [sampled("GPU-a", (26, 28), (31.5, 60))]
    assert gaps(raw, A, start=30 * MINUTE) == [("", 30, 31.5)]


def test_counted_gpus_are_sampled_where_a_gpu_of_their_node_is() -> None:
    counted = Asset("n/nvidia.com/gpu", "n", "H100", 0, count=8)
    assert gaps([sampled("GPU-x", (0, 60))], counted) == []
    assert gaps([sampled("GPU-x", (0, 30))], counted) == [("", 30, 60)]
