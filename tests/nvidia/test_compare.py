"""The comparison itself: it sees every kind of difference, and none where there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from tests.nvidia import compare

Slices = list[dict[str, Any]]


def slices() -> Slices:
    pool = fleet_spec.Pool(name="h", count=1, gpu="H100-SXM5-80GB", gpus_per_node=2, mig=True)
    fleet = fleet_spec.Fleet(name="compared", pools=(pool,))
    return device_publisher.slices_of(next(machines.machines_of(fleet)), fleet)


def test_equal_slices_do_not_differ_whatever_the_server_appended_to_their_names() -> None:
    ours, theirs = slices(), slices()
    for tree in theirs:
        tree["metadata"]["name"] = tree["metadata"]["generateName"] + "x7k2p"
        tree["metadata"]["uid"] = "0001"
        tree["spec"]["pool"]["generation"] = 4
    assert compare.differences(ours, theirs) == []


def _attribute(trees: Slices) -> None:
    trees[1]["spec"]["devices"][3]["attributes"]["profile"] = {"string": "9g.99gb"}


def _capacity(trees: Slices) -> None:
    trees[1]["spec"]["devices"][0]["capacity"]["memory"] = {"value": "1Mi"}


def _counter(trees: Slices) -> None:
    trees[0]["spec"]["sharedCounters"][1]["counters"]["decoders"]["value"] = "0"


def _consumption(trees: Slices) -> None:
    device = trees[2]["spec"]["devices"][5]
    del device["consumesCounters"][0]["counters"]["memory"]


def _order(trees: Slices) -> None:
    trees[1]["spec"]["devices"].reverse()


def _name(trees: Slices) -> None:
    trees[0]["metadata"]["generateName"] = "h-0-gpu.nvidia.com-"


def _taint(trees: Slices) -> None:
    trees[1]["spec"]["devices"][0]["taints"] = [{"key": "a", "effect": "NoSchedule"}]


def _node(trees: Slices) -> None:
    trees[1]["spec"]["nodeName"] = "other"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (_attribute, "gpu-0-mig-1g10gb-19-2: attribute profile"),
        (_capacity, "gpu-0: capacity memory"),
        (_counter, "counters of gpu-1-counter-set decoders"),
        (_consumption, "gpu-1-mig-1g10gb-19-4: consumes gpu-1-counter-set memory"),
        (_order, "slice 1: devices"),
        (_name, "slice 0: generateName"),
        (_taint, "gpu-0: taints"),
        (_node, "slice 1: nodeName"),
    ],
)
def test_one_changed_fact_is_the_one_difference(
    change: Callable[[Slices], None], path: str
) -> None:
    theirs = copy.deepcopy(slices())
    change(theirs)
    (line,) = compare.differences(slices(), theirs)
    assert line.startswith(f"{path}: ours ")
