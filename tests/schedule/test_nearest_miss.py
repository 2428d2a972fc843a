"""Reasons are ordered by how near nodes came to taking the pod, and count only devices that could serve it."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.model import policy
from dovetail.model.reasons import ReasonCode
from dovetail.world.events import Object
from dovetail.world.world import World
from tests.schedule import build

CHANNELS = "compute-domain.example.com"


def gpu_node(name: str, gpus: int, **attributes: Any) -> tuple[nodes.Node, slices.ResourceSlice]:
    return build.node(name), build.gpu_slice(name, gpus, **attributes)


def channels(node: str, count: int) -> slices.ResourceSlice:
    """IMEX channels of a node: devices of another driver."""
    spec = {
        "driver": CHANNELS,
        "nodeName": node,
        "pool": {"name": f"{node}-channels", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"channel-{number}"} for number in range(count)],
    }
    tree = {"metadata": {"name": f"{node}-channels"}, "spec": spec}
    return build.struct("ResourceSlice", tree)  # type: ignore[no-any-return]


def mixed_fleet(*more: Object) -> World:
    """Six nodes without GPUs, one with GPUs of another model, one with too little cpu."""
    world = build.world(*[build.node(f"plain-{number}") for number in range(6)])
    build.put(world, *gpu_node("other", 8, model={"string": "A100"}))
    build.put(world, build.node("small", allocatable={"cpu": "2"}), build.gpu_slice("small", 8))
    return build.put(world, *more)


@pytest.mark.parametrize("memo", [True, False])
def test_the_nearest_miss_comes_first_however_many_nodes_share_another_reason(memo: bool) -> None:
    """Four requests fail on many nodes, and would cut off the one node that has such devices."""
    model = f'device.attributes["{build.DRIVER}"].model == "H100"'
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [
        {"name": f"r{number}", "exactly": exactly | {"selectors": [{"cel": {"expression": model}}]}}
        for number in range(4)
    ]
    world = build.world(*[build.node(f"plain-{number}") for number in range(6)])
    build.put(world, *[channels(f"plain-{number}", 1) for number in range(6)])
    build.put(world, *gpu_node("other", 8, model={"string": "A100"}))
    build.put(world, build.claim("g", requests=requests), build.pod("p", uses=("g",)))

    refusal = build.decided(world, policy=policy.Policy(memo=memo)).refusals[0]
    first = refusal.obstacles[0]
    assert (first.nodes, first.reason.code) == (1, ReasonCode.SELECTOR)
    assert refusal.summary.startswith(
        f"7 nodes: 1 cannot serve claim g: request r0: 8 of class gpu -> 0 with {model} "
        '(needs 1; nearest: gpu.example.com/model is "A100" (8 devices)), 1 cannot serve'
    )
    assert refusal.summary.endswith("4 more reasons")


def test_right_devices_in_use_come_before_room_and_room_before_other_devices() -> None:
    world = mixed_fleet(*gpu_node("taken", 2))
    build.put(world, build.claim("holder-g", 2), build.pod("holder", uses=("holder-g",)))
    model = f'device.attributes["{build.DRIVER}"].model == "H100"'
    build.put(world, build.claim("g", 2, when=model), build.pod("p", uses=("g",), cpu="4"))
    build.put(world, build.node("closed", unschedulable=True))
    held = build.decided(world, among={"uid-of-holder"})
    build.carried_out(world, held)
    assert build.nodes_of(held)["holder"] == "taken"

    codes = [obstacle.reason.code for obstacle in build.decided(world).refusals[0].obstacles]
    assert codes == [
        ReasonCode.IN_USE,
        ReasonCode.ROOM,
        ReasonCode.SELECTOR,
        ReasonCode.NO_DEVICES,
        ReasonCode.CORDONED,
    ]


def test_many_devices_of_other_classes_bring_a_node_no_nearer() -> None:
    world = build.world(*gpu_node("four", 4), build.node("none"), channels("none", 100))
    build.put(world, build.claim("g", 16), build.pod("p", uses=("g",)))
    assert build.summary_of(build.decided(world), "p") == (
        "2 nodes: 1 cannot serve claim g: request gpus: 4 of class gpu (needs 16), "
        "1 cannot serve claim g: request gpus: 0 of class gpu (needs 16)"
    )


def test_of_one_filter_the_smaller_shortfall_comes_first_then_the_larger_count() -> None:
    world = build.world(*gpu_node("six", 6), *gpu_node("two-a", 2), *gpu_node("two-b", 2))
    build.put(world, build.node("none"), build.claim("g", 8), build.pod("p", uses=("g",)))
    assert build.summary_of(build.decided(world), "p") == (
        "4 nodes: 1 cannot serve claim g: request gpus: 6 of class gpu (needs 8), "
        "2 cannot serve claim g: request gpus: 2 of class gpu (needs 8), "
        "1 cannot serve claim g: request gpus: 0 of class gpu (needs 8)"
    )


@pytest.mark.parametrize("memo", [True, False])
def test_nodes_of_four_gpus_say_four_and_nodes_of_eight_say_eight(memo: bool) -> None:
    """Whatever other devices they have: channels are not counted with GPUs."""
    world = build.world()
    for number in range(3):
        build.put(world, *gpu_node(f"four-{number}", 4), channels(f"four-{number}", 2))
    for number in range(2):
        build.put(world, *gpu_node(f"eight-{number}", 8), channels(f"eight-{number}", 2))
    build.put(world, build.claim("g", 16), build.pod("p", uses=("g",)))
    plan = build.decided(world, policy=policy.Policy(memo=memo))
    assert build.summary_of(plan, "p") == (
        "5 nodes: 2 cannot serve claim g: request gpus: 8 of class gpu (needs 16), "
        "3 cannot serve claim g: request gpus: 4 of class gpu (needs 16)"
    )


def test_what_is_free_on_the_nearest_of_several_nodes_is_said_to_be_the_most() -> None:
    world = build.world(*gpu_node("a", 8), *gpu_node("b", 8))
    for name, count in (("x", 5), ("y", 7)):
        build.put(world, build.claim(name, count), build.pod(f"uses-{name}", uses=(name,)))
    build.carried_out(world, build.decided(world))
    build.put(world, build.claim("g", 4), build.pod("p", uses=("g",)))
    assert build.summary_of(build.decided(world), "p") == (
        "2 nodes: 2 cannot serve claim g: request gpus: 8 tolerated -> at most 3 free (needs 4)"
    )


def test_where_the_only_free_gpu_is_tainted_by_a_rule_the_reason_names_the_taint() -> None:
    world = build.world(*gpu_node("a", 2))
    build.put(world, build.claim("x", 1), build.pod("uses-x", uses=("x",)))
    build.carried_out(world, build.decided(world))
    build.put(world, build.taint_rule("ecc", pool="a", device="gpu-1"))
    build.put(world, build.claim("g", 1), build.pod("p", uses=("g",)))
    assert build.summary_of(build.decided(world), "p") == (
        "1 node: 1 cannot serve claim g: request gpus: 1 tolerated -> 0 free "
        "(needs 1; tainted: 1 with ecc.example.com:NoSchedule, 1 of them free)"
    )


def test_where_the_only_free_gpus_are_on_tainted_nodes_the_taint_is_never_cut_off() -> None:
    world = build.world()
    for gpus in range(2, 8):
        build.put(world, *gpu_node(f"of-{gpus}", gpus))
        build.put(world, build.claim(f"x{gpus}", gpus), build.pod(f"u{gpus}", uses=(f"x{gpus}",)))
    build.carried_out(world, build.decided(world))
    taints = [{"key": "repair", "effect": "NoSchedule"}]
    build.put(world, build.node("free", taints=taints), build.gpu_slice("free", 8))
    build.put(world, build.claim("g", 1), build.pod("p", uses=("g",)))
    summary = build.summary_of(build.decided(world), "p")
    assert "1 has taint repair:NoSchedule that the pod does not tolerate" in summary
    assert summary.endswith("2 more reasons")
