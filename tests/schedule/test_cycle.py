"""Stories about deciding: who starts where, on which devices, and which reasons the others get."""

from __future__ import annotations

import datetime

from dovetail.model import policy
from dovetail.model.reasons import ReasonCode
from dovetail.world.world import World
from tests.schedule import build

TEMPLATE_STATUS = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}


def test_a_pod_gets_a_node_and_its_claim_gets_a_device_there() -> None:
    world = build.world(build.claim("one"), build.pod("train", uses=("one",)), nodes=2)
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"train": "n0"}
    [placement] = plan.placements
    [allocation] = placement.allocations
    assert str(allocation.claim) == "default/one"
    assert [result.pool for result in allocation.result.devices.results] == ["n0"]
    assert [str(claim) for claim in placement.reservations] == ["default/one"]
    assert plan.refusals == plan.evictions == plan.nominations == ()
    assert plan.wake_at is None


def test_no_device_is_allocated_twice_and_a_late_pod_gets_a_reason() -> None:
    given = [(build.claim(f"c{i}"), build.pod(f"p{i}", uses=(f"c{i}",))) for i in range(5)]
    world = build.world(*(item for pair in given for item in pair), nodes=2, gpus=2)
    plan = build.decided(world)
    taken = [device for name in build.nodes_of(plan) for device in build.devices_of(plan, name)]
    assert sorted(taken) == ["n0/gpu-0", "n0/gpu-1", "n1/gpu-0", "n1/gpu-1"]
    [refusal] = plan.refusals
    assert refusal.pod.name == "p4"
    assert refusal.summary.startswith("2 nodes: 2 ")
    assert refusal.obstacles[0].nodes == 2


def test_the_important_choose_first() -> None:
    world = build.world(
        build.claim("a"),
        build.claim("b"),
        build.pod("humble", uses=("a",), created="2025-01-01T00:00:00Z"),
        build.pod("important", uses=("b",), priority=100),
        nodes=1,
        gpus=1,
    )
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"important": "n0"}
    assert [refusal.pod.name for refusal in plan.refusals] == ["humble"]


def test_pods_fill_a_node_before_they_open_another() -> None:
    given = [(build.claim(f"c{i}"), build.pod(f"p{i}", uses=(f"c{i}",))) for i in range(6)]
    world = build.world(*(item for pair in given for item in pair), nodes=3, gpus=4)
    where = list(build.nodes_of(build.decided(world)).values())
    assert sorted(where.count(name) for name in set(where)) == [2, 4]


def test_the_fuller_node_is_chosen_even_if_its_name_comes_later() -> None:
    world = build.world(
        build.claim("a"), build.pod("first", uses=("a",), nodeSelector={"pick": "me"}), nodes=2
    )
    build.put(world, build.node("n1", labels={"pick": "me"}))
    build.carried_out(world, build.decided(world))
    build.put(world, build.claim("b"), build.pod("second", uses=("b",)))
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"second": "n1"}
    assert "tight fit" in [term.name for term in plan.placements[0].terms]


def test_a_pod_without_devices_leaves_gpu_nodes_alone() -> None:
    world = build.world(build.pod("web", cpu="8"), nodes=1)
    build.put(world, build.node("z-plain"))
    assert build.nodes_of(build.decided(world)) == {"web": "z-plain"}


def test_cpu_runs_out_before_gpus_do() -> None:
    given = [
        (build.claim(f"c{i}"), build.pod(f"p{i}", uses=(f"c{i}",), cpu="30")) for i in range(3)
    ]
    world = build.world(*(item for pair in given for item in pair), nodes=1)
    plan = build.decided(world)
    assert len(plan.placements) == 2
    assert build.summary_of(plan, "p2") == "1 node: 1 lacks cpu (needs 30, at most 4 free)"
    assert plan.refusals[0].obstacles[0].reason.code is ReasonCode.ROOM


