"""Claims that keep a pod pending: named only where releasing their devices could help."""

from __future__ import annotations

from typing import Any

from dovetail.world.world import World
from tests.schedule import build

ME = {"resource": "pods", "name": "p", "uid": "uid-of-p"}
OTHER = {"resource": "pods", "name": "o", "uid": "uid-of-o"}


def allocated(name: str, node: str, *users: dict[str, str], device: str = "gpu-0") -> Any:
    """A claim with a device of one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {
            "results": [{"request": "gpus", "driver": build.DRIVER, "pool": node, "device": device}]
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    return build.claim(name, status={"allocation": allocation, "reservedFor": list(users)})


def holding(world: World, pod: str = "p") -> list[str]:
    refusal = next(item for item in build.decided(world).refusals if item.pod.name == pod)
    return [ref.name for ref in refusal.holding]


def full(node: str) -> Any:
    return build.node(node, allocatable={"cpu": "1"})


def test_a_claim_on_a_full_node_is_held_for_nothing() -> None:
    for users in ((), (ME,)):
        world = build.world(
            allocated("c", "n0", *users), build.pod("p", uses=("c",), cpu="2"), nodes=2
        )
        build.put(world, full("n0"))
        assert holding(world) == ["c"]


def test_a_claim_on_a_node_that_is_gone_is_held_for_nothing() -> None:
    world = build.world(allocated("c", "gone", ME), build.pod("p", uses=("c",)), nodes=1)
    assert holding(world) == ["c"]


def test_claims_on_different_nodes_cannot_be_used_together() -> None:
    world = build.world(
        allocated("a", "n0"), allocated("b", "n1"), build.pod("p", uses=("a", "b")), nodes=2
    )
    assert holding(world) == ["a", "b"]


def test_a_claim_another_pod_uses_stays_where_it_is() -> None:
    world = build.world(
        allocated("c", "n0", ME, OTHER), build.pod("p", uses=("c",), cpu="2"), nodes=2
    )
    build.put(world, full("n0"))
    assert holding(world) == []


def test_a_claim_an_assumed_pod_uses_stays_where_it_is() -> None:
    world = build.world(allocated("c", "n0"), build.pod("p", uses=("c",), cpu="2"), nodes=2)
    build.put(world, full("n0"), build.pod("o", uses=("c",)))
    world.assume(world.pods["uid-of-o"], "n0")
    assert holding(world) == []


def test_nothing_is_given_up_where_a_shared_claim_ties_the_pod_to_the_node_anyway() -> None:
    given = (allocated("mine", "n0", ME), allocated("ours", "n0", OTHER, device="gpu-1"))
    world = build.world(*given, build.pod("p", uses=("mine", "ours"), cpu="2"), nodes=2)
    build.put(world, full("n0"))
    assert holding(world) == []


def test_a_claim_of_ones_own_is_given_up_to_join_a_shared_one() -> None:
    given = (allocated("mine", "n1", ME), allocated("ours", "n0", OTHER))
    world = build.world(*given, build.pod("p", uses=("mine", "ours")), nodes=2)
    assert holding(world) == ["mine"]


def test_nothing_is_given_up_where_no_other_node_would_do() -> None:
    pinned = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
    world = build.world(
        allocated("c", "n0", ME), build.pod("p", uses=("c",), cpu="2", **pinned), nodes=2
    )
    build.put(world, full("n0"))
    assert holding(world) == []


def test_a_pod_that_is_not_ready_holds_nothing_back() -> None:
    gated = {"schedulingGates": [{"name": "wait"}]}
    world = build.world(allocated("c", "n0", ME), build.pod("p", uses=("c",), **gated), nodes=2)
    build.put(world, full("n0"), build.pod("q", uses=("c", "missing")))
    assert holding(world) == holding(world, "q") == []


def test_a_claim_without_devices_is_not_held() -> None:
    world = build.world(build.claim("c", count=9), build.pod("p", uses=("c",)), nodes=1)
    assert holding(world) == []
