"""The node agent beside NVIDIA's DRA driver: on the same machine both publish the same slices.

One after the other on the same hardware, for the same node, through the same API server. Each difference is named here
with its reason and in docs/explanation/oracle.md; one that appears or vanishes fails a test.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import pytest

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import agent_node, compare, dra_driver
from tests.nvidia.conftest import Build

pytestmark = pytest.mark.slow

ALL: Final = (
    "dgx-a100",
    "dgx-a100-40",
    "dgx-h100",
    "dgx-h200",
    "dgx-b200",
    "gb200-tray",
    "a30",
    "l4",
    "t4",
)
WITH_MIG: Final = ALL[:-2]

# What the agent publishes beyond NVIDIA's driver, all in its own domain.
OURS_ALONE: Final = {
    "attribute dovetail.dev/powerLimit": "whole GPUs",
    "attribute dovetail.dev/nvlinkCount": "whole GPUs with NVLink",
    "attribute dovetail.dev/nvlinkDomain": "whole GPUs with NVLink",
    "attribute dovetail.dev/clique": "whole GPUs of a rack's fabric",
    "capacity dovetail.dev/share": "whole GPUs that are shared by memory",
}
_SHARES_COUNTER: Final = re.compile(
    r"counters of gpu-\d+-counter-set shares: ours absent, theirs 4"
)
_LINE: Final = re.compile(r"gpu-\d+: (?P<fact>\w+ \S+): ours .*, theirs absent")


class Mode(NamedTuple):
    """One way to publish, in both programs' words."""

    gates: Mapping[str, bool]
    mig: str
    nvidia_shares: str = ""
    agent_shares: str = "off"


WHOLE: Final = Mode({}, "off")
STATIC: Final = Mode({}, "static")
DYNAMIC: Final = Mode({dra_driver.DYNAMIC_MIG: True}, "dynamic")
BY_MEMORY: Final = Mode({}, "off", "memory", "memory")
BY_COUNT: Final = Mode({}, "off", "4", "4")
DYNAMIC_BY_COUNT: Final = Mode({dra_driver.DYNAMIC_MIG: True}, "dynamic", "4", "4")
DYNAMIC_BY_MEMORY: Final = Mode({dra_driver.DYNAMIC_MIG: True}, "dynamic", "memory", "memory")

Compare = Callable[[Hardware, Mode], set[str]]


@pytest.fixture
def additions(plane: control_plane.ControlPlane) -> Compare:
    """Runs both and returns what the agent publishes in addition; anything else that differs fails."""

    def compared(hardware: Hardware, mode: Mode) -> set[str]:
        node = f"node-{uuid.uuid4().hex[:8]}"
        theirs = dra_driver.DraOracle(
            hardware, plane, node, feature_gates=mode.gates, shares=mode.nvidia_shares
        )
        their_slices = theirs.slices()
        theirs.stop()
        ours = agent_node.AgentNode(hardware, plane, node, mig=mode.mig, shares=mode.agent_shares)
        our_slices = ours.slices()
        ours.stop()
        for tree in our_slices:
            names = [device["name"] for device in tree["spec"].get("devices", ())]
            assert names == sorted(names)
        is_ordered = dra_driver.DYNAMIC_MIG in mode.gates  # else NVIDIA's order is random
        lines = compare.differences(our_slices, their_slices, ordered=is_ordered)
        matches = [(line, _LINE.fullmatch(line)) for line in lines]
        if mode == DYNAMIC_BY_COUNT:
            # A flaw of v0.5.0: its counter sets have a counter `shares` that no device draws on.
            flaws = [line for line, _ in matches if _SHARES_COUNTER.fullmatch(line)]
            assert len(flaws) == len(hardware.snapshot().gpus)
            matches = [(line, match) for line, match in matches if line not in flaws]
        unexpected = [
            line for line, match in matches if not match or match["fact"] not in OURS_ALONE
        ]
        assert unexpected == []
        return {match["fact"].rpartition("/")[2] for _, match in matches if match}

    return compared


@pytest.mark.parametrize("machine", ALL)
def test_whole_gpus(machine: str, build: Build, additions: Compare) -> None:
    expected = {
        "gb200-tray": {"powerLimit", "nvlinkCount", "nvlinkDomain", "clique"},
        **{name: {"powerLimit"} for name in ("a30", "l4", "t4")},
    }
    usual = {"powerLimit", "nvlinkCount", "nvlinkDomain"}
    assert additions(build(machine), WHOLE) == expected.get(machine, usual)


@pytest.mark.parametrize("machine", WITH_MIG)
@pytest.mark.parametrize("is_on", [False, True], ids=["mig-off", "mig-on"])
def test_partitions_on_demand(machine: str, is_on: bool, build: Build, additions: Compare) -> None:
    additions(build(machine, mig=is_on), DYNAMIC)


@pytest.mark.parametrize("machine", ["l4", "t4"])
def test_partitions_on_demand_where_there_can_be_none(
    machine: str, build: Build, additions: Compare
) -> None:
    additions(build(machine), DYNAMIC)


def test_partitions_that_exist(build: Build, additions: Compare) -> None:
    hardware = build("dgx-h100", gpus=3, mig=True)
    hardware.set_mig_mode(2, is_on=False)
    for gpu, profile, start in [(0, 9, 4), (0, 19, 0), (1, 20, 3), (1, 15, 6), (1, 14, 0)]:
        hardware.create_mig(gpu, profile, start)
    additions(hardware, STATIC)


@pytest.mark.parametrize("machine", ["dgx-h100", "dgx-a100", "t4"])
@pytest.mark.parametrize("mode", [BY_MEMORY, BY_COUNT], ids=["by-memory", "by-count"])
def test_shares_of_whole_gpus(machine: str, mode: Mode, build: Build, additions: Compare) -> None:
    has_share = "share" in additions(build(machine), mode)
    assert has_share == (mode == BY_MEMORY)


@pytest.mark.parametrize(("machine", "is_on"), [("dgx-h100", False), ("dgx-a100", True)])
def test_shares_of_partitions(machine: str, is_on: bool, build: Build, additions: Compare) -> None:
    additions(build(machine, mig=is_on), DYNAMIC_BY_MEMORY)


def test_counted_shares_of_partitions(build: Build, additions: Compare) -> None:
    additions(build("dgx-h100"), DYNAMIC_BY_COUNT)


def test_different_boards_in_one_machine(build: Build, additions: Compare) -> None:
    hardware = build("dgx-h100")
    hardware.add_gpu(machine="l4")
    additions(hardware, DYNAMIC)


def test_ampere_with_mig_mode_on_one_gpu_only(build: Build, additions: Compare) -> None:
    hardware = build("dgx-a100", mig=True)
    hardware.set_mig_mode(0, is_on=False)
    hardware.reset(0)
    additions(hardware, DYNAMIC)


def test_a_full_dgx(build: Build, additions: Compare) -> None:
    additions(build("dgx-h100", gpus=8), DYNAMIC)


def test_an_old_driver_that_knows_no_addressing_mode(build: Build, additions: Compare) -> None:
    hardware = build("dgx-h100", driver_version="550.54.15", cuda_version="12.4")
    hardware.fail("nvmlDeviceGetAddressingMode", 3)  # NOT_SUPPORTED
    additions(hardware, DYNAMIC)
