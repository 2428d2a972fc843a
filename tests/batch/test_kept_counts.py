"""Incremental counts equal those counted from scratch, whatever changed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import hypothesis
from hypothesis import strategies as st

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.schedule.gang.jobs import THERE, Job, State, Team

STATES = tuple(State)


class Counted:
    """The same questions, answered by passing over all members each time."""

    def __init__(self, job: Job, startable: State) -> None:
        self._job = job
        self._startable = startable

    def count(self, team: Team) -> int:
        if team.holds_groups:
            return sum(self.count(child) >= child.min for child in team.teams)
        return sum(self._job.state[id_] in THERE for id_ in team.pods)

    def reaches(self, team: Team) -> bool:
        if team.holds_groups:
            return sum(self.reaches(child) for child in team.teams) >= team.min
        able = THERE | {self._startable}
        return sum(self._job.state[id_] in able for id_ in team.pods) >= team.min

    def is_above(self, team: Team) -> bool:
        return self.count(team) > team.min or any(self.is_above(child) for child in team.teams)

    def fullness(self) -> int:
        root = self._job.root
        if self.count(root) < root.min:
            return 0
        return 2 if self.is_above(root) else 1

    def next_pods(self, team: Team) -> list[str]:
        lacking = team.min - self.count(team)
        if not team.holds_groups:
            waiting = [id_ for id_ in team.pods if self._job.state[id_] is self._startable]
            return waiting[: max(lacking, 1)] if lacking <= len(waiting) else []
        ranked = sorted(team.teams, key=self.rank)
        if lacking <= 0:
            return next((ids for child in ranked if (ids := self.next_pods(child))), [])
        lists = [self.next_pods(child) for child in ranked if self.count(child) < child.min]
        able = [ids for ids in lists if ids]
        return [id_ for ids in able[:lacking] for id_ in ids] if len(able) >= lacking else []

    def rank(self, team: Team) -> tuple[bool, bool, float, str]:
        count = self.count(team)
        return (
            count >= team.min,
            team.min <= 0,
            count / team.min if team.min > 0 else 0.0,
            team.name,
        )


def drawn(rng: random.Random) -> Job:
    """A gang of groups, some of them in a group of their own."""
    groups = []
    if rng.random() < 0.5:
        groups.append(gangs.Group(name="inner", min=rng.randint(0, 3), holds_groups=True))
    for index in range(rng.randint(1, 5)):
        parent = "inner" if groups and groups[0].holds_groups and rng.random() < 0.6 else None
        groups.append(gangs.Group(name=f"g{index}", min=rng.randint(0, 4), parent=parent))
    leaves = [group.name for group in groups if not group.holds_groups]
    gang = gangs.Gang(
        metadata=meta.ObjectMeta(namespace="default", name="gang"),
        groups=tuple(groups),
        min_groups=rng.randint(0, 4),
    )
    members = {}
    for index in range(rng.randint(1, 14)):
        pod = pods.Pod(
            metadata=meta.ObjectMeta(name=f"p{index:02d}", namespace="default", uid=f"p{index:02d}")
        )
        members[f"p{index:02d}"] = (pod, rng.choice(leaves))
    return Job(gang, members, queue="", is_preemptible=True)


def every_team(team: Team) -> Iterator[Team]:
    yield team
    for child in team.teams:
        yield from every_team(child)


@hypothesis.given(st.randoms(use_true_random=False))
@hypothesis.settings(max_examples=150)
def test_what_is_kept_is_what_is_counted(rng: random.Random) -> None:
    job = drawn(rng)
    startable = State.WAITING
    for _ in range(25):
        counted = Counted(job, startable)
        assert job.next_pods() == tuple(counted.next_pods(job.root))
        assert job.can_reach_minimum() == counted.reaches(job.root)
        assert job.fullness == counted.fullness()
        for team in every_team(job.root):
            assert job.is_satisfied(team) == (counted.count(team) >= team.min)
        assert job.has_active == (State.ACTIVE in job.state.values())
        assert job.has_waiting == (not {State.WAITING, State.GATED}.isdisjoint(job.state.values()))
        if rng.random() < 0.1:
            startable = rng.choice((State.WAITING, State.EVICTED))
            job.refill(is_on=startable is State.EVICTED)
        elif rng.random() < 0.05:
            job.reset()
            startable = State.WAITING
        for _ in range(rng.randint(1, 4)):
            job.mark(rng.choice([*job.pods]), rng.choice(STATES))
