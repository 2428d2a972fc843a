"""The embedded cluster's publisher beside NVIDIA's DRA driver: the same machine gives the same slices.

Ids and addresses are drawn differently on both sides and left out. Each difference that remains is named here with its
reason and in docs/explanation/oracle.md; one that appears or vanishes fails the test.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from dovetail.devcluster.fake_gpus import gpu_machines
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from tests.nvidia import compare, dra_driver
from tests.nvidia.conftest import Build, StartDra

pytestmark = pytest.mark.slow

IDS: Final = (
    "uuid",
    "parentUUID",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "resource.kubernetes.io/numaNode",
)
DYNAMIC: Final = {dra_driver.DYNAMIC_MIG: True}


def simulated(machine: str, node: str, *, mig: bool) -> list[dict[str, Any]]:
    pool = fleet_spec.Pool(
        name="pool", count=1, gpu=gpu_machines.named(machine).board, gpus_per_node=2, mig=mig
    )
    fleet = fleet_spec.Fleet(
        name="fleet", pools=(pool,), driver_version="580.95.05", cuda_version="13.0"
    )
    assert list(fleet_spec.problems_of(fleet)) == []
    (only,) = machines.machines_of(fleet)
    trees = device_publisher.slices_of(only, fleet)
    gpus = [tree for tree in trees if tree["spec"]["driver"] == device_publisher.GPU_DRIVER]
    return [_renamed(tree, only.name, node) for tree in gpus]


def _renamed(tree: Any, before: str, after: str) -> Any:
    if isinstance(tree, str):
        return tree.replace(before, after)
    if isinstance(tree, dict):
        return {key: _renamed(value, before, after) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed(value, before, after) for value in tree]
    return tree


def without_owner(lines: list[str]) -> list[str]:
    """The one difference everywhere: nodes of the embedded cluster are made with their slices, so none owns them."""
    owners = [line for line in lines if ": owners: ours []" in line]
    assert owners
    return [line for line in lines if line not in owners]


@pytest.mark.parametrize(
    "machine",
    [
        "dgx-a100",
        "dgx-a100-40",
        "dgx-h100",
        "dgx-h200",
        "dgx-b200",
        "gb200-tray",
        "a30",
        "l4",
        "t4",
    ],
)
def test_whole_gpus_are_published_alike(machine: str, build: Build, start_dra: StartDra) -> None:
    driver = start_dra(build(machine))
    ours = simulated(machine, driver.node, mig=False)
    lines = compare.differences(ours, driver.slices(), ordered=False, without=IDS)
    assert without_owner(lines) == []


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-a100-40", "dgx-h100", "dgx-h200", "a30"])
def test_partitions_are_published_alike(machine: str, build: Build, start_dra: StartDra) -> None:
    """B200 and GB200 are left out: a fleet with MIG refuses them, since their figures are not published."""
    driver = start_dra(build(machine, mig=True), feature_gates=DYNAMIC)
    ours = simulated(machine, driver.node, mig=True)
    lines = compare.differences(ours, driver.slices(), without=IDS)
    assert without_owner(lines) == []
