"""NVIDIA's DRA driver on every machine of the fake: what it publishes, prepares and leaves behind.

These are the facts that the node agent is compared with, and a proof that the fake is good enough for the real driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import claims, dra_driver
from tests.nvidia.conftest import Build, StartDra

pytestmark = pytest.mark.slow

DYNAMIC: Final = {dra_driver.DYNAMIC_MIG: True}
HOPPER_AND_LATER: Final = ("dgx-h100", "dgx-h200", "dgx-b200", "gb200-tray")
AMPERE: Final = ("dgx-a100", "dgx-a100-40", "a30")
WITHOUT_MIG: Final = ("l4", "t4")
MACHINES: Final = (*AMPERE, *HOPPER_AND_LATER, *WITHOUT_MIG)

MADE: Final = ("gpu-instance-created", "compute-instance-created")
UNMADE: Final = ("compute-instance-destroyed", "gpu-instance-destroyed")


def names(devices: Sequence[dict[str, Any]]) -> list[str]:
    return [device["name"] for device in devices]


def changes(hardware: Hardware) -> list[str]:
    """What the driver changed of the hardware, oldest first."""
    return [change.event for change in hardware.history() if change.program != "python"]


def device_paths(spec: dict[str, Any] | None) -> list[str]:
    """The device nodes that a claim's devices add to those every container gets."""
    assert spec is not None
    nodes = [node for device in spec["devices"] for node in device["containerEdits"]["deviceNodes"]]
    return [node["path"] for node in nodes]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_whole_gpu_is_published_prepared_and_released(
    machine: str, build: Build, start_dra: StartDra
) -> None:
    hardware = build(machine)
    driver = start_dra(hardware)
    state = hardware.snapshot()
    published = {device["name"]: device for device in driver.devices()}
    assert sorted(published) == ["gpu-0", "gpu-1"]
    for gpu in state.gpus:
        attributes = published[f"gpu-{gpu.minor}"]["attributes"]
        assert attributes["uuid"] == {"string": gpu.uuid}
        assert attributes["productName"] == {"string": gpu.product}
        assert attributes["resource.kubernetes.io/pciBusID"] == {"string": gpu.bus_id}
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": gpu.numa_node}
    (slice_,) = driver.slices()
    assert slice_["metadata"]["generateName"] == f"00000-gpu.nvidia.com-{driver.node}-"

    claim = claims.allocated(driver.rest, driver.node, ["gpu-1"])
    uid = claim["metadata"]["uid"]
    answer = driver.prepare(claim)
    assert answer.error == ""
    assert [device.cdi_ids for device in answer.devices] == [
        (f"k8s.gpu.nvidia.com/claim={uid}-gpu-1",)
    ]
    assert device_paths(driver.cdi_spec(uid)) == ["/dev/nvidia1"]

    assert driver.unprepare(claim) == ""
    assert driver.cdi_spec(uid) is None
    assert changes(hardware) == []


@pytest.mark.parametrize("machine", HOPPER_AND_LATER)
def test_dynamic_mig_offers_gpu_and_partitions_and_switches_mig_mode_on_demand(
    machine: str, build: Build, start_dra: StartDra
) -> None:
    hardware = build(machine)
    driver = start_dra(hardware, feature_gates=DYNAMIC)
    counters, *per_gpu = [tree["spec"] for tree in driver.slices()]
    sets = [entry["name"] for entry in counters["sharedCounters"]]
    assert sets == ["gpu-0-counter-set", "gpu-1-counter-set"]
    assert [len(spec["devices"]) for spec in per_gpu] == [26, 26]
    assert [spec["devices"][0]["name"] for spec in per_gpu] == ["gpu-0", "gpu-1"]

    _makes_and_unmakes(driver, hardware, gpu=1)
    modes = [change.facts["mode"] for change in hardware.history() if change.event == "mig-mode"]
    assert modes == [1, 0, 1, 0]  # two partitions, one after the other


@pytest.mark.parametrize("machine", AMPERE)
def test_dynamic_mig_on_ampere_offers_partitions_only_where_mig_mode_is_on(
    machine: str, build: Build, start_dra: StartDra
) -> None:
    hardware = build(machine, mig=True)
    driver = start_dra(hardware, feature_gates=DYNAMIC)
    kinds = {device["attributes"]["type"]["string"] for device in driver.devices()}
    assert kinds == {"mig"}
    _makes_and_unmakes(driver, hardware, gpu=1)
    assert [gpu.mig_mode for gpu in hardware.snapshot().gpus] == [1, 1]


@pytest.mark.parametrize(("machine", "empty_slices"), [("dgx-a100", 1), ("a30", 1), ("l4", 0)])
def test_dynamic_mig_where_no_gpu_can_be_partitioned_offers_whole_gpus_one_per_slice(
    machine: str, empty_slices: int, build: Build, start_dra: StartDra
) -> None:
    """Ampere without MIG mode still gets a first slice for counters, with nothing in it."""
    driver = start_dra(build(machine), feature_gates=DYNAMIC)
    lists = [names(tree["spec"].get("devices", [])) for tree in driver.slices()]
    assert lists == [[]] * empty_slices + [["gpu-0"], ["gpu-1"]]
    assert not any("consumesCounters" in device for device in driver.devices())


def _makes_and_unmakes(driver: dra_driver.DraOracle, hardware: Hardware, *, gpu: int) -> None:
    """Prepares a small and a large partition of a GPU, one after the other, and looks at the hardware."""
    offered = [name for name in names(driver.devices()) if name.startswith(f"gpu-{gpu}-mig-")]
    possible = [name for name in offered if "-mig-7g" not in name]  # see the test of 7g below
    for name in (possible[0], possible[-1]):
        before = len(changes(hardware))
        claim = claims.allocated(driver.rest, driver.node, [name])
        uid = claim["metadata"]["uid"]
        assert driver.prepare(claim).error == ""
        (instance,) = hardware.snapshot().gpus[gpu].gpu_instances
        assert name.endswith(f"-{instance.profile_id}-{instance.start}")
        assert len(instance.compute_instances) == 1
        gpu_node, *capabilities = device_paths(driver.cdi_spec(uid))
        assert gpu_node == f"/dev/nvidia{gpu}"
        assert [path.startswith("/dev/nvidia-caps/nvidia-cap") for path in capabilities] == [
            True,
            True,
        ]
        assert driver.unprepare(claim) == ""
        made_and_unmade = [
            event for event in changes(hardware)[before:] if event.startswith(("gpu-", "compute-"))
        ]
        assert made_and_unmade == [*MADE, *UNMADE]
        driver_claims = driver.checkpoint()["v2"].get("preparedClaims") or {}
        assert driver_claims == {}
    assert hardware.snapshot().gpus[gpu].gpu_instances == ()