def test_obstacles_are_counted_over_nodes_the_nearest_first() -> None:
    world = build.world(build.pod("picky", cpu="500", nodeSelector={"disk": "ssd"}))
    for index in range(4):
        build.put(world, build.node(f"slow-{index}"))
    build.put(world, build.node("small", labels={"disk": "ssd"}))
    build.put(
        world,
        build.node(
            "tainted", taints=[{"key": "x", "effect": "NoSchedule"}], labels={"disk": "ssd"}
        ),
    )
    build.put(world, build.node("closed", unschedulable=True, labels={"disk": "ssd"}))
    assert build.summary_of(build.decided(world), "picky") == (
        "7 nodes: 1 lacks cpu (needs 500, at most 64 free), 4 lack the labels the pod asks for: disk=ssd, "
        "1 has taint x:NoSchedule that the pod does not tolerate, 1 is cordoned"
    )


def test_without_nodes_the_cluster_is_said_to_be_empty() -> None:
    assert "no nodes" in build.summary_of(build.decided(build.world(build.pod("p"))), "p")


def test_a_claim_two_pods_share_is_allocated_once_and_the_second_follows() -> None:
    world = build.world(
        build.claim("shared"),
        build.pod("first", uses=("shared",)),
        build.pod("second", uses=("shared",)),
        nodes=3,
    )
    plan = build.decided(world)
    first, second = plan.placements
    assert first.node == second.node
    assert (len(first.allocations), len(second.allocations)) == (1, 0)
    assert [str(claim) for claim in second.reservations] == ["default/shared"]


def test_the_follower_of_a_shared_claim_waits_where_its_node_is_full() -> None:
    world = build.world(
        build.claim("shared"),
        build.pod("first", uses=("shared",), cpu="60"),
        build.pod("second", uses=("shared",), cpu="60"),
        nodes=3,
    )
    assert build.summary_of(build.decided(world), "second") == (
        "3 nodes: 1 lacks cpu (needs 60, at most 4 free), 2 cannot reach the devices of claim default/shared"
    )


def test_an_allocated_claim_binds_its_pod_to_the_node_and_is_not_allocated_again() -> None:
    world = build.world(build.claim("c"), build.pod("a", uses=("c",)), nodes=3)
    build.carried_out(world, build.decided(world))
    build.put(world, build.pod("b", uses=("c",)))
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"b": "n0"}
    assert plan.placements[0].allocations == ()


def test_a_claim_made_from_a_template_is_found_through_the_pods_status() -> None:
    owner = {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-p", "controller": True}
        ]
    }
    entry = [{"name": "gpu", "resourceClaimTemplateName": "mould"}]
    world = build.world(
        build.claim("made", metadata=owner),
        build.pod("p", resourceClaims=entry, status=TEMPLATE_STATUS),
        nodes=1,
    )
    assert build.devices_of(build.decided(world), "p") == ["n0/gpu-0"]


def test_a_claim_made_for_another_pod_is_not_used() -> None:
    entry = [{"name": "gpu", "resourceClaimTemplateName": "mould"}]
    world = build.world(
        build.claim("made"), build.pod("p", resourceClaims=entry, status=TEMPLATE_STATUS), nodes=1
    )
    assert codes(world, "p") == [ReasonCode.CLAIM_NOT_OURS]


def test_what_keeps_a_pod_from_its_claims_is_said_claim_by_claim() -> None:
    entries = [
        {"name": "none", "resourceClaimName": "nowhere"},
        {"name": "going", "resourceClaimName": "going"},
        {"name": "later", "resourceClaimTemplateName": "mould"},
    ]
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.example.com/keep"]}
    world = build.world(
        build.claim("going", metadata=leaving), build.pod("p", resourceClaims=entries), nodes=1
    )
    assert codes(world, "p") == [
        ReasonCode.CLAIM_MISSING,
        ReasonCode.CLAIM_DELETING,
        ReasonCode.CLAIM_NOT_MADE,
    ]


