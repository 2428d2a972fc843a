"""A scenario becomes objects in which exactly that is free, held and waiting which the scenario says."""

from __future__ import annotations

import pytest

from dovetail import errors
from dovetail.kubetypes.custom import queues
from dovetail.model import gangs, plan, policy
from dovetail.replay.scenarios import (
    build_scenario,
    run_scenario,
    scenario_claims,
    scenario_format,
    scenario_nodes,
    scenario_state,
)
from dovetail.replay.scenarios.scenario_format import State
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World
from tests.scenarios import build, scoring
from tests.support import shared

CLAIMABLE = {
    "device_classes": [{"name": "gpus", "gpu": True}],
    "device_slices": [
        {"name": "s", "node": "n0", "pool": "n0", "gpu": True, "devices": ["0", "1"]}
    ],
    "nodes": [build.node("n0", gpus=0)],
}


def begun(scenario: scenario_format.Scenario) -> World:
    return build_scenario.world(scenario, scenario_state.begin(scenario))


def free_gpus(world: World, node: str) -> float:
    """What the ledger finds free of the node's GPUs."""
    return sum(gpu_ledger.Ledger().free_milli_gpu(pool) for pool in world.view(node).pools) / 1000


def placed(scenario: scenario_format.Scenario) -> dict[str, str]:
    """Who is bound where after one decision."""
    outcome = run_scenario.run(scenario)
    return {name: one.node for name, one in outcome.end.pods.items() if one.state is State.BOUND}


def test_public_scenarios_have_free_what_their_pods_leave() -> None:
    for line in shared.lines(scoring.PUBLIC):
        scenario = build.read(line)
        world = begun(scenario)
        assert not world.overlaps(), scenario.id
        for node in scenario.nodes:
            there = [
                p
                for j in scenario.jobs
                for p in j.pods
                if p.state in scenario_format.HOLDING and p.node == node.name
            ]
            free = world.free(node.name)
            assert free.milli_cpu == 1000 * (
                node.allocatable["cpu"] - sum(p.request.cpu for p in there)
            ), scenario.id
            memory = node.allocatable["memory"] - sum(p.request.memory for p in there)
            assert free.memory_bytes == memory, scenario.id
            assert free.pods == node.allocatable["pods"] - len(there), scenario.id
            for name in (name for name in node.allocatable if "mig" in name):
                assert free.scalar(name) == node.allocatable[name] - sum(
                    p.request.mig.get(name, 0) for p in there
                )
            claimed = sum(
                len(device_slice.devices)
                for device_slice in scenario.device_slices
                if device_slice.node == node.name
            )
            claimed -= sum(len(claim.allocated) for claim in scenario.claims)
            shares = sum(
                scenario_claims.share_mib(p.request, node.gpu.memory_mib)
                for p in there
                if p.request.is_share
            )
            whole = (
                node.gpu.count - sum(p.request.gpu for p in there) - shares / node.gpu.memory_mib
            )
            if node.name == scenario.nodes[0].name:  # claims hold devices of the first node only
                assert free_gpus(world, node.name) == pytest.approx(whole + claimed), scenario.id


def test_public_scenarios_wait_and_run_as_written() -> None:
    for line in shared.lines(scoring.PUBLIC):
        scenario = build.read(line)
        world = begun(scenario)
        waiting = {pod.metadata.name for pod in world.pending()}
        pods = [pod for job in scenario.jobs for pod in job.pods]
        assert waiting == {
            pod.name for pod in pods if pod.state in (State.PENDING, State.GATED, State.NOMINATED)
        }
        for job in scenario.jobs:
            ref = build_scenario.gang_ref(job)
            gang = world.gangs.declared((ref.namespace, ref.name))
            assert gang is not None
            assert len(world.gangs.members((ref.namespace, ref.name))) == len(job.pods)
            assert {group.name for group in gang.groups} == {group.name for group in job.groups}


def test_sharers_of_one_name_are_on_one_gpu_and_whole_gpus_on_others() -> None:
    half: build.Tree = {"gpu_fraction": 0.5}
    scenario = build.scenario(
        build.job("whole", build.running(gpu=1)),
        build.job("one", build.running(devices=("0",), **half)),
        build.job("two", build.running(devices=("own",), **half)),
        build.job("three", build.running(devices=("own",), gpu_memory_mib=30)),
        nodes=[build.node("n0", gpus=3)],
    )
    held = {
        name: [result.device for result in pod.held[scenario_claims.GPU].devices.results]
        for name, pod in scenario_state.begin(scenario).pods.items()
    }
    assert held == {
        "one-0": ["gpu-0"],
        "two-0": ["gpu-1"],
        "three-0": ["gpu-1"],
        "whole-0": ["gpu-2"],
    }
    assert free_gpus(begun(scenario), "n0") == 0.5 + 0.2


def test_a_node_cannot_hold_more_gpus_than_it_has() -> None:
    scenario = build.scenario(build.job("a", build.running(gpu=3)))
    with pytest.raises(errors.InputError, match="pod 'a-0': node 'n0' has 2 GPUs"):
        scenario_state.begin(scenario)


