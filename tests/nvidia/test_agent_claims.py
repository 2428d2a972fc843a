"""The node agent beside NVIDIA's DRA driver: the same claims give containers the same, and leave the GPUs the same.

Each story runs twice on the same hardware, with the same claims: first for NVIDIA's driver, then for the agent.
Compared are the answers to the kubelet, the CDI files and the hardware during and after. Where the agent is meant to
differ, the story states both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import dra_driver, side_by_side
from tests.nvidia.conftest import Build

pytestmark = pytest.mark.slow

DYNAMIC: Final = {dra_driver.DYNAMIC_MIG: True}
TIME_SLICING: Final = {dra_driver.TIME_SLICING: True}
PROFILE_3G, PROFILE_1G = 9, 19  # ids on an H100

Tree = dict[str, Any]
PairOn = Callable[[Hardware], side_by_side.Pair]


def both_sides(
    pair: side_by_side.Pair,
    *,
    gates: Mapping[str, bool],
    mig: str,
    rounds: Sequence[Sequence[Tree]],
) -> None:
    """In each round all claims are prepared, then released in the same order. Both sides must see the same."""
    records = []
    for begin in (lambda: pair.nvidia(gates), lambda: pair.agent(mig)):
        turn = begin()
        for batch in rounds:
            for claim in batch:
                turn.prepare(claim)
            for claim in batch:
                turn.unprepare(claim)
        turn.end()
        records.append(turn.seen)
    theirs, ours = records
    assert ours == theirs


@pytest.fixture
def pair_on(plane: control_plane.ControlPlane) -> Iterator[PairOn]:
    """Makes a pair on a machine; what is still running ends with the test."""
    pairs: list[side_by_side.Pair] = []

    def made(hardware: Hardware) -> side_by_side.Pair:
        pairs.append(side_by_side.Pair(plane, hardware))
        return pairs[-1]

    yield made
    for pair in pairs:
        pair.close()


@pytest.mark.parametrize("machine", ["dgx-h100", "dgx-a100", "gb200-tray", "t4"])
def test_whole_gpus_alone_and_together(machine: str, build: Build, pair_on: PairOn) -> None:
    pair = pair_on(build(machine))
    one, two, both = pair.claim("gpu-0"), pair.claim("gpu-1"), pair.claim("gpu-0", "gpu-1")
    both_sides(pair, gates={}, mig="off", rounds=[[one, two], [both]])


@pytest.mark.parametrize(
    ("machine", "is_on", "devices"),
    [
        ("dgx-h100", False, ["gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-0", "gpu-1"]),
        ("dgx-h100", True, ["gpu-1-mig-4g40gb-5-0", "gpu-1-mig-1g20gb-15-6"]),
        ("dgx-h200", False, ["gpu-0-mig-1g18gb-me-20-3", "gpu-0-mig-2g35gb-14-4"]),
        ("dgx-b200", False, ["gpu-1-mig-3g90gb-9-0"]),
        ("dgx-a100", True, ["gpu-0-mig-2g20gb-14-2", "gpu-0-mig-3g40gb-9-4"]),
        ("a30", True, ["gpu-0-mig-2g12gb-5-0", "gpu-1-mig-4g24gb-0-0"]),
    ],
)
def test_partitions_are_made_and_destroyed_alike(
    machine: str,
    is_on: bool,
    devices: list[str],
    build: Build,
    pair_on: PairOn,
) -> None:
    pair = pair_on(build(machine, mig=is_on))
    single = [pair.claim(device) for device in devices]
    both_sides(pair, gates=DYNAMIC, mig="dynamic", rounds=[single, [pair.claim(*devices)]])


def test_partitions_that_exist(build: Build, pair_on: PairOn) -> None:
    hardware = build("dgx-h100", mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    hardware.create_mig(0, PROFILE_1G, 0)
    pair = pair_on(hardware)
    batch = [pair.claim("gpu-0-mig-3g40gb-9-4"), pair.claim("gpu-0-mig-1g10gb-19-0")]
    both_sides(pair, gates={}, mig="static", rounds=[batch])


@pytest.mark.parametrize("interval", ["Default", "Short", "Medium", "Long"])
def test_time_slices(interval: str, build: Build, pair_on: PairOn) -> None:
    pair = pair_on(build("dgx-h100"))
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    claim = pair.claim("gpu-0", parameters=gpu_config(sharing=sharing))
    both_sides(pair, gates=TIME_SLICING, mig="off", rounds=[[claim]])


def gpu_config(**fields: Any) -> Tree:
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}


def test_both_refuse_what_cannot_be_prepared(build: Build, pair_on: PairOn) -> None:
    pair = pair_on(build("dgx-h100"))
    unknown_device = pair.claim("gpu-7")
    unknown_field = pair.claim("gpu-0", parameters=gpu_config(share={}))
    interval = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Weekly"}}
    wrong_interval = pair.claim("gpu-0", parameters=gpu_config(sharing=interval))
    strategy = pair.claim("gpu-0", parameters=gpu_config(sharing={"strategy": "Luck"}))
    first, taken = pair.claim("gpu-1"), pair.claim("gpu-1")
    for begin in (lambda: pair.nvidia(TIME_SLICING), lambda: pair.agent("off")):
        turn = begin()
        for claim in (unknown_device, unknown_field, wrong_interval, strategy):
            assert turn.refusal(claim)
        turn.prepare(first)
        assert turn.refusal(taken)
        turn.unprepare(first)
        turn.end()


def test_the_agent_makes_a_7g_partition_which_nvidias_driver_cannot(
    build: Build, pair_on: PairOn
) -> None:
    hardware = build("dgx-h100")
    pair = pair_on(hardware)
    before = side_by_side.geometry(hardware)
    ours = pair.agent("dynamic")
    claim = pair.claim("gpu-0-mig-7g80gb-0-0")
    ours.prepare(claim)
    assert side_by_side.geometry(hardware)[0] == (1, 0, 0, [("7g.80gb", 0, 1)])
    ours.unprepare(claim)
    ours.end()
    assert side_by_side.geometry(hardware) == before


def test_the_agent_refuses_a_gpu_whose_partition_is_in_use_which_nvidias_driver_prepares(
    build: Build, pair_on: PairOn
) -> None:
    pair = pair_on(build("dgx-h100"))
    ours = pair.agent("dynamic")
    partition = pair.claim("gpu-0-mig-1g10gb-19-0")
    ours.prepare(partition)
    assert ours.refusal(pair.claim("gpu-0"))
    assert ours.refusal(pair.claim("gpu-0-mig-1g20gb-15-0"))
    ours.unprepare(partition)
    ours.end()


def test_the_agent_leaves_the_partitions_of_an_administrator_which_nvidias_driver_destroys(
    build: Build, pair_on: PairOn
) -> None:
    hardware = build("dgx-h100", mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    pair = pair_on(hardware)
    ours = pair.agent("dynamic")
    beside = pair.claim("gpu-0-mig-1g10gb-19-0")
    ours.prepare(beside)
    assert ours.refusal(pair.claim("gpu-0-mig-3g40gb-9-4"))
    ours.unprepare(beside)
    ours.end()
    assert side_by_side.geometry(hardware)[0][3] == [("3g.40gb", 4, 1)]
