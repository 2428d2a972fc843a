"""Plans are carried out on paper: who is bound, promised a node or ends, and what the next cycle finds."""

from __future__ import annotations

from dovetail.model import plan
from dovetail.sim.scenarios import running, standing, telling
from dovetail.sim.scenarios.reading import State
from dovetail.sim.scenarios.standing import Standing
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
    after = running.carried_out(scenario, standing.begin(scenario), decided)
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
        build.job("b", build.running(gpu=1, state="terminating"), after_eviction="stays_terminating"),
        build.job("c", build.running(state="terminating_stuck")),
        build.job("d", build.waiting(gpu=1)),
        mode="cycles",
        run={"cycles_until": 2, "cycles_stable": 2, "actions": ["allocate"]},
        nodes=[build.node("n0", gpus=3)],
    )
    outcome = running.run(scenario)
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


def test_what_goes_back_and_forth_is_told() -> None:
    scenario = build.scenario(build.job("a", build.waiting()))
    waits = standing.Situation({"a-0": Standing(State.PENDING)}, {})
    runs = standing.Situation({"a-0": Standing(State.RUNNING, "n0")}, {})
    outcome = running.Outcome(waits, (), (), (), (runs, waits, runs), ())
    assert telling.told(scenario, outcome).oscillates


def test_changes_are_told_from_the_beginning_to_the_end() -> None:
    runs, waits = Standing(State.RUNNING, "n0"), Standing(State.PENDING)
    assert telling.change(waits, Standing(State.BOUND, "n0")) == "starts"
    assert telling.change(waits, Standing(State.NOMINATED, "n0")) == "nominated"
    assert telling.change(waits, waits) == "waits"
    assert telling.change(runs, runs) == "stays"
    assert telling.change(runs, Standing(State.RUNNING, "n1")) == "moves"
    assert telling.change(runs, Standing(State.NOMINATED, "n0")) == "moves"
    assert telling.change(runs, Standing(State.TERMINATING, "n0")) == "evicted"
    assert telling.change(runs, waits) == "evicted"
    ending = Standing(State.TERMINATING, "n0")
    assert telling.change(ending, ending) == "unchanged"
    assert telling.change(ending, waits) == "waits"


def test_an_answer_counts_pods_by_job_and_by_group_where_there_are_several() -> None:
    groups = [{"name": name, "min": 0} for name in ("x", "y")]
    members = [{**build.waiting(gpu=1), "group": name} for name in ("x", "y", "y")]
    scenario = build.scenario(build.job("a", *members, groups=groups, min_groups=0))
    told = telling.told(scenario, running.run(scenario))
    job = told.jobs["a"]
    assert sum(job.states.values()) == 3
    assert job.states.get("bound", 0) == len(job.nodes) == told.per_cycle[0].binds
    assert sum(job.groups["y"].states.values()) == 2


def test_the_same_scenario_gives_the_same_answer() -> None:
    scenario = build.scenario(*(build.job(f"j{number}", build.waiting(gpu_fraction=0.5)) for number in range(3)))
    first, second = (telling.told(scenario, running.run(scenario)) for _ in range(2))
    assert first == second
