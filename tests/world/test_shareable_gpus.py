"""Which GPUs offer shares of their memory: those of NVIDIA's driver that several claims may use, by size."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes.resource import slices
from dovetail.world import events
from tests.world import build

GIB = 1024**3
GPU: dict[str, Any] = {
    "allowMultipleAllocations": True,
    "attributes": {"type": {"string": "gpu"}},
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
        }
    },
}
SMALL = GPU | {"capacity": {"memory": GPU["capacity"]["memory"] | {"value": "46068Mi"}}}


def _policied(value: str, *, default: str) -> dict[str, Any]:
    steps = {"min": default, "step": default}
    return {"value": value, "requestPolicy": {"default": default, "validRange": steps}}


def published(*devices: dict[str, Any], driver: str = "gpu.nvidia.com") -> slices.ResourceSlice:
    named = [{"name": f"gpu-{number}"} | device for number, device in enumerate(devices)]
    slice_ = build.slice_of("n", named)
    return build.replaced(slice_, spec=build.replaced(slice_.spec, driver=driver))


def counted(*devices: dict[str, Any], **options: str) -> dict[int, int]:
    kinds = build.world(published(*devices, **options)).shareable_gpus()
    return {kind.memory_bytes: count for kind, count in kinds.items()}


def test_gpus_are_counted_by_size() -> None:
    assert counted(GPU, SMALL, GPU) == {80 * GIB: 2, 46068 * 1024**2: 1}


@pytest.mark.parametrize(
    "device",
    [
        GPU | {"allowMultipleAllocations": False},
        GPU | {"attributes": {"type": {"string": "mig"}}},
        GPU | {"attributes": {}},
        GPU | {"capacity": {"memory": {"value": "80Gi"}}},  # each share would take all of it
        GPU | {"capacity": {}},
        GPU | {"capacity": GPU["capacity"] | {"copyEngines": {"value": "3"}}},
        GPU | {"capacity": GPU["capacity"] | {"shares": _policied("2", default="2")}},
    ],
    ids=["exclusive", "partition", "untyped", "no policy", "no memory", "engines", "one share"],
)
def test_others_are_not(device: dict[str, Any]) -> None:
    assert counted(device) == {}


def test_a_gpu_with_a_fixed_number_of_shares_offers_them() -> None:
    shares = {"shares": _policied("4", default="1")}
    assert counted(GPU | {"capacity": GPU["capacity"] | shares}) == {80 * GIB: 1}


def test_a_share_of_the_whole_beside_memory_makes_another_kind() -> None:
    share = {"dovetail.dev/share": _policied("1", default="1")}
    world = build.world(published(GPU, GPU | {"capacity": GPU["capacity"] | share}))
    assert sorted(kind.share_thousandths for kind in world.shareable_gpus()) == [0, 1000]


def test_devices_of_other_drivers_are_not() -> None:
    assert counted(GPU, driver="gpu.example.com") == {}


def test_a_pool_that_goes_offers_nothing_any_more() -> None:
    pool = published(GPU)
    world = build.world(pool)
    assert world.shareable_gpus()
    world.apply(events.Deleted(pool))
    assert not world.shareable_gpus()