def test_a_whole_gpu_is_whole_on_every_node_and_a_fraction_a_part_of_each() -> None:
    scenario = build.scenario(
        build.job("whole", {**build.waiting(gpu=1), "allowed_nodes": ["n0"]}),
        build.job("half", {**build.waiting(gpu_fraction=0.5), "allowed_nodes": ["n1"]}),
        build.job("half-too", {**build.waiting(gpu_fraction=0.5), "allowed_nodes": ["n0"]}),
        nodes=[build.node("n0", gpus=2), build.node("n1", gpus=1, memory_mib=800)],
    )
    after = run_scenario.run(scenario).end
    held = after.pods["half-0"].held[scenario_claims.GPU].devices.results[0]
    assert (after.pods["half-0"].node, held.consumed_capacity[scenario_nodes.MEMORY].value()) == (
        "n1",
        400 * 2**20,
    )
    held = after.pods["half-too-0"].held[scenario_claims.GPU].devices.results[0]
    assert held.consumed_capacity[scenario_nodes.MEMORY].value() == 50 * 2**20
    assert after.pods["whole-0"].node == "n0"
    assert free_gpus(build_scenario.world(scenario, after), "n0") == 0.5


def test_parts_of_two_gpus_are_parts_of_different_ones() -> None:
    scenario = build.scenario(build.job("a", build.waiting(gpu_fraction=0.3, gpu_devices=2)))
    results = run_scenario.run(scenario).end.pods["a-0"].held[scenario_claims.GPU].devices.results
    assert sorted(result.device for result in results) == ["gpu-0", "gpu-1"]
    item = build.scenario(
        build.job("a", build.waiting(gpu_fraction=0.3, gpu_devices=2)),
        nodes=[build.node("n0", gpus=1)],
    )
    assert not placed(item)


def test_cut_gpus_are_for_slices_alone_and_singly_cut_ones_are_not_shared() -> None:
    slices: build.Tree = {"allocatable": {"nvidia.com/mig-1g.10gb": 1}}
    nodes = [build.node("mixed", mig="mixed", **slices), build.node("single", gpus=1, mig="single")]
    scenario = build.scenario(
        build.job("part", build.waiting(gpu_fraction=0.5)),
        build.job("whole", build.waiting(gpu=1)),
        build.job("slice", build.waiting(mig={"nvidia.com/mig-1g.10gb": 1})),
        nodes=nodes,
    )
    assert placed(scenario) == {"whole-0": "single", "slice-0": "mixed"}
    assert build_scenario.policy_of(scenario).batch.gpu_prices == {"nvidia.com/mig-1g.10gb": 1000}


def test_old_slices_bar_new_ones_from_their_node_and_are_never_placed() -> None:
    slices: build.Tree = {"mig": "mixed", "allocatable": {"nvidia.com/mig-1g.10gb": 1}}
    old = {**build.running("n0"), "legacy_mig": True}
    new = build.waiting(mig={"nvidia.com/mig-1g.10gb": 1})
    barred = build.scenario(
        build.job("old", old), build.job("new", new), nodes=[build.node("n0", **slices)]
    )
    assert not placed(barred)
    free = build.scenario(
        build.job("old", old, {**build.waiting(), "legacy_mig": True}),
        build.job("new", new),
        nodes=[build.node("n0", **slices), build.node("n1", **slices)],
    )
    assert placed(free) == {"new-0": "n1"}


def test_pods_that_cannot_be_placed_are_not() -> None:
    scenario = build.scenario(
        build.job("gated", {**build.waiting(), "state": "gated"}),
        build.job("diskless", {**build.waiting(), "missing_volume_claims": ["data"]}),
        build.job("choosy", {**build.waiting(), "allowed_nodes": []}),
        build.job("free", build.waiting()),
    )
    assert placed(scenario) == {"free-0": "n0"}


def test_pods_that_end_hold_their_room_and_stuck_ones_say_so() -> None:
    scenario = build.scenario(
        build.job("ending", build.running(state="terminating", gpu=1)),
        build.job("stuck", build.running(state="terminating_stuck", gpu=1)),
        build.job("done", {**build.waiting(gpu=1), "state": "succeeded"}),
    )
    world = begun(scenario)
    assert free_gpus(world, "n0") == 0
    pods = {pod.metadata.name: pod for pod in world.pods.values()}
    assert pods["ending-0"].metadata.deletion_timestamp
    assert not pods["ending-0"].metadata.finalizers
    assert pods["stuck-0"].metadata.deletion_timestamp
    assert pods["stuck-0"].metadata.finalizers
    assert pods["done-0"].status.phase == "Succeeded"


