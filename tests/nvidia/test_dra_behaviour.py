"""What NVIDIA's DRA driver does beyond publishing and preparing one device: sharing, conflicts, crashes, health, flaws.

Facts about v0.5.0, flaws included: the node agent has to do as well or better, and the document of differences names
both.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import claims, dra_driver
from tests.nvidia.conftest import Build, StartDra
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DYNAMIC: Final = {dra_driver.DYNAMIC_MIG: True}
SMALL: Final = "gpu-0-mig-1g10gb-19-0"
PROFILE_3G, PROFILE_1G = 9, 19  # ids on an H100

MEMORY_STEP: Final = "1Mi"


def device(driver: dra_driver.DraOracle, name: str) -> dict[str, Any]:
    return next(entry for entry in driver.devices() if entry["name"] == name)


def instances(hardware: Hardware, gpu: int = 0) -> list[tuple[int, int]]:
    """Profile and start of each GPU instance."""
    return [
        (instance.profile_id, instance.start)
        for instance in hardware.snapshot().gpus[gpu].gpu_instances
    ]


@pytest.mark.parametrize(
    ("shares", "default", "least"),
    [("memory", "81559Mi", MEMORY_STEP), ("unlimited", "0", "0"), ("4", "0", "0")],
)
def test_consumable_shares_of_a_gpu_are_requested_in_mebibytes(
    shares: str, default: str, least: str, build: Build, start_dra: StartDra
) -> None:
    driver = start_dra(build("dgx-h100"), shares=shares)
    gpu = device(driver, "gpu-0")
    assert gpu["allowMultipleAllocations"] is True
    assert gpu["capacity"]["memory"] == {
        "value": "81559Mi",
        "requestPolicy": {
            "default": default,
            "validRange": {"min": least, "max": "81559Mi", "step": MEMORY_STEP},
        },
    }
    assert ("shares" in gpu["capacity"]) == (shares == "4")


def test_shares_and_partitions_go_together(build: Build, start_dra: StartDra) -> None:
    driver = start_dra(build("dgx-h100"), feature_gates=DYNAMIC, shares="memory")
    partition = device(driver, SMALL)
    assert partition["allowMultipleAllocations"] is True
    assert partition["capacity"]["memory"]["requestPolicy"]["default"] == "9984Mi"


def test_partitions_made_beforehand_are_published_with_their_uuid_and_left_alone(
    build: Build, start_dra: StartDra
) -> None:
    hardware = build("dgx-h100", gpus=1, mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    hardware.create_mig(0, PROFILE_1G, 0)
    made = len(hardware.history())
    driver = start_dra(hardware)
    uuids = {
        instance.compute_instances[0].uuid for instance in hardware.snapshot().gpus[0].gpu_instances
    }
    assert {entry["attributes"]["uuid"]["string"] for entry in driver.devices()} == uuids
    partition = device(driver, "gpu-0-mig-3g40gb-9-4")
    slices = [name for name in partition["capacity"] if name.startswith("memorySlice")]
    assert sorted(slices) == [f"memorySlice{index}" for index in (4, 5, 6, 7)]

    claim = claims.allocated(driver.rest, driver.node, ["gpu-0-mig-3g40gb-9-4"])
    assert driver.prepare(claim).error == ""
    assert driver.unprepare(claim) == ""
    assert len(hardware.history()) == made


def test_a_device_that_another_claim_has_is_refused_until_it_is_released(
    build: Build, start_dra: StartDra
) -> None:
    driver = start_dra(build("dgx-h100"))
    first = claims.allocated(driver.rest, driver.node, ["gpu-0"])
    second = claims.allocated(driver.rest, driver.node, ["gpu-0"])
    assert driver.prepare(first).error == ""
    assert "gpu-0" in driver.prepare(second).error
    assert driver.unprepare(first) == ""
    assert driver.prepare(second).error == ""


def test_a_whole_gpu_is_prepared_while_a_partition_of_it_is_in_use(
    build: Build, start_dra: StartDra
) -> None:
    """The driver compares names of devices, not silicon: only a scheduler's counters keep these two apart."""
    hardware = build("dgx-h100")
    driver = start_dra(hardware, feature_gates=DYNAMIC)
    partition = claims.allocated(driver.rest, driver.node, [SMALL])
    whole = claims.allocated(driver.rest, driver.node, ["gpu-0"])
    assert driver.prepare(partition).error == ""
    assert driver.prepare(whole).error == ""
    assert instances(hardware) == [(PROFILE_1G, 0)]