def test_a_missing_template_has_another_reason_than_a_claim_not_made_yet() -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    world = build.world(build.pod("p", resourceClaims=entries), nodes=1)
    assert build.summary_of(build.decided(world), "p") == (
        "resourceClaims gpu: template two does not exist in namespace default; "
        "create it, or correct its name"
    )
    build.put(world, build.template("two"))
    assert build.summary_of(build.decided(world), "p") == (
        "resourceClaims gpu: no claim was made from template two yet; "
        "where that lasts, the pod's events say why"
    )


def test_an_entry_whose_status_names_no_claim_needs_none() -> None:
    entry = [{"name": "gpu", "resourceClaimTemplateName": "mould"}]
    status = {"resourceClaimStatuses": [{"name": "gpu"}]}
    world = build.world(build.pod("p", resourceClaims=entry, status=status), nodes=1)
    assert build.nodes_of(build.decided(world)) == {"p": "n0"}


def test_a_claim_has_at_most_256_users() -> None:
    users = [{"resource": "pods", "name": f"u{i}", "uid": f"u{i}"} for i in range(255)]
    allocated = {
        "devices": {
            "results": [
                {"request": "gpus", "driver": build.DRIVER, "pool": "n0", "device": "gpu-0"}
            ]
        }
    }
    full = build.claim("c", status={"allocation": allocated, "reservedFor": users})
    world = build.world(full, build.pod("a", uses=("c",)), build.pod("b", uses=("c",)), nodes=1)
    plan = build.decided(world)
    assert list(build.nodes_of(plan)) == ["a"]
    assert plan.refusals[0].obstacles[0].reason.code is ReasonCode.CLAIM_FULL


def test_a_pod_already_listed_is_not_reserved_again() -> None:
    users = [{"resource": "pods", "name": "a", "uid": "uid-of-a"}]
    allocated = {
        "devices": {
            "results": [
                {"request": "gpus", "driver": build.DRIVER, "pool": "n0", "device": "gpu-0"}
            ]
        }
    }
    world = build.world(
        build.claim("c", status={"allocation": allocated, "reservedFor": users}), nodes=1
    )
    build.put(world, build.pod("a", uses=("c",)))
    assert build.decided(world).placements[0].reservations == ()


def test_gates_keep_a_pod_waiting() -> None:
    world = build.world(build.pod("gated", schedulingGates=[{"name": "quota"}]), nodes=1)
    assert codes(world, "gated") == [ReasonCode.GATED]


def test_the_world_is_left_as_it_was_found() -> None:
    world = build.world(build.claim("one"), build.pod("train", uses=("one",)), nodes=2)
    before = (
        world.free("n0"),
        world.view("n0").pools[0].used,
        len(world.pending()),
        dict(world.assumed),
    )
    first = build.decided(world)
    assert (
        world.free("n0"),
        world.view("n0").pools[0].used,
        len(world.pending()),
        dict(world.assumed),
    ) == before
    assert build.decided(world) == first


def test_what_was_assumed_before_is_respected() -> None:
    world = build.world(
        build.claim("a"), build.claim("b"), build.pod("first", uses=("a",)), nodes=1, gpus=1
    )
    [placement] = build.decided(world).placements
    result = {("default", "a"): placement.allocations[0].result}
    world.assume(next(iter(world.pods.values())), placement.node, result)
    build.put(world, build.pod("second", uses=("b",)))
    plan = build.decided(world)
    assert [refusal.pod.name for refusal in plan.refusals] == ["second"]
    assert plan.placements == ()


def test_a_budget_of_pods_leaves_the_rest_undecided_and_counted() -> None:
    world = build.world(build.pod("a"), build.pod("b"), build.pod("c"), nodes=1)
    plan = build.decided(world, budget=policy.Budget(pods=1))
    assert (len(plan.placements), plan.undecided) == (1, 2)
    assert {
        obstacle.reason.code for refusal in plan.refusals for obstacle in refusal.obstacles
    } == {ReasonCode.TO_BE_CONTINUED}


