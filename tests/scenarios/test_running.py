"""Plans are carried out on paper: who is bound, promised a node or ends, and what the next cycle finds."""

from __future__ import annotations

from dovetail.model import plan
from dovetail.replay.scenarios import run_scenario, scenario_outcome, scenario_state
from dovetail.replay.scenarios.scenario_format import State
from dovetail.replay.scenarios.scenario_state import PodState
from tests.scenarios import build

GANG = plan.GangRef("default", "gang/a")


def pod(name: str) -> plan.PodRef:
    return plan.PodRef("default", name, f"pod/{name}")


def eviction(name: str, *, moves_to: str = "") -> plan.Eviction:
    return plan.Eviction(pod=pod(name), gang=GANG, rule=plan.Rule.RECLAIMED, moves_to=moves_to)


def test_a_plan_binds_promises_ends_and_moves() -> None:
    scenario = build.scenario(
        build.job("a", build.running(gpu=1), build.running(gpu=1)),
        build.job("b", build.waiting(), build.waiting()),
    )
    decided = plan.Plan(
        placements=(plan.Placement(pod=pod("b-0"), node="n0"),),
        evictions=(eviction("a-0"), eviction("a-1", moves_to="n1")),
        nominations=(plan.Nomination(pod=pod("b-1"), node="n0", gang=GANG),),
    )
    after = run_scenario.apply_plan(scenario, scenario_state.begin(scenario), decided)
    assert {name: (one.state, one.node) for name, one in after.pods.items()} == {
        "a-0": (State.TERMINATING, "n0"),
        "a-1": (State.NOMINATED, "n1"),
        "b-0": (State.BOUND, "n0"),
        "b-1": (State.NOMINATED, "n0"),
    }
    assert after.pods["a-0"].held
    assert not after.pods["a-1"].held


def test_between_cycles_what_is_bound_runs_and_what_ended_waits_or_stays() -> None:
    scenario = build.scenario(
        build.job("a", build.running(gpu=1, state="terminating")),
        build.job(
            "b", build.running(gpu=1, state="terminating"), after_eviction="stays_terminating"
        ),
        build.job("c", build.running(state="terminating_stuck")),
        build.job("d", build.waiting(gpu=1)),
        mode="cycles",
        run={"cycles_until": 2, "cycles_stable": 2, "actions": ["allocate"]},
        nodes=[build.node("n0", gpus=3)],
    )
    outcome = run_scenario.run(scenario)
    assert len(outcome.per_cycle) == 4
    assert len(outcome.compared) == 3
    assert [pod.state for pod in outcome.end.pods.values()] == [
        State.RUNNING,
        State.TERMINATING,
        State.STUCK,
        State.RUNNING,
    ]
    assert outcome.is_settled
    assert outcome.per_cycle[0].binds == 1  # d; a waits again only from the second cycle on


def test_oscillation_is_reported() -> None:
    scenario = build.scenario(build.job("a", build.waiting()))
    waits = scenario_state.ScenarioState({"a-0": PodState(State.PENDING)}, {})
    runs = scenario_state.ScenarioState({"a-0": PodState(State.RUNNING, "n0")}, {})
    outcome = run_scenario.Outcome(waits, (), (), (), (runs, waits, runs), ())
    assert scenario_outcome.report(scenario, outcome).oscillates


def test_a_change_compares_the_first_state_with_the_last() -> None:
    runs, waits = PodState(State.RUNNING, "n0"), PodState(State.PENDING)
    assert scenario_outcome.change(waits, PodState(State.BOUND, "n0")) == "starts"
    assert scenario_outcome.change(waits, PodState(State.NOMINATED, "n0")) == "nominated"
    assert scenario_outcome.change(waits, waits) == "waits"
    assert scenario_outcome.change(runs, runs) == "stays"
    assert scenario_outcome.change(runs, PodState(State.RUNNING, "n1")) == "moves"
    assert scenario_outcome.change(runs, PodState(State.NOMINATED, "n0")) == "moves"
    assert scenario_outcome.change(runs, PodState(State.TERMINATING, "n0")) == "evicted"
    assert scenario_outcome.change(runs, waits) == "evicted"
    ending = PodState(State.TERMINATING, "n0")
    assert scenario_outcome.change(ending, ending) == "unchanged"
    assert scenario_outcome.change(ending, waits) == "waits"


def test_an_answer_counts_pods_by_job_and_by_group_where_there_are_several() -> None:
    groups = [{"name": name, "min": 0} for name in ("x", "y")]
    members = [{**build.waiting(gpu=1), "group": name} for name in ("x", "y", "y")]
    scenario = build.scenario(build.job("a", *members, groups=groups, min_groups=0))
    report = scenario_outcome.report(scenario, run_scenario.run(scenario))
    job = report.jobs["a"]
    assert sum(job.states.values()) == 3
    assert job.states.get("bound", 0) == len(job.nodes) == report.per_cycle[0].binds
    assert sum(job.groups["y"].states.values()) == 2


def test_the_same_scenario_gives_the_same_answer() -> None:
    scenario = build.scenario(
        *(build.job(f"j{number}", build.waiting(gpu_fraction=0.5)) for number in range(3))
    )
    first, second = (
        scenario_outcome.report(scenario, run_scenario.run(scenario)) for _ in range(2)
    )
    assert first == second
