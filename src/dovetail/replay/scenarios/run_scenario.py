"""Runs a scenario through the engine for one or more cycles, and applies each plan to the scenario's state.

After a plan, pods are bound, nominated or terminating. Between cycles bound pods start, nominated pods become pending,
and terminating pods become pending or stay, as their job says. Never decides, never corrects a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dovetail.kubetypes.resource import claims
from dovetail.model import plan
from dovetail.replay.scenarios import (
    build_scenario,
    scenario_claims,
    scenario_format,
    scenario_state,
)
from dovetail.replay.scenarios.scenario_format import State
from dovetail.replay.scenarios.scenario_state import PodState, ScenarioState, SharedClaimState
from dovetail.schedule import decide


class Counts(NamedTuple):
    """What one cycle did."""

    binds: int
    evictions: int
    nominations: int


class Outcome(NamedTuple):
    """The plans of a run, and the state around each."""

    start: ScenarioState
    plans: tuple[plan.Plan, ...]
    before: tuple[ScenarioState, ...]  # the input of each plan
    after: tuple[ScenarioState, ...]  # right after each plan
    compared: tuple[ScenarioState, ...]  # after `cycles_until`, and after each stable cycle
    per_cycle: tuple[Counts, ...]

    @property
    def end(self) -> ScenarioState:
        """The state at the end."""
        return self.compared[-1]

    @property
    def is_settled(self) -> bool:
        """Whether the stable cycles changed nothing."""
        first = _placements(self.compared[0])
        return all(_placements(situation) == first for situation in self.compared)


def run(scenario: scenario_format.Scenario) -> Outcome:
    """Runs all cycles of the scenario."""
    start = scenario_state.begin(scenario)
    steps = tuple(_cycles(scenario, start))
    is_single = scenario.run.mode == "single"
    ends = [step.after if is_single else step.rested for step in steps]
    return Outcome(
        start=start,
        plans=tuple(step.plan for step in steps),
        before=tuple(step.before for step in steps),
        after=tuple(step.after for step in steps),
        compared=tuple(ends if is_single else ends[scenario.run.cycles_until - 1 :]),
        per_cycle=tuple(_counts(step.plan) for step in steps),
    )


class _Cycle(NamedTuple):
    before: ScenarioState
    plan: plan.Plan
    after: ScenarioState
    rested: ScenarioState  # the input of the next cycle


def _cycles(scenario: scenario_format.Scenario, start: ScenarioState) -> Iterator[_Cycle]:
    policy = build_scenario.policy_of(scenario)
    situation = start
    is_single = scenario.run.mode == "single"
    for _ in range(1 if is_single else scenario.run.cycles_until + scenario.run.cycles_stable):
        decided = decide.decide(
            build_scenario.world(scenario, situation), policy, build_scenario.NOW
        )
        after = apply_plan(scenario, situation, decided)
        rested = _rested(scenario, after)
        yield _Cycle(situation, decided, after, rested)
        situation = rested


def apply_plan(
    scenario: scenario_format.Scenario, before: ScenarioState, decided: plan.Plan
) -> ScenarioState:
    """The state once a plan is applied, before any pod has started or ended."""
    pods = dict(before.pods)
    holdings = dict(before.claims)
    for eviction in decided.evictions:
        name = eviction.pod.name
        if eviction.moves_to:
            pods[name] = PodState(State.NOMINATED, eviction.moves_to)
        else:
            pods[name] = pods[name]._replace(state=State.TERMINATING)

    for nomination in decided.nominations:
        pods[nomination.pod.name] = PodState(State.NOMINATED, nomination.node)

    for placement in decided.placements:
        pods[placement.pod.name] = PodState(State.BOUND, placement.node, _own(placement), 0)
        _hold_shared_claims(placement, holdings)

    return ScenarioState(pods, _released(scenario, holdings, pods))


def _hold_shared_claims(placement: plan.Placement, holdings: dict[str, SharedClaimState]) -> None:
    """Records the allocations and reservations of a placement in the claims that pods share."""
    names = {scenario_claims.shared_name(name): name for name in holdings}
    for allocated in placement.allocations:
        name = names.get(allocated.claim.name)
        if name is not None:
            holdings[name] = holdings[name]._replace(allocation=allocated.result)
    for reserved in placement.reservations:
        name = names.get(reserved.name)
        if name is not None:
            users = (*holdings[name].users, placement.pod.name)
            holdings[name] = holdings[name]._replace(users=tuple(dict.fromkeys(users)))


def _own(placement: plan.Placement) -> dict[str, claims.AllocationResult]:
    """The allocations of the pod's own claims, by role."""
    results = {allocation.claim.name: allocation.result for allocation in placement.allocations}
    results_by_role = {}
    for role in (scenario_claims.GPU, scenario_claims.NUMA):
        name = scenario_claims.own_name(placement.pod.name, role)
        if name in results:
            results_by_role[role] = results[name]
    return results_by_role


def _rested(scenario: scenario_format.Scenario, after: ScenarioState) -> ScenarioState:
    """The state that the next cycle starts from."""
    pods = {
        pod.name: _next(after.pods[pod.name], stays=job.after_eviction == "stays_terminating")
        for job in scenario.jobs
        for pod in job.pods
    }
    return ScenarioState(pods, _released(scenario, after.claims, pods))


def _next(standing: PodState, *, stays: bool) -> PodState:
    match standing.state:
        case State.BOUND:
            return standing._replace(state=State.RUNNING)
        case State.NOMINATED:
            return PodState(State.PENDING)
        case State.TERMINATING if not stays:
            return PodState(State.PENDING)
        case _:
            return standing


def _released(
    scenario: scenario_format.Scenario,
    holdings: Mapping[str, SharedClaimState],
    pods: Mapping[str, PodState],
) -> dict[str, SharedClaimState]:
    """The claims without users that hold no devices any more. A claim without users is deallocated."""
    has_other_users = {claim.name for claim in scenario.claims if claim.other_consumers}
    ended = {
        name for name, standing in pods.items() if standing.state not in scenario_format.HOLDING
    }
    return {
        name: _without_users(holding, ended, is_kept=name in has_other_users)
        for name, holding in holdings.items()
    }


def _without_users(
    holding: SharedClaimState, ended: set[str], *, is_kept: bool
) -> SharedClaimState:
    users = tuple(user for user in holding.users if user not in ended)
    lost_last_user = bool(holding.users) and not users
    if lost_last_user and not is_kept:
        return SharedClaimState(None, users)
    return holding._replace(users=users)


def _counts(decided: plan.Plan) -> Counts:
    nominated = {nomination.pod for nomination in decided.nominations}
    nominated |= {eviction.pod for eviction in decided.evictions if eviction.moves_to}
    return Counts(len(decided.placements), len(decided.evictions), len(nominated))


def _placements(situation: ScenarioState) -> dict[str, tuple[State, str]]:
    return {name: (standing.state, standing.node) for name, standing in situation.pods.items()}