def test_only_the_pods_asked_about_are_decided_by_rank_not_in_the_order_given() -> None:
    world = build.world(
        build.pod("a"),
        build.pod("b"),
        build.pod("c", priority=5),
        build.node("n", allocatable={"cpu": "1"}),
    )
    plan = build.decided(world, among=["uid-of-b", "uid-of-c"])
    assert build.nodes_of(plan) == {"c": "n"}
    assert [refusal.pod.name for refusal in plan.refusals] == ["b"]
    assert build.decided(world, among=[]).placements == ()


def test_pods_that_do_not_wait_are_passed_over() -> None:
    world = build.world(
        build.pod("a"), build.pod("bound", nodeName="n0"), build.pod("assumed"), nodes=1
    )
    world.assume(world.pods["uid-of-assumed"], "n0")
    asked = ["uid-of-assumed", "uid-of-bound", "uid-of-no-pod", "uid-of-a", "uid-of-a"]
    plan = build.decided(world, among=asked)
    assert build.nodes_of(plan) == {"a": "n0"}
    assert plan.refusals == ()


def test_devices_that_must_be_prepared_come_with_their_conditions_in_the_plan() -> None:
    devices = [
        {
            "name": "gpu-0",
            "bindsToNode": True,
            "bindingConditions": ["Ready"],
            "bindingFailureConditions": ["Broken"],
        }
    ]
    world = build.world(
        build.claim("c"), build.pod("p", uses=("c",)), build.node("n"), build.gpu_pool("n", devices)
    )
    for options in ({}, {"policy": policy.Policy(memo=False)}):
        [placement] = build.decided(world, **options).placements
        [result] = placement.allocations[0].result.devices.results
        assert (result.binding_conditions, result.binding_failure_conditions) == (
            ("Ready",),
            ("Broken",),
        )
        selector = placement.allocations[0].result.node_selector
        assert selector is not None
        assert selector.node_selector_terms[0].match_fields[0].values == ("n",)


def test_a_kind_that_is_too_hard_for_one_cycle_is_decided_by_several() -> None:
    world = build.world(build.claim("c"), build.pod("p", uses=("c",)))
    for index in range(8):
        build.put(world, build.node(f"n{index}"), build.gpu_slice(f"n{index}", index + 1))
    whole = build.decided(world)
    cut = policy.Budget(kind_steps=20)
    text = build.summary_of(build.decided(world, budget=cut), "p")
    assert text.startswith("6 nodes are still to be judged")
    plans = [build.decided(world, budget=cut) for _ in range(3)]
    assert [plan.undecided for plan in plans] == [1, 1, 0]
    assert plans[-1] == whole


def test_a_pod_that_fits_nowhere_alone_does_not_hold_up_the_others() -> None:
    world = build.world(
        build.claim("too-many", count=9),
        build.claim("some", count=8),
        build.pod("greedy", uses=("too-many",), priority=9),
        build.pod("modest", uses=("some",)),
        nodes=1,
    )
    plan = build.decided(world, now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    assert build.nodes_of(plan) == {"modest": "n0"}
    assert len(build.devices_of(plan, "modest")) == 8


def test_an_earlier_alternative_elsewhere_beats_a_later_one_here() -> None:
    def option(name: str, model: str) -> dict[str, object]:
        expression = f'device.attributes["{build.DRIVER}"].model == "{model}"'
        common = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        return {"name": name, "selectors": [{"cel": {"expression": expression}}], **common}

    wish = [{"name": "r", "firstAvailable": [option("best", "H200"), option("good", "H100")]}]
    world = build.world(build.claim("c", requests=wish), build.pod("p", uses=("c",)), nodes=2)
    build.put(world, build.node("z"), build.gpu_slice("z", 8, model={"string": "H200"}))
    assert build.nodes_of(build.decided(world)) == {"p": "z"}
    build.put(world, build.node("z", unschedulable=True))
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"p": "n0"}
    assert plan.placements[0].terms[0].name == "second choice"


def codes(world: World, pod: str) -> list[ReasonCode]:
    refusal = next(item for item in build.decided(world).refusals if item.pod.name == pod)
    return [obstacle.reason.code for obstacle in refusal.obstacles]