def test_claims_pods_share_are_held_by_one_and_used_by_the_next() -> None:
    claims = [
        {
            "name": "c",
            "device_class": "gpus",
            "gpu": True,
            "queue": "q0",
            "allocated": [{"pool": "n0", "device": "1"}],
        }
        | {"reserved_for": ["a-0"], "other_consumers": 3}
    ]
    sharer = {**build.waiting(), "claims": ["c"]}
    scenario = build.scenario(
        build.job("a", {**build.running(), "claims": ["c"]}),
        build.job("b", sharer),
        **CLAIMABLE,
        claims=claims,
    )
    world = begun(scenario)
    (claim,) = world.claims.values()
    assert claim.metadata.labels == {gangs.QUEUE_LABEL: "q0"}
    assert len(claim.status.reserved_for) == 4
    after = run_scenario.run(scenario).end
    assert after.pods["b-0"].state is State.BOUND
    assert after.claims["c"].users == ("a-0", "b-0")


def test_a_claim_is_given_devices_and_gives_them_back_with_its_last_user() -> None:
    claims = [{"name": "c", "device_class": "gpus", "count": 2, "gpu": True, "queue": "q0"}]
    scenario = build.scenario(
        build.job("a", {**build.waiting(), "claims": ["c"]}), **CLAIMABLE, claims=claims
    )
    after = run_scenario.run(scenario).end
    held = after.claims["c"].allocation
    assert held is not None
    assert sorted(result.device for result in held.devices.results) == ["0", "1"]
    moved = plan.Eviction(
        pod=plan.PodRef("default", "a-0"),
        gang=build_scenario.gang_ref(scenario.jobs[0]),
        rule=plan.Rule.CONSOLIDATED,
        moves_to="n1",
    )
    left = run_scenario.apply_plan(scenario, after, plan.Plan(evictions=(moved,)))
    assert left.claims["c"] == scenario_state.SharedClaimState()


def test_a_pod_that_must_fit_one_zone_waits_where_only_both_together_would_do() -> None:
    zones = [
        {"id": f"z{number}", "allocatable": {"cpu": 4}, "available": {"cpu": 4 - number}}
        for number in range(2)
    ]
    numa = {"policy": "single-numa-node", "scope": "pod", "zones": zones}
    strict = {"qos": "Guaranteed"}
    scenario = build.scenario(
        build.job("large", {**build.waiting(cpu=5), **strict}),
        build.job("loose", build.waiting(cpu=5)),
        build.job(
            "holder", {**build.running(cpu=1), **strict, "numa_placement": {"1": {"cpu": 1}}}
        ),
        build.job("small", {**build.waiting(cpu=4), **strict}),
        build.job("late", {**build.waiting(cpu=4), **strict}),
        nodes=[build.node("n0", numa=numa)],
    )
    bound = placed(scenario)
    assert bound.keys() == {"loose-0", "small-0"} or bound.keys() == {"loose-0", "late-0"}
    elsewhere = build.scenario(
        build.job("large", {**build.waiting(cpu=5), **strict}),
        nodes=[build.node("n0", numa=numa), build.node("n1")],
    )
    assert placed(elsewhere) == {"large-0": "n1"}


def test_queues_say_what_is_unlimited_and_who_is_older() -> None:
    weights = {"gpu": 0.5, "cpu": 1, "memory": 1}
    scenario = build.scenario(
        queues=[
            build.queue(
                "q0", creation_order=1, over_quota_weight=weights, reclaim_min_runtime_s=30
            ),
            build.queue(
                "q1", parent="q0", quota={"gpu": 0.5}, limit={"gpu": 3, "cpu": None, "memory": None}
            ),
        ]
    )
    world = begun(scenario)
    first, second = world.queues["q0"], world.queues["q1"]
    assert first.spec.resources["cpu"].quota == queues.UNLIMITED
    assert (first.spec.resources["gpu"].weight, second.spec.resources["gpu"].weight) == (500, 1000)
    assert (first.spec.reclaim_min_runtime_seconds, first.spec.preempt_min_runtime_seconds) == (
        30,
        None,
    )
    assert (second.spec.parent, str(second.spec.resources["gpu"].quota)) == ("q0", "500m")
    assert second.spec.resources["gpu"].limit is not None
    assert second.spec.resources["cpu"].limit is None
    ages = [item.metadata.creation_timestamp or "" for item in (second, first)]
    assert ages == sorted(ages)


def test_settings_become_the_policy() -> None:
    scenario = build.scenario(
        run={"actions": ["reclaim"]},
        settings={
            "node_strategy": {"gpu": "spread", "cpu": "none"},
            "quota_enforced": False,
            "stale_grace_s": 60,
        },
    )
    result = build_scenario.policy_of(scenario)
    assert result.steps == (policy.Step.RECLAIM,)
    assert not result.batch.enforces_quota
    assert result.batch.stale_grace_seconds == 60
    assert result.weights.tight_fit_per_gpu < 0 == result.weights.cpu_fit_per_128_cores


def test_names_that_are_no_label_values_stay_apart() -> None:
    names = ["a b", "a_b", "x" * 64, "x" * 65, "ä", "sha256-"]
    values = [build_scenario.label_value(name) for name in names]
    assert len(set(values)) == len(names)
    assert all(len(value) <= 63 for value in values)
    assert build_scenario.label_value("pending_job-0") == "pending_job-0"
