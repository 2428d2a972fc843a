"""Puts a scenario to the engine, once or cycle after cycle, and carries each plan out on paper.

After a plan pods are bound, nominated or terminating. Between cycles what is bound runs, what was nominated waits
again, and what terminated waits again or stays, as its job says. Never decides, never corrects a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dovetail.model import claims, plan
from dovetail.schedule import cycle
from dovetail.sim.scenarios import building, claiming, reading, standing
from dovetail.sim.scenarios.reading import State
from dovetail.sim.scenarios.standing import Holding, Situation, Standing


class Counts(NamedTuple):
    """What one cycle did."""

    binds: int
    evictions: int
    nominations: int


class Outcome(NamedTuple):
    """What became of a scenario."""

    start: Situation
    plans: tuple[plan.Plan, ...]
    before: tuple[Situation, ...]  # what each plan was made for
    after: tuple[Situation, ...]  # right after each plan
    compared: tuple[Situation, ...]  # after the cycles it may take, and after each that must change nothing
    per_cycle: tuple[Counts, ...]

    @property
    def end(self) -> Situation:
        """How it ended."""
        return self.compared[-1]

    @property
    def is_settled(self) -> bool:
        """Whether nothing went back and forth in the cycles that must change nothing."""
        return all(_told(one) == _told(self.compared[0]) for one in self.compared)


def run(scenario: reading.Scenario) -> Outcome:
    """What the engine makes of the scenario."""
    start = standing.begin(scenario)
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
    before: Situation
    plan: plan.Plan
    after: Situation
    rested: Situation  # what the next cycle finds


def _cycles(scenario: reading.Scenario, start: Situation) -> Iterator[_Cycle]:
    policy = building.policy_of(scenario)
    situation = start
    is_single = scenario.run.mode == "single"
    for _ in range(1 if is_single else scenario.run.cycles_until + scenario.run.cycles_stable):
        decided = cycle.decide(building.world(scenario, situation), policy, building.NOW)
        after = carried_out(scenario, situation, decided)
        rested = _rested(scenario, after)
        yield _Cycle(situation, decided, after, rested)
        situation = rested


def carried_out(scenario: reading.Scenario, before: Situation, decided: plan.Plan) -> Situation:
    """The situation once a plan is carried out: nobody has started or ended yet."""
    pods = dict(before.pods)
    holdings = dict(before.claims)
    for eviction in decided.evictions:
        name = eviction.pod.name
        if eviction.moves_to:
            pods[name] = Standing(State.NOMINATED, eviction.moves_to)
        else:
            pods[name] = pods[name]._replace(state=State.TERMINATING)
    for nomination in decided.nominations:
        pods[nomination.pod.name] = Standing(State.NOMINATED, nomination.node)
    for placement in decided.placements:
        pods[placement.pod.name] = Standing(State.BOUND, placement.node, _own(placement), 0)
        for allocated in placement.allocations:
            if (shared := _shared_name(allocated.claim, holdings)) is not None:
                holdings[shared] = holdings[shared]._replace(allocation=allocated.result)
        for reserved in placement.reservations:
            if (shared := _shared_name(reserved, holdings)) is not None:
                users = (*holdings[shared].users, placement.pod.name)
                holdings[shared] = holdings[shared]._replace(users=tuple(dict.fromkeys(users)))
    return Situation(pods, _released(scenario, holdings, pods))


def _own(placement: plan.Placement) -> dict[str, claims.AllocationResult]:
    """What a placement gives the claims the pod brought along, by role."""
    names = {claiming.own_name(placement.pod.name, role): role for role in (claiming.GPU, claiming.NUMA)}
    return {names[one.claim.name]: one.result for one in placement.allocations if one.claim.name in names}


def _shared_name(claim: plan.ClaimRef, holdings: Mapping[str, Holding]) -> str | None:
    return next((name for name in holdings if claiming.shared_name(name) == claim.name), None)


def _rested(scenario: reading.Scenario, after: Situation) -> Situation:
    """What the next cycle finds."""
    pods = {
        pod.name: _next(after.pods[pod.name], stays=job.after_eviction == "stays_terminating")
        for job in scenario.jobs
        for pod in job.pods
    }
    return Situation(pods, _released(scenario, after.claims, pods))


def _next(one: Standing, *, stays: bool) -> Standing:
    match one.state:
        case State.BOUND:
            return one._replace(state=State.RUNNING)
        case State.NOMINATED:
            return Standing(State.PENDING)
        case State.TERMINATING if not stays:
            return Standing(State.PENDING)
        case _:
            return one


def _released(
    scenario: reading.Scenario, holdings: Mapping[str, Holding], pods: Mapping[str, Standing]
) -> dict[str, Holding]:
    """Claims without those users that hold nothing any more; without any user a claim holds nothing either."""
    others = {claim.name for claim in scenario.claims if claim.other_consumers}
    found: dict[str, Holding] = {}
    for name, holding in holdings.items():
        users = tuple(user for user in holding.users if user not in pods or pods[user].state in reading.HOLDING)
        lost_all = holding.users and not users and name not in others
        found[name] = Holding(None if lost_all else holding.allocation, users)
    return found


def _counts(decided: plan.Plan) -> Counts:
    nominated = {one.pod for one in decided.nominations} | {one.pod for one in decided.evictions if one.moves_to}
    return Counts(len(decided.placements), len(decided.evictions), len(nominated))


def _told(situation: Situation) -> dict[str, tuple[State, str]]:
    return {name: (one.state, one.node) for name, one in situation.pods.items()}