def test_a_prepared_claim_survives_a_crash_of_the_driver(build: Build, start_dra: StartDra) -> None:
    hardware = build("dgx-h100")
    driver = start_dra(hardware, feature_gates=DYNAMIC)
    claim = claims.allocated(driver.rest, driver.node, [SMALL])
    before = driver.prepare(claim)
    driver.kill()
    driver.start()
    assert driver.prepare(claim) == before
    assert instances(hardware) == [(PROFILE_1G, 0)]
    driver.rest.delete("resourceclaims", claim["metadata"]["name"], "default")
    assert driver.unprepare(claim) == ""
    assert instances(hardware) == []


def test_partitions_of_an_administrator_are_destroyed_at_the_start_of_dynamic_mig(
    build: Build, start_dra: StartDra
) -> None:
    hardware = build("dgx-h100", mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    start_dra(hardware, feature_gates=DYNAMIC)
    assert instances(hardware) == []
    assert [gpu.mig_mode for gpu in hardware.snapshot().gpus] == [0, 0]


def test_a_7g_partition_can_neither_be_made_nor_released_again(
    build: Build, start_dra: StartDra
) -> None:
    """A flaw of v0.5.0: it asks for compute instance profile 8, which these boards lack, instead of 4."""
    hardware = build("dgx-h100")
    driver = start_dra(hardware, feature_gates=DYNAMIC)
    claim = claims.allocated(driver.rest, driver.node, ["gpu-0-mig-7g80gb-0-0"])
    refusal = driver.prepare(claim).error
    assert "error getting Compute instance profile info for '7g.80gb'" in refusal
    assert instances(hardware) == [(0, 0)]
    assert "rollback" in driver.unprepare(claim)
    assert instances(hardware) == [(0, 0)]


def test_an_xid_taints_the_gpu_it_names(build: Build, start_dra: StartDra) -> None:
    hardware = build("dgx-h100")
    driver = start_dra(hardware, feature_gates={dra_driver.HEALTH: True})

    def taints() -> list[Any]:
        """The driver begins to wait for events after it serves: an earlier one is lost, as on real hardware."""
        hardware.inject_xid(1, 79)
        return [
            (entry["name"], taint["key"], taint["value"], taint["effect"])
            for entry in driver.devices()
            for taint in entry.get("taints", ())
        ]

    wait_until(taints, "the taint", pause=0.2, so_far=driver.log)
    assert taints() == [("gpu-1", "gpu.nvidia.com/xid", "79", "NoSchedule")]


def test_time_slicing_sets_the_slice_of_the_gpu_and_resets_it(
    build: Build, start_dra: StartDra
) -> None:
    hardware = build("dgx-h100")
    driver = start_dra(hardware, feature_gates={dra_driver.TIME_SLICING: True})
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": sharing,
    }
    claim = claims.allocated(driver.rest, driver.node, ["gpu-0"], parameters=parameters)
    assert driver.prepare(claim).error == ""
    assert [gpu.time_slice for gpu in hardware.snapshot().gpus] == [3, 0]
    assert driver.unprepare(claim) == ""
    assert [gpu.time_slice for gpu in hardware.snapshot().gpus] == [0, 0]


def test_an_unknown_field_of_a_configuration_is_refused_by_name(
    build: Build, start_dra: StartDra
) -> None:
    driver = start_dra(build("dgx-h100"))
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "share": {"strategy": "TimeSlicing"},
    }
    claim = claims.allocated(driver.rest, driver.node, ["gpu-0"], parameters=parameters)
    assert 'unknown field "share"' in driver.prepare(claim).error


def test_a_device_that_does_not_exist_is_refused_by_name(build: Build, start_dra: StartDra) -> None:
    driver = start_dra(build("dgx-h100"))
    claim = claims.allocated(driver.rest, driver.node, ["gpu-7"])
    assert "gpu-7" in driver.prepare(claim).error
