"""How many GPUs are busy, for the column USED of `dovetail top`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.ask import measured_use
from dovetail.tables.work import gpu_holdings, gpu_usage_table
from dovetail.tables.work.gpu_holdings import Holding, Measured, Usage

GPU_0 = ("gpu.nvidia.com", "n0", "gpu-0")
GPU_1 = ("gpu.nvidia.com", "n0", "gpu-1")


def holding(pod: str, gpus: float, device: gpu_holdings.DeviceId | None) -> Holding:
    keys = {"queue": "lab", "namespace": "ml", "user": "", "pod": pod, "node": "n0", "type": "H100"}
    return Holding(keys, gpus, device=device)


def row(measured: Measured, *holdings: Holding) -> gpu_holdings.UsageRow:
    usage = Usage(holdings, {}, total=2.0, measured=measured)
    (only,) = usage.rows("queue")
    return only


def test_used_counts_busy_parts_of_what_is_allocated() -> None:
    measured = Measured({GPU_0: 0.5, GPU_1: 0.25})
    both = row(measured, holding("a", 1.0, GPU_0), holding("b", 0.5, GPU_1))
    assert both.used == 0.5 + 0.125
    assert gpu_usage_table.cells(both)[4] == "0.625"


def test_pods_that_share_a_gpu_use_what_their_processes_use() -> None:
    measured = Measured({GPU_0: 0.9}, {(GPU_0, "a"): 0.1, (GPU_0, "b"): 0.8})
    assert row(measured, holding("a", 0.5, GPU_0)).used == 0.1
    assert row(measured, holding("b", 0.5, GPU_0)).used == 0.8


def test_what_is_not_measured_is_not_available() -> None:
    assert gpu_usage_table.cells(row(Measured(), holding("a", 1.0, GPU_0)))[4] == "n/a"
    counted = row(Measured({GPU_0: 1.0}), holding("a", 1.0, None))
    assert counted.used is None


def test_the_address_is_the_given_one_or_the_configurations(tmp_path: Path) -> None:
    assert measured_use.endpoint_of(None, None) is None
    file = tmp_path / "scheduler.yaml"
    head = "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\n"
    file.write_text(head)
    assert measured_use.endpoint_of(None, str(file)) is None
    file.write_text(head + "metrics: {prometheus: {url: 'http://configured:9090'}}\n")
    configured = measured_use.endpoint_of(None, str(file))
    assert configured is not None
    assert configured.url == "http://configured:9090"
    given = measured_use.endpoint_of("http://given:9090", str(file))
    assert given is not None
    assert given.url == "http://given:9090"


def test_a_prometheus_that_does_not_answer_is_a_sentence() -> None:
    endpoint = measured_use.endpoint_of("http://127.0.0.1:9", None)
    assert endpoint is not None
    measured, problem = measured_use.measured_now(endpoint)
    assert measured == measured_use.NOTHING
    assert problem.startswith("http://127.0.0.1:9: cannot be reached")


@pytest.mark.parametrize("by", ["queue", "node"])
def test_without_metrics_every_row_is_not_available(by: str) -> None:
    usage = Usage((holding("a", 1.0, GPU_0),), {}, total=1.0)
    assert [each.used for each in usage.rows(by)] == [None]
