"""The result of a scenario for printing: states, changes and nodes by job, counts by cycle.

Given a scenario and its outcome. Never judges whether the outcome is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.replay.scenarios import run_scenario, scenario_format
from dovetail.replay.scenarios.scenario_format import State
from dovetail.replay.scenarios.scenario_state import PodState


class Change(StrEnum):
    """What happened to a pod from the beginning to the end."""

    STARTS = "starts"
    NOMINATED = "nominated"
    EVICTED = "evicted"
    MOVES = "moves"
    STAYS = "stays"
    WAITS = "waits"
    UNCHANGED = "unchanged"  # neither ran nor waited


RUNS: Final = (State.BOUND, State.RUNNING)
_AFTER_RUNNING: Final = {
    State.NOMINATED: Change.MOVES,
    State.TERMINATING: Change.EVICTED,
    State.PENDING: Change.EVICTED,
    State.GATED: Change.EVICTED,
}
_AFTER_WAITING: Final = {
    State.BOUND: Change.STARTS,
    State.RUNNING: Change.STARTS,
    State.NOMINATED: Change.NOMINATED,
    State.PENDING: Change.WAITS,
    State.GATED: Change.WAITS,
}


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one group of a job."""

    states: dict[str, int]
    nodes: tuple[str, ...]


class JobReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pods of a job: counts by state and by change, and the nodes of placed pods."""

    states: dict[str, int]
    changes: dict[str, int]
    nodes: tuple[str, ...]
    groups: dict[str, GroupReport] = {}  # only if several groups have pods


class CycleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one cycle did."""

    binds: int
    evictions: int
    nominations: int


class ScenarioReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of output."""

    id: str
    jobs: dict[str, JobReport]
    per_cycle: tuple[CycleReport, ...]
    oscillates: bool = False  # something changed in the cycles that must change nothing


def report(scenario: scenario_format.Scenario, outcome: run_scenario.Outcome) -> ScenarioReport:
    """The output for one scenario, at its end."""
    return ScenarioReport(
        id=scenario.id,
        jobs={job.name: _job(job, outcome) for job in scenario.jobs},
        per_cycle=tuple(CycleReport(**counts._asdict()) for counts in outcome.per_cycle),
        oscillates=not outcome.is_settled,
    )


def change(start: PodState, end: PodState) -> Change:
    """What happened to a pod between start and end."""
    if start.state not in RUNS:
        return _AFTER_WAITING.get(end.state, Change.UNCHANGED)
    if end.state in RUNS:
        return Change.STAYS if start.node == end.node else Change.MOVES
    return _AFTER_RUNNING.get(end.state, Change.UNCHANGED)


def _job(job: scenario_format.Job, outcome: run_scenario.Outcome) -> JobReport:
    start = [outcome.start.pods[pod.name] for pod in job.pods]
    end = [outcome.end.pods[pod.name] for pod in job.pods]

    pods_by_group: dict[str, list[PodState]] = {group.name: [] for group in job.groups}
    for pod, standing in zip(job.pods, end, strict=True):
        pods_by_group[pod.group].append(standing)
    groups = {
        name: GroupReport(states=_states(members), nodes=_nodes(members))
        for name, members in pods_by_group.items()
        if members
    }

    return JobReport(
        states=_states(end),
        changes=_counted(map(change, start, end)),
        nodes=_nodes(end),
        groups=groups if len(groups) > 1 else {},
    )


def _states(pods: Iterable[PodState]) -> dict[str, int]:
    return _counted(pod.state for pod in pods)


def _nodes(pods: Iterable[PodState]) -> tuple[str, ...]:
    """The node of every placed pod, so a node appears once per pod."""
    return tuple(sorted(pod.node for pod in pods if pod.state in scenario_format.PLACED))


def _counted(words: Iterable[StrEnum]) -> dict[str, int]:
    return dict(sorted(Counter(str(word) for word in words).items()))
