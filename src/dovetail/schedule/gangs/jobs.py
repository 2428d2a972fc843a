"""A gang as a decision sees it: which of its pods run, wait or go, which are next to start and which to yield.

A tree of groups with a minimum each; below the minimum everything that lacks is next at once, beyond it one pod at a
time. Keeps states through a decision, changed by whoever decides. Never looks at nodes.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum

from dovetail.model import gangs, pods
from dovetail.schedule import order
from dovetail.schedule.gangs.standing import Standings
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.amounts import Amounts

ORDER_ANNOTATION = "dovetail.dev/order-priority"


class State(IntEnum):
    """What a pod is doing, as a decision counts it."""

    WAITING = 0
    GATED = 1
    ACTIVE = 2  # bound or running
    STARTING = 3  # given a node in this decision
    NOMINATED = 4  # given room in this decision that is not free yet
    LEAVING = 5  # being deleted, or made to yield: holds its node until it is gone
    STUCK = 6  # being deleted, and nobody knows until when
    TAKEN = 7  # off its node in a scenario; may find room again
    SUCCEEDED = 8
    FAILED = 9


PLACED = frozenset({State.ACTIVE, State.STARTING, State.NOMINATED})
THERE = PLACED | {State.SUCCEEDED}  # what counts towards a minimum


class Team:
    """A group of the tree, or its root."""

    __slots__ = ("holds_groups", "min", "name", "parent", "pods", "teams", "wish")

    def __init__(self, name: str, *, least: int, holds_groups: bool, wish: gangs.TopologyWish | None) -> None:
        self.name = name
        self.min = least
        self.holds_groups = holds_groups
        self.wish = wish
        self.parent: Team | None = None
        self.teams: list[Team] = []
        self.pods: list[str] = []

    def members(self) -> Iterator[str]:
        """Every pod below."""
        yield from self.pods
        for team in self.teams:
            yield from team.members()


class Job:
    """A gang in one decision."""

    idle_since: datetime.datetime | None = None  # all it holds is nearly unused: it may be made to yield, and first
    round_ = looked = 0  # in which round of decisions it had a turn, and in which of their steps
    shield = ""  # the disruption budget that keeps its pods from being evicted, if one does
    fixed_by = ""  # why it cannot be made to yield although it does not ask for that; nothing if it can
    is_kept = False  # without queues: a node is kept for one of its pods, for which others may have been ended
    is_aged = False  # as old as counts: no younger one comes before it, and among such age does not decide

    def __init__(
        self, gang: gangs.Gang, members: Mapping[str, tuple[pods.Pod, str]], *, queue: str, is_preemptible: bool
    ) -> None:
        self.gang = gang
        self.id = f"{gang.metadata.namespace}/{gang.metadata.name}"
        self.name = self.id
        self.queue = queue
        self.is_preemptible = is_preemptible
        self.pods = {id_: pod for id_, (pod, _) in members.items()}
        self.state = {id_: state_of(pod) for id_, pod in self.pods.items()}
        self.priority = _priority(gang, self.pods.values())
        self.created = _created(gang, self.pods.values())
        self.root = _tree(gang, members)
        self.prices: Callable[[str], Amounts] | None = None  # what a waiting pod costs at most
        self._asked: Amounts | None = None
        self._next: tuple[str, ...] | None = None  # worked out, and good until a pod does something else
        self._startable = State.WAITING
        self._standings: Standings | None = None
        self._counts: list[int] | None = None  # by state, how many pods are in it
        self.is_moved = False

    def priced_by(self, prices: Callable[[str], Amounts] | None) -> None:
        """Who says from now on what a waiting pod costs at most."""
        self.prices = prices
        self._asked = None

    def reset(self) -> None:
        """Back to where its pods stand before anything is decided."""
        self.state = {id_: state_of(pod) for id_, pod in self.pods.items()}
        self._startable = State.WAITING
        self._forget()
        self.is_moved = False

    def _forget(self) -> None:
        self._asked = self._next = self._standings = self._counts = None

    def refill(self, *, is_on: bool) -> None:
        """Whether the next pods are those taken off in a scenario instead of those that wait."""
        self._startable = State.TAKEN if is_on else State.WAITING
        self._asked = self._next = self._standings = None
        self.is_moved = True

    # What is there

    @property
    def size(self) -> int:
        """How many pods it has."""
        return len(self.pods)

    @property
    def _groups(self) -> Standings:
        """How its groups stand: counted once, then kept up to date."""
        if self._standings is None:
            state, startable = self.state, self._startable
            self._standings = Standings(
                self.root,
                is_there=lambda id_: state[id_] in THERE,
                may_start=lambda id_: state[id_] is startable,
            )
        return self._standings

    def _number(self, *states: State) -> int:
        """How many of its pods are in these states."""
        if self._counts is None:
            self._counts = [0] * len(State)
            for state in self.state.values():
                self._counts[state] += 1
        counts = self._counts
        return sum(counts[state] for state in states)

    def is_satisfied(self, team: Team, without: Collection[str] = ()) -> bool:
        """Whether a group has its minimum."""
        return self._count(team, without) >= team.min

    def _count(self, team: Team, without: Collection[str] = ()) -> int:
        """Pods, or groups, that are there; linear in the pods where some are to be taken as gone."""
        if not without:
            return self._groups.of(team).count
        if team.holds_groups:
            return sum(self.is_satisfied(child, without) for child in team.teams)
        state = self.state
        return sum(state[id_] in THERE and id_ not in without for id_ in team.pods)

    @property
    def fullness(self) -> int:
        """0 below its minimum, 1 at it, 2 above."""
        return self.fullness_without(())

    def fullness_without(self, gone: Collection[str]) -> int:
        """The same, were these pods gone."""
        if not gone:
            root = self._groups.of(self.root)
            return (2 if root.above else 1) if root.satisfied else 0
        if not self.is_satisfied(self.root, gone):
            return 0
        return 2 if self._is_above(self.root, gone) else 1

    def _is_above(self, team: Team, gone: Collection[str]) -> bool:
        return self._count(team, gone) > team.min or any(self._is_above(child, gone) for child in team.teams)

    def has_placed(self, gone: Collection[str]) -> bool:
        """Whether any pod would run, or be given a node, were these gone."""
        return any(state in PLACED and id_ not in gone for id_, state in self.state.items())

    @property
    def has_active(self) -> bool:
        """Whether any pod runs."""
        return self._number(State.ACTIVE) > 0

    def active(self) -> tuple[str, ...]:
        """The pods that run."""
        return tuple(id_ for id_ in self.root.members() if self.state[id_] is State.ACTIVE)

    @property
    def has_nominated(self) -> bool:
        """Whether any pod was given room that is not free yet."""
        return self._number(State.NOMINATED) > 0

    @property
    def has_waiting(self) -> bool:
        """Whether any pod waits, be it free to start or not."""
        return self._number(State.WAITING, State.GATED) > 0

    @property
    def is_running(self) -> bool:
        """Whether any pod runs, or was given a node."""
        return self._number(*PLACED) > 0

    # Who is next

    def by_team(self, team: Team, ids: Iterable[str]) -> list[tuple[Team, list[str]]]:
        """These pods by the group just below this one that they are in; groups without any are left out."""
        found: dict[int, tuple[Team, list[str]]] = {}
        for id_ in ids:
            below = self._team_of.get(id_)
            while below is not None and below.parent is not team:
                below = below.parent
            if below is not None:
                found.setdefault(id(below), (below, []))[1].append(id_)
        return [found[id(child)] for child in team.teams if id(child) in found] if len(found) > 1 else [*found.values()]

    @functools.cached_property
    def _team_of(self) -> dict[str, Team]:
        """By pod, the group that it is in itself."""
        return {id_: team for team in _leaves(self.root) for id_ in team.pods}

    def can_reach_minimum(self) -> bool:
        """Whether enough pods are there, running or free to start."""
        return self._groups.of(self.root).reaches

    def next_pods(self) -> tuple[str, ...]:
        """The pods to start next, all of them or none."""
        if self._next is None:
            self._next = tuple(self._groups.of(self.root).next_pods())
        return self._next

    def _rank(self, team: Team, gone: Collection[str] = ()) -> tuple[bool, bool, float, str]:
        count = self._count(team, gone)
        return count >= team.min, team.min <= 0, count / team.min if team.min > 0 else 0.0, team.name

    def asked(self) -> Amounts:
        """What the pods to start next cost at most. Not to be changed."""
        if self._asked is None:
            assert self.prices is not None
            costs = [self.prices(id_) for id_ in self.next_pods()]
            self._asked = costs[0] if len(costs) == 1 else amounts.total(costs)
        return self._asked

    def mark(self, id_: str, state: State) -> None:
        """A pod is doing something else now."""
        before = self.state[id_]
        self.state[id_] = state
        self._asked = self._next = None
        self.is_moved = True
        if self._counts is not None:
            self._counts[before] -= 1
            self._counts[state] += 1
        if self._standings is not None:
            there = (state in THERE) - (before in THERE)
            self._standings.move(id_, there=there, may_start=state is self._startable)

    # Who would yield

    def portion(self, gone: Collection[str] = ()) -> tuple[str, ...]:
        """The pods to yield next: one beyond a minimum, else a group beyond it, else all that run."""
        surplus = self._surplus(self.root, gone) if not self.gang.evicts_whole else ()
        if surplus:
            return surplus
        return tuple(id_ for id_ in self.active() if id_ not in gone)

    def _surplus(self, team: Team, gone: Collection[str]) -> tuple[str, ...]:
        if not team.holds_groups:
            if self._count(team, gone) <= team.min:
                return ()
            movable = [id_ for id_ in team.pods if self.state[id_] is State.ACTIVE and id_ not in gone]
            return (movable[-1],) if movable else ()
        ranked = sorted(team.teams, key=lambda child: self._rank(child, gone), reverse=True)
        for child in ranked:
            if found := self._surplus(child, gone):
                return found
        if self._count(team, gone) <= team.min:
            return ()
        for child in ranked:
            found = tuple(i for i in child.members() if self.state[i] is State.ACTIVE and i not in gone)
            if found and self.is_satisfied(child, gone):
                return found
        return ()


class Lone(Job):
    """A pod alone: what a gang is asked, without the tree. Most pods of a cluster are."""

    def __init__(self, gang: gangs.Gang, id_: str, pod: pods.Pod, *, queue: str) -> None:
        self.gang = gang
        self.id = self.name = f"{gang.metadata.namespace}/{gang.metadata.name}"
        self.queue = queue
        self.is_preemptible = True
        self.pods = {id_: pod}
        self.state = {id_: state_of(pod)}
        self.priority = gang.priority if gang.priority is not None else pod.spec.priority or 0
        self.created = order.instant(gang.metadata.creation_timestamp or pod.metadata.creation_timestamp)
        self.prices = None
        self._startable = State.WAITING
        self._forget()
        self.is_moved = False
        self._ids = (id_,)
        self._root: Team | None = None

    @property
    def root(self) -> Team:  # type: ignore[override]
        """The tree, for those who want one."""
        if self._root is None:
            (id_,) = self._ids
            self._root = _tree(self.gang, {id_: (self.pods[id_], gangs.DEFAULT_GROUP)})
        return self._root

    @property
    def _state(self) -> State:
        return self.state[self._ids[0]]

    def is_satisfied(self, team: Team, without: Collection[str] = ()) -> bool:
        """Whether the pod is there."""
        return self._state in THERE and self._ids[0] not in without

    def fullness_without(self, gone: Collection[str]) -> int:
        """Below its minimum or at it."""
        return int(self._state in THERE and self._ids[0] not in gone)

    @property
    def has_active(self) -> bool:
        """Whether it runs."""
        return self._state is State.ACTIVE

    @property
    def has_waiting(self) -> bool:
        """Whether it waits."""
        state = self.state[self._ids[0]]
        return state is State.WAITING or state is State.GATED

    @property
    def is_running(self) -> bool:
        """Whether it runs, or was given a node."""
        return self.state[self._ids[0]] in PLACED

    def active(self) -> tuple[str, ...]:
        """Itself, if it runs."""
        return self._ids if self._state is State.ACTIVE else ()

    def can_reach_minimum(self) -> bool:
        """Whether it runs or is free to start."""
        return self._state in THERE or self._state is self._startable

    def next_pods(self) -> tuple[str, ...]:
        """Itself, if it waits."""
        return self._ids if self._state is self._startable else ()

    def portion(self, gone: Collection[str] = ()) -> tuple[str, ...]:
        """Itself, if it runs."""
        return self._ids if self._state is State.ACTIVE and self._ids[0] not in gone else ()


def job_of(gang: gangs.Gang, members: Mapping[str, tuple[pods.Pod, str]], *, queue: str) -> Job:
    """The gang as a job: preemptible until somebody says otherwise."""
    if len(members) == 1 and len(gang.groups) == 1 and gang.groups[0].min == 1 and gang.min_groups == 1:
        ((id_, (pod, _)),) = members.items()
        if gang.topology is None and gang.groups[0].topology is None:
            return Lone(gang, id_, pod, queue=queue)
    return Job(gang, members, queue=queue, is_preemptible=True)


def state_of(pod: pods.Pod) -> State:
    """What a pod is doing before anything is decided."""
    if pod.status.phase == "Succeeded":
        return State.SUCCEEDED
    if pod.status.phase == "Failed":
        return State.FAILED
    if pod.metadata.deletion_timestamp is not None:
        return State.STUCK if pod.metadata.finalizers else State.LEAVING
    if pod.spec.node_name:
        return State.ACTIVE
    return State.GATED if pod.spec.scheduling_gates else State.WAITING


def _priority(gang: gangs.Gang, members: Iterable[pods.Pod]) -> int:
    if gang.priority is not None:
        return gang.priority
    return max((pod.spec.priority or 0 for pod in members), default=0)


def _created(gang: gangs.Gang, members: Iterable[pods.Pod]) -> datetime.datetime:
    if gang.metadata.creation_timestamp is not None:
        return order.instant(gang.metadata.creation_timestamp)
    return min(order.instant(pod.metadata.creation_timestamp) for pod in members)


def _tree(gang: gangs.Gang, members: Mapping[str, tuple[pods.Pod, str]]) -> Team:
    """The groups with their pods in order; a pod of a group nobody told about joins the first that holds pods."""
    root = Team("", least=gang.min_groups, holds_groups=True, wish=gang.topology)
    known: dict[str | None, Team] = {None: root}
    for group in gang.groups:
        known[group.name] = Team(group.name, least=group.min, holds_groups=group.holds_groups, wish=group.topology)
    for group in gang.groups:
        parent = known.get(group.parent, root)
        above = parent if parent.holds_groups else root
        above.teams.append(known[group.name])
        known[group.name].parent = above
    leaves = {name: team for name, team in known.items() if not team.holds_groups}
    first = next(iter(leaves.values()), None)
    for id_, (_, named) in sorted(members.items(), key=lambda item: _pod_rank(item[1][0])):
        team = leaves.get(named, first)
        if team is not None:
            team.pods.append(id_)
    return root


def _leaves(team: Team) -> Iterator[Team]:
    """The groups of pods below."""
    if not team.holds_groups:
        yield team
    for child in team.teams:
        yield from _leaves(child)


def _pod_rank(pod: pods.Pod) -> tuple[bool, float, str]:
    """Pods that state an order first, the higher the earlier; then by name."""
    text = pod.metadata.annotations.get(ORDER_ANNOTATION)
    try:
        stated = float(text) if text is not None else None
    except ValueError:
        stated = None
    return stated is None, -(stated or 0.0), pod.metadata.name
