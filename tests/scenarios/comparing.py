"""What differs between what a scenario expects and what became of it, and whether rules that always hold were broken.

Given the scenario's document, its struct and its outcome; answers with lists of deviations. Never runs anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from dovetail.model import plan
from dovetail.replay.scenarios import build_scenario, run_scenario, scenario_format, scenario_state
from dovetail.replay.scenarios.scenario_format import State
from dovetail.world import recheck

POLICY = "policy"
PLACEMENT = "placement"
CEILING = "ceiling"
Document = dict[str, Any]
ACTIVE = frozenset({State.BOUND, State.RUNNING, State.NOMINATED})
WITHOUT_BENEFICIARY = frozenset({plan.Rule.STALE, plan.Rule.OVERTIME})


class Deviation(NamedTuple):
    """Something that is not as expected."""

    kind: str
    subject: str
    expected: object
    found: object
    cycle: int = 0  # of those that are compared

    def __str__(self) -> str:
        after = f" (stable cycle {self.cycle})" if self.cycle else ""
        return f"{self.kind} {self.subject}: expected {self.expected}, found {self.found}{after}"


def compare(
    document: Document, scenario: scenario_format.Scenario, outcome: run_scenario.Outcome
) -> list[Deviation]:
    """Everything that is not as expected: states of jobs, forced nodes, and more done in a cycle than is right."""
    deviations: list[Deviation] = []
    for cycle, situation in enumerate(outcome.compared):
        if POLICY in document["compare"]:
            deviations += (
                deviation._replace(cycle=cycle)
                for deviation in _states(document["expect"], scenario, situation)
            )
        if PLACEMENT in document["compare"]:
            deviations += (
                deviation._replace(cycle=cycle)
                for deviation in _nodes(document["expect"], scenario, situation)
            )
    return deviations + list(_ceilings(document["expect"], outcome))


def is_match(deviations: list[Deviation], kind: str = POLICY) -> bool:
    """Whether nothing of a kind deviates."""
    return not any(deviation.kind == kind for deviation in deviations)


def broken(scenario: scenario_format.Scenario, outcome: run_scenario.Outcome) -> list[str]:
    """Rules that hold whatever a scenario expects, and were broken."""
    names: list[str] = []
    for before, decided, after in zip(outcome.before, outcome.plans, outcome.after, strict=True):
        names += _overcommitted(scenario, after)
        names += _below_minimum(scenario, before, after)
        names += _wrongly_evicted(scenario, decided)
    return names


def _states(
    expect: Document, scenario: scenario_format.Scenario, situation: scenario_state.ScenarioState
) -> Iterator[Deviation]:
    for job in _compared(expect, scenario):
        expected = expect["jobs"][job.name]
        counts = Counter(str(situation.pods[pod.name].state) for pod in job.pods)
        if not _agrees(expected["states"], counts, is_complete=expected.get("complete", True)):
            yield Deviation(POLICY, job.name, expected["states"], dict(counts))
            continue
        for group, states in expected.get("groups", {}).items():
            members = Counter(
                str(situation.pods[pod.name].state) for pod in job.pods if pod.group == group
            )
            if not _agrees(states, members, is_complete=expected.get("complete", True)):
                yield Deviation(POLICY, f"{job.name}/{group}", states, dict(members))


def _agrees(wanted: dict[str, int], result: Counter[str], *, is_complete: bool) -> bool:
    return wanted == dict(result) if is_complete else Counter(wanted) <= result


def _nodes(
    expect: Document, scenario: scenario_format.Scenario, situation: scenario_state.ScenarioState
) -> Iterator[Deviation]:
    forced = {name: one["node"] for name, one in expect["pods"].items() if one.get("node_forced")}
    for job in _compared(expect, scenario):
        for group in dict.fromkeys(pod.group for pod in job.pods):
            members = [pod.name for pod in job.pods if pod.group == group]
            counts = Counter(forced[name] for name in members if name in forced)
            placed = [situation.pods[name] for name in members]
            result = Counter(item.node for item in placed if item.state in scenario_format.PLACED)
            if not counts <= result:
                yield Deviation(PLACEMENT, f"{job.name}/{group}", dict(counts), dict(result))


def _compared(
    expect: Document, scenario: scenario_format.Scenario
) -> Iterator[scenario_format.Job]:
    unchecked = expect.get("unchecked_jobs", ())
    return (
        job for job in scenario.jobs if job.name in expect["jobs"] and job.name not in unchecked
    )


def _ceilings(expect: Document, outcome: run_scenario.Outcome) -> Iterator[Deviation]:
    for number, done in enumerate(outcome.per_cycle):
        for name, most in expect.get("per_cycle_at_most", {}).items():
            if (result := getattr(done, name)) > most:
                yield Deviation(CEILING, f"{name} of cycle {number}", f"at most {most}", result)


def _overcommitted(
    scenario: scenario_format.Scenario, after: scenario_state.ScenarioState
) -> Iterator[str]:
    """Nodes that hold too much now, or would once those that end are gone and those that are promised a node came."""
    world = build_scenario.world(scenario, after)
    for node in scenario.nodes:
        if problem := recheck.room_problem(
            node.name, world.free(node.name), world.offered(node.name)
        ):
            yield problem
    yield from map(str, world.overlaps())
    for node in scenario.nodes:
        there = [
            pod
            for job in scenario.jobs
            for pod in job.pods
            if after.pods[pod.name].node == node.name
            and after.pods[pod.name].state in {*ACTIVE, State.STUCK}
        ]
        gpus = sum(_gpus(pod, node) for pod in there)
        if gpus > node.gpu.count + 1e-9:
            yield f"node {node.name} has {node.gpu.count} GPUs and promises {gpus}"
        for name, have in (
            ("cpu", node.allocatable.get("cpu", 0)),
            ("memory", node.allocatable.get("memory", 0)),
        ):
            count = sum(getattr(pod.request, name) for pod in there)
            if count > have:
                yield f"node {node.name} has {have} {name} and promises {count}"


def _gpus(pod: scenario_format.Pod, node: scenario_format.Node) -> float:
    request = pod.request
    if request.gpu_fraction is not None:
        return (
            int(request.gpu_fraction * node.gpu.memory_mib + 1e-9)
            / node.gpu.memory_mib
            * request.gpu_devices
        )
    if request.gpu_memory_mib is not None:
        return request.gpu_memory_mib / node.gpu.memory_mib * request.gpu_devices
    return request.gpu


def _below_minimum(
    scenario: scenario_format.Scenario,
    before: scenario_state.ScenarioState,
    after: scenario_state.ScenarioState,
) -> Iterator[str]:
    for job in scenario.jobs:
        fresh = [
            pod.name
            for pod in job.pods
            if before.pods[pod.name].state not in ACTIVE and after.pods[pod.name].state in ACTIVE
        ]
        if fresh and not _is_whole(job, after):
            yield f"job {job.name} is below its minimum and {fresh[0]} was placed"


def _is_whole(job: scenario_format.Job, situation: scenario_state.ScenarioState) -> bool:
    """Whether as many of the job's groups have what they need as the job needs."""
    active = Counter(pod.group for pod in job.pods if situation.pods[pod.name].state in ACTIVE)

    def is_met(group: scenario_format.Group) -> bool:
        if group.kind == "pods":
            return active[group.name] >= group.min
        return sum(is_met(item) for item in job.groups if item.parent == group.name) >= group.min

    return sum(is_met(item) for item in job.groups if item.parent is None) >= job.min_groups


def _wrongly_evicted(scenario: scenario_format.Scenario, decided: plan.Plan) -> Iterator[str]:
    jobs = {build_scenario.gang_ref(job): job for job in scenario.jobs}
    started = {placement.gang for placement in decided.placements} | {
        nomination.gang for nomination in decided.nominations
    }
    for eviction in decided.evictions:
        if eviction.rule in WITHOUT_BENEFICIARY:
            continue
        if not jobs[eviction.gang].preemptible:
            yield f"{eviction.pod} of a job that cannot be made to yield was evicted: {eviction.rule}"
        if eviction.beneficiary is None or eviction.beneficiary not in started:
            yield f"{eviction.pod} was evicted for {eviction.beneficiary}, which was not placed"
