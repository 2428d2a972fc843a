"""What became of a scenario, in its own words: states, changes and nodes by job, counts by cycle. Data to be printed.

Given a scenario and its outcome. Never judges it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from dovetail.sim.scenarios import reading, running
from dovetail.sim.scenarios.reading import State
from dovetail.sim.scenarios.standing import Standing


class Change(StrEnum):
    """What happened to a pod from the beginning to the end."""

    STARTS = "starts"
    NOMINATED = "nominated"
    EVICTED = "evicted"
    MOVES = "moves"
    STAYS = "stays"
    WAITS = "waits"
    UNCHANGED = "unchanged"  # what neither ran nor waited


class GroupTold(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one group of a job."""

    states: dict[str, int]
    nodes: tuple[str, ...]


class JobTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pods of a job: how many in which state, what happened to them, and where those are that have a node."""

    states: dict[str, int]
    changes: dict[str, int]
    nodes: tuple[str, ...]
    groups: dict[str, GroupTold] = {}  # where a job has several that hold pods


class CycleTold(msgspec.Struct, frozen=True, kw_only=True):
    """What one cycle did."""

    binds: int
    evictions: int
    nominations: int


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of answer."""

    id: str
    jobs: dict[str, JobTold]
    per_cycle: tuple[CycleTold, ...]
    oscillates: bool = False  # something changed in the cycles that must change nothing


def told(scenario: reading.Scenario, outcome: running.Outcome) -> Told:
    """The answer for one scenario, as it stands at the end."""
    return Told(
        id=scenario.id,
        jobs={job.name: _job(job, outcome) for job in scenario.jobs},
        per_cycle=tuple(CycleTold(**one._asdict()) for one in outcome.per_cycle),
        oscillates=not outcome.is_settled,
    )


def change(start: Standing, end: Standing) -> Change:
    """What happened to a pod that stood there and stands here now."""
    ran = start.state in (State.BOUND, State.RUNNING)
    match end.state:
        case State.BOUND | State.RUNNING:
            return Change.STARTS if not ran else Change.STAYS if start.node == end.node else Change.MOVES
        case State.NOMINATED:
            return Change.MOVES if ran else Change.NOMINATED
        case State.TERMINATING:
            return Change.EVICTED if ran else Change.UNCHANGED
        case State.PENDING | State.GATED:
            return Change.EVICTED if ran else Change.WAITS
        case _:
            return Change.UNCHANGED


def _job(job: reading.Job, outcome: running.Outcome) -> JobTold:
    names = [pod.name for pod in job.pods]
    groups = {group.name: [pod.name for pod in job.pods if pod.group == group.name] for group in job.groups}
    filled = {name: members for name, members in groups.items() if members}
    end = outcome.end.pods
    return JobTold(
        states=_states(end[name] for name in names),
        changes=_counted(change(outcome.start.pods[name], end[name]) for name in names),
        nodes=_nodes(end[name] for name in names),
        groups={
            name: GroupTold(states=_states(end[one] for one in members), nodes=_nodes(end[one] for one in members))
            for name, members in (filled if len(filled) > 1 else {}).items()
        },
    )


def _states(pods: Iterable[Standing]) -> dict[str, int]:
    return _counted(pod.state for pod in pods)


def _nodes(pods: Iterable[Standing]) -> tuple[str, ...]:
    """Each pod's node, as often as there are pods on it."""
    return tuple(sorted(pod.node for pod in pods if pod.state in reading.PLACED))


def _counted(words: Iterable[StrEnum]) -> dict[str, int]:
    return dict(sorted(Counter(str(word) for word in words).items()))
