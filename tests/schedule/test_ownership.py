"""Next to other schedulers: only our nodes and devices are given out; a pod that needs others' gets a reason."""

from __future__ import annotations

from typing import Any

from dovetail.model import plan, policy
from dovetail.model.reasons import ReasonCode
from dovetail.world.world import World
from tests.schedule import build

OURS = {"pool": "ours"}
TAINT = {"key": "dovetail.dev/owned", "effect": "NoSchedule"}
TOLERANT = [{"key": "dovetail.dev/owned", "operator": "Exists"}]


def decided(world: World, **ownership: Any) -> plan.Plan:
    return build.decided(world, policy=policy.Policy(ownership=policy.Ownership(**ownership)))


def test_nodes_without_our_labels_are_left_to_others() -> None:
    world = build.world(build.pod("a", cpu="60"), build.pod("b", cpu="60"), nodes=3)
    build.put(world, build.node("n2", labels=OURS))
    done = decided(world, node_labels=OURS)
    assert build.nodes_of(done) == {"a": "n2"}
    assert build.summary_of(done, "b") == (
        "3 nodes: 1 lacks cpu (needs 60, at most 4 free), 2 belong to another scheduler"
    )
    assert done.refusals[0].obstacles[1].reason.code is ReasonCode.NOT_OWNED


def test_every_label_counts() -> None:
    world = build.world(build.pod("a"), build.node("half", labels=OURS))
    assert decided(world, node_labels={**OURS, "tier": "1"}).placements == ()
    build.put(world, build.node("whole", labels={**OURS, "tier": "1"}))
    assert build.nodes_of(decided(world, node_labels={**OURS, "tier": "1"})) == {"a": "whole"}


def test_a_node_that_becomes_ours_is_used_and_one_that_no_longer_is_is_not() -> None:
    world = build.world(build.pod("a"), build.node("n"))
    assert decided(world, node_labels=OURS).placements == ()
    build.put(world, build.node("n", labels=OURS))
    assert build.nodes_of(decided(world, node_labels=OURS)) == {"a": "n"}
    build.put(world, build.node("n"))
    assert decided(world, node_labels=OURS).placements == ()


def test_with_a_taint_as_mark_only_tainted_nodes_are_ours_and_pods_must_tolerate_it() -> None:
    world = build.world(build.node("free"), build.node("marked", taints=[TAINT]))
    build.put(world, build.pod("brave", tolerations=TOLERANT), build.pod("shy"))
    done = decided(world, node_taint="dovetail.dev/owned")
    assert build.nodes_of(done) == {"brave": "marked"}
    assert build.summary_of(done, "shy") == (
        "2 nodes: 1 has taint dovetail.dev/owned:NoSchedule that the pod does not tolerate, "
        "1 belongs to another scheduler"
    )


def test_devices_our_rules_mark_are_ours_alone() -> None:
    world = build.world(build.claim("c"), build.pod("p", uses=("c",)), nodes=2)
    build.put(world, build.taint_rule("ours", pool="n1"))
    assert build.nodes_of(build.decided(world)) == {
        "p": "n0"
    }  # pods without the toleration keep away from n1
    done = decided(world, device_rules=("ours",))
    assert build.nodes_of(done) == {"p": "n1"}
    assert done.placements[0].allocations[0].result.devices.results[0].tolerations == ()


def test_unmarked_devices_are_not_ours_whatever_a_claim_tolerates() -> None:
    brave = {
        "name": "gpus",
        "exactly": {
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 3,
            "tolerations": [{"operator": "Exists"}],
        },
    }
    world = build.world(
        build.claim("c", requests=[brave]), build.pod("p", uses=("c",)), nodes=1, gpus=4
    )
    for device in ("gpu-0", "gpu-2"):
        build.put(world, build.taint_rule(f"ours-{device}", device=device))
    [refusal] = decided(world, device_rules=("ours-gpu-0", "ours-gpu-2")).refusals
    assert refusal.summary == (
        "1 node: 1 cannot serve claim c: request gpus: 4 of class gpu -> 2 of this scheduler (needs 3)"
    )
    assert [obstacle.reason.code for obstacle in refusal.obstacles] == [ReasonCode.NOT_OWNED]


def test_a_taint_from_another_rule_on_our_device_still_counts() -> None:
    world = build.world(build.claim("c"), build.pod("p", uses=("c",)), nodes=1, gpus=1)
    build.put(world, build.taint_rule("ours"), build.taint_rule("broken"))
    [refusal] = decided(world, device_rules=("ours",)).refusals
    assert [obstacle.reason.code for obstacle in refusal.obstacles] == [ReasonCode.TAINT]


def test_all_devices_cannot_be_had_where_some_are_others() -> None:
    every = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    world = build.world(
        build.claim("c", requests=[every]), build.pod("p", uses=("c",)), nodes=1, gpus=2
    )
    build.put(world, build.taint_rule("ours", device="gpu-0"))
    assert decided(world, device_rules=("ours",)).placements == ()
    build.put(world, build.taint_rule("ours"))
    assert len(build.devices_of(decided(world, device_rules=("ours",)), "p")) == 2


def test_a_node_that_reports_itself_not_ready_is_judged_by_its_taints_alone() -> None:
    tree = {
        "metadata": {"name": "n"},
        "status": {
            "allocatable": {"cpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }
    world = build.world(build.pod("a"), build.struct("Node", tree))
    assert build.nodes_of(build.decided(world)) == {"a": "n"}
