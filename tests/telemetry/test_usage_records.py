"""Measurements as records of use: whole GPUs, slices, shares and counted GPUs, and times without samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.accounting.records import MICRO_GPU, Allocation, Form, Owner, Usage
from dovetail.telemetry import dcgm_series, measured_devices, usage_records
from dovetail.telemetry.prometheus_api import RawSeries

MINUTE = 60_000
GIB = 1 << 30


def series(name: str, values: list[float], **labels: str) -> RawSeries:
    """One sample every 15 s, from the 15th second on."""
    tags = {"__name__": f"DCGM_FI_{name}", "UUID": "GPU-a", "gpu": "0", **labels}
    return RawSeries(tags, [(15.0 * (number + 1), value) for number, value in enumerate(values)])


def allocation(
    pod: str,
    form: Form = Form.WHOLE,
    *,
    micro_gpu: int = MICRO_GPU,
    profile: str = "",
    asset: str = "GPU-a",
    start: int = 0,
    end: int | None = None,
) -> Allocation:
    return Allocation(
        allocation=f"of-{pod}",
        asset=asset,
        node="node-a",
        micro_gpu=micro_gpu,
        form=form,
        owner=Owner(namespace="ml", pod=pod, pod_uid=f"uid-{pod}"),
        start=start,
        end=end,
        profile=profile,
        claim="" if form is Form.COUNTED else f"claim-{pod}",
    )


def joined(
    raw: list[RawSeries], *allocations: Allocation, assets: tuple[str, ...] = ("GPU-a",)
) -> usage_records.Joined:
    devices = measured_devices.measured(dcgm_series.read(raw))
    return usage_records.joined(
        devices, allocations=allocations, assets=assets, start=0, end=MINUTE
    )


def by_allocation(result: usage_records.Joined) -> dict[str, Usage]:
    assert len({usage.allocation for usage in result.usage}) == len(result.usage)
    return {usage.allocation: usage for usage in result.usage}


def held_by(pod: str) -> dict[str, str]:
    return {
        "namespace": "ml",
        "pod": pod,
        "pod_uid": f"uid-{pod}",
        "dra_claim_name": f"claim-{pod}",
        "dra_claim_namespace": "ml",
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": "node-a",
        "dra_device_name": "gpu-0",
    }


def test_a_whole_gpu_has_the_gpus_figures() -> None:
    raw = [
        series("DEV_GPU_UTIL", [100, 100, 100, 100], **held_by("a")),
        series("PROF_SM_ACTIVE", [0.2, 0.4, 0.6, 0.4], **held_by("a")),
        series("DEV_FB_USED", [1024, 4096, 2048, 2048], **held_by("a")),
        series("DEV_TOTAL_ENERGY_CONSUMPTION", [1000, 2000, 3500, 4000], **held_by("a")),
        series("PROF_PIPE_TENSOR_ACTIVE", [0.1, 0.3, 0.1, 0.3], **held_by("a")),
        series("PROF_DRAM_ACTIVE", [0.5, 0.5, 0.6, 0.6], **held_by("a")),
    ]
    result = joined(raw, allocation("a"))
    usage = by_allocation(result)["of-a"]
    assert usage.busy_micro == 400_000, "of the cores, where the GPU says so"
    assert usage.memory_bytes == 4 * GIB
    assert usage.energy_millijoules == 3000
    assert (usage.tensor_micro, usage.dram_micro) == (200_000, 550_000)
    assert usage.samples == 4
    assert by_allocation(result)[""].busy_micro == 400_000
    assert result.unmatched == 0


def test_what_happened_before_an_allocation_is_not_its_use() -> None:
    raw = [series("DEV_GPU_UTIL", [100, 100, 0, 0], **held_by("a"))]
    usage = by_allocation(joined(raw, allocation("a", start=30_000)))
    assert usage["of-a"].busy_micro == 0
    assert usage[""].busy_micro == 500_000


def test_shares_have_what_their_processes_use_in_proportion() -> None:
    raw = [
        series("DEV_GPU_UTIL", [20, 20, 20, 20], vgpu="0", **held_by("a")),
        series("DEV_GPU_UTIL", [60, 60, 60, 60], vgpu="1", **held_by("b")),
        series("DEV_GPU_UTIL", [10, 10, 10, 10]),
        series("DEV_FB_USED", [1024] * 4, vgpu="0", **held_by("a")),
        series("DEV_FB_USED", [3072] * 4, vgpu="1", **held_by("b")),
    ]
    quarter = allocation("a", Form.SHARE, micro_gpu=250_000)
    half = allocation("b", Form.REPLICA, micro_gpu=500_000)
    usage = by_allocation(joined(raw, quarter, half))
    assert usage["of-a"].busy_micro == 800_000
    assert usage["of-b"].busy_micro == MICRO_GPU, (
        "time that others left is not more than all of its own"
    )
    assert usage["of-a"].memory_bytes == GIB
    assert usage[""].busy_micro == 900_000
    assert usage["of-a"].energy_millijoules is None


def test_slices_are_matched_by_their_holders_and_add_up_to_the_gpu() -> None:
    small = {"GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb"}
    large = {"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb"}
    raw = [
        series("PROF_GR_ENGINE_ACTIVE", [0.7] * 4, **small, **held_by("a")),
        series("PROF_GR_ENGINE_ACTIVE", [0.5] * 4, **large, **held_by("b")),
        series("DEV_FB_USED", [1024] * 4, **small, **held_by("a")),
        series("DEV_FB_USED", [2048] * 4, **large, **held_by("b")),
        series("DEV_TOTAL_ENERGY_CONSUMPTION", [0, 10, 20, 30]),
    ]
    usage = by_allocation(
        joined(
            raw,
            allocation("a", Form.MIG, micro_gpu=142_857, profile="1g.10gb"),
            allocation("b", Form.MIG, micro_gpu=500_000, profile="3g.40gb"),
        )
    )
    assert usage["of-a"].busy_micro == 700_000
    assert usage["of-b"].busy_micro == 500_000
    assert usage["of-b"].energy_millijoules is None
    whole = usage[""]
    assert whole.busy_micro == pytest.approx((0.7 / 7 + 0.5 * 3 / 7) * MICRO_GPU, abs=1)
    assert whole.memory_bytes == 3 * GIB
    assert whole.energy_millijoules == 30


def test_two_slices_of_one_pod_are_two() -> None:
    raw = [
        series(
            "PROF_GR_ENGINE_ACTIVE",
            [busy] * 4,
            GPU_I_ID=gi,
            GPU_I_PROFILE="1g.10gb",
            **held_by("a"),
        )
        for gi, busy in (("7", 0.1), ("8", 0.9))
    ]
    first = allocation("a", Form.MIG, profile="1g.10gb")
    second = Allocation(
        **{name: getattr(first, name) for name in first.__struct_fields__}
        | {"allocation": "second"}
    )
    usage = by_allocation(joined(raw, first, second))
    assert {usage["of-a"].busy_micro, usage["second"].busy_micro} == {100_000, 900_000}


def test_counted_gpus_are_found_by_the_pod() -> None:
    pod = {"namespace": "ml", "pod": "a"}
    raw = [
        series("DEV_GPU_UTIL", [100] * 4, **pod),
        series("DEV_GPU_UTIL", [50] * 4, **{**pod, "UUID": "GPU-b"}),
        series("DEV_GPU_UTIL", [90] * 4, UUID="GPU-c", namespace="ml", pod="other"),
    ]
    two = allocation("a", Form.COUNTED, micro_gpu=2 * MICRO_GPU, asset="node-a/nvidia.com/gpu")
    assert by_allocation(joined(raw, two))["of-a"].busy_micro == 750_000


def test_an_allocation_without_samples_has_no_record() -> None:
    result = usage_records.joined(
        [], allocations=[allocation("a")], assets=["GPU-a"], start=0, end=10 * MINUTE
    )
    assert result.usage == ()
    assert result.unmatched == 1


def test_an_asset_without_uuid_is_found_by_its_name() -> None:
    name = "gpu.nvidia.com/node-a/gpu-0"
    raw = [series("DEV_GPU_UTIL", [50] * 4, **held_by("a"))]
    usage = by_allocation(joined(raw, allocation("a", asset=name), assets=(name,)))
    assert usage["of-a"].busy_micro == 500_000


@given(
    percents=st.lists(
        st.lists(st.integers(0, 100), min_size=4, max_size=4), min_size=1, max_size=5
    ),
    shares=st.lists(st.integers(1, MICRO_GPU), min_size=5, max_size=5),
)
def test_records_stay_within_what_is_allocated(
    percents: list[list[int]], shares: list[int]
) -> None:
    raw = [
        series("DEV_GPU_UTIL", [float(p) for p in each], vgpu=str(number), **held_by(f"p{number}"))
        for number, each in enumerate(percents)
    ]
    allocations = [
        allocation(f"p{number}", Form.SHARE, micro_gpu=shares[number])
        for number in range(len(percents))
    ]
    usage = by_allocation(joined(raw, *allocations))
    assert len(usage) == len(percents) + 1
    for record in usage.values():
        assert record.busy_micro is not None
        assert 0 <= record.busy_micro <= MICRO_GPU
    for number, each in enumerate(percents):
        expected = min(MICRO_GPU, sum(each) / 400 * MICRO_GPU * MICRO_GPU / shares[number])
        assert usage[f"of-p{number}"].busy_micro == pytest.approx(expected, rel=1e-6, abs=1)
