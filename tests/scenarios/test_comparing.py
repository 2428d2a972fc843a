"""The comparison finds what differs, and the rules that always hold are really watched."""

from __future__ import annotations

from typing import Any

from dovetail.model import plan
from dovetail.replay.scenarios import run_scenario, scenario_format, scenario_state
from tests.scenarios import build, comparing

ENDED = {
    "jobs": {"a": {"states": {"terminating": 1}}},
    "pods": {},
    "per_cycle_at_most": {"evictions": 1},
}


def pod(name: str) -> plan.PodRef:
    return plan.PodRef("default", name, f"pod/{name}")


def gang(name: str) -> plan.GangRef:
    return plan.GangRef("default", f"gang/{name}")


def eviction(name: str, rule: plan.Rule, **more: Any) -> plan.Eviction:
    return plan.Eviction(pod=pod(f"{name}-0"), gang=gang(name), rule=rule, **more)


def outcome_of(scenario: scenario_format.Scenario, **parts: Any) -> run_scenario.Outcome:
    """What a made-up plan leads to."""
    start = scenario_state.begin(scenario)
    decided = plan.Plan(**parts)
    after = run_scenario.apply_plan(scenario, start, decided)
    counts = run_scenario.Counts(
        len(decided.placements), len(decided.evictions), len(decided.nominations)
    )
    return run_scenario.Outcome(start, (decided,), (start,), (after,), (after,), (counts,))


def test_states_that_differ_are_found_and_unchecked_jobs_left_out() -> None:
    tree = build.document(build.job("a", build.running(gpu=1)), expect=ENDED, compare=["policy"])
    scenario = build.read(tree)
    nothing = comparing.compare(tree, scenario, outcome_of(scenario))
    assert [str(deviation) for deviation in nothing] == [
        "policy a: expected {'terminating': 1}, found {'running': 1}"
    ]
    ended = outcome_of(scenario, evictions=(eviction("a", plan.Rule.STALE),))
    assert not comparing.compare(tree, scenario, ended)
    tree["expect"] = ENDED | {"unchecked_jobs": ["a"]}
    assert not comparing.compare(tree, scenario, outcome_of(scenario))


def test_pods_that_are_not_all_compared_may_stand_elsewhere() -> None:
    tree = build.document(build.job("a", build.running(), build.waiting()), compare=["policy"])
    tree["expect"] = {"jobs": {"a": {"states": {"running": 1}, "complete": False}}, "pods": {}}
    scenario = build.read(tree)
    assert not comparing.compare(tree, scenario, outcome_of(scenario))
    tree["expect"]["jobs"]["a"]["complete"] = True
    assert comparing.compare(tree, scenario, outcome_of(scenario))


def test_forced_nodes_are_compared_as_a_multiset_and_others_are_not() -> None:
    nodes = [build.node("n0"), build.node("n1")]
    tree = build.document(
        build.job("a", build.waiting(), build.waiting()), nodes=nodes, compare=["placement"]
    )
    forced = {"state": "bound", "node": "n1", "node_forced": True}
    tree["expect"] = {"jobs": {"a": {"states": {"bound": 2}}}, "pods": {"a-0": forced}}
    scenario = build.read(tree)

    def deviations(*places: str) -> list[comparing.Deviation]:
        given = tuple(
            plan.Placement(pod=pod(f"a-{at}"), node=node) for at, node in enumerate(places)
        )
        return comparing.compare(tree, scenario, outcome_of(scenario, placements=given))

    assert not deviations("n0", "n1")  # which of them is on n1 does not matter
    assert [deviation.kind for deviation in deviations("n0", "n0")] == ["placement"]


def test_more_placements_than_expected_in_a_cycle_are_reported() -> None:
    tree = build.document(
        build.job("a", build.running()), expect=ENDED | {"per_cycle_at_most": {"evictions": 0}}
    )
    tree["compare"] = []
    scenario = build.read(tree)
    ended = outcome_of(scenario, evictions=(eviction("a", plan.Rule.STALE),))
    assert [deviation.kind for deviation in comparing.compare(tree, scenario, ended)] == ["ceiling"]


def test_a_gang_below_its_minimum_must_not_start() -> None:
    groups = [{"name": "default", "min": 2}]
    scenario = build.scenario(build.job("a", build.waiting(), build.waiting(), groups=groups))
    outcome = outcome_of(scenario, placements=(plan.Placement(pod=pod("a-0"), node="n0"),))
    assert "below its minimum" in comparing.broken(scenario, outcome)[0]
    both = tuple(plan.Placement(pod=pod(f"a-{at}"), node="n0") for at in range(2))
    assert not comparing.broken(scenario, outcome_of(scenario, placements=both))


def test_needless_evictions_and_those_without_a_beneficiary_are_reported() -> None:
    scenario = build.scenario(
        build.job("a", build.running(gpu=1), preemptible=False),
        build.job("b", build.waiting(gpu=1)),
    )
    reclaimed = eviction("a", plan.Rule.RECLAIMED, beneficiary=gang("b"))
    names = comparing.broken(scenario, outcome_of(scenario, evictions=(reclaimed,)))
    assert len(names) == 2
    assert "cannot be made to yield" in names[0]
    assert "not placed" in names[1]
    promised = plan.Nomination(pod=pod("b-0"), node="n0", gang=gang("b"))
    names = comparing.broken(
        scenario, outcome_of(scenario, evictions=(reclaimed,), nominations=(promised,))
    )
    assert len(names) == 1
    stale = eviction("a", plan.Rule.STALE)
    assert not comparing.broken(scenario, outcome_of(scenario, evictions=(stale,)))


def test_nodes_must_not_hold_or_promise_more_than_they_have() -> None:
    scenario = build.scenario(
        build.job("a", build.running(gpu=2)), build.job("b", build.waiting(gpu=1, cpu=100))
    )
    promised = plan.Nomination(pod=pod("b-0"), node="n0", gang=gang("b"))
    names = comparing.broken(scenario, outcome_of(scenario, nominations=(promised,)))
    assert names == [
        "node n0 has 2 GPUs and promises 3",
        "node n0 has 100.0 cpu and promises 101.0",
    ]
    bound = plan.Placement(pod=pod("b-0"), node="n0")
    assert any(
        "overcommitted" in text
        for text in comparing.broken(scenario, outcome_of(scenario, placements=(bound,)))
    )
