"""A gang as a decision sees it: which of its pods run, wait or go, which are next to start and which to yield.

A tree of groups with a minimum each; below the minimum everything that lacks is next at once, beyond it one pod at a
time. Keeps states through a decision, changed by whoever decides. Never looks at nodes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum

from dovetail.model import gangs, pods
from dovetail.schedule import order
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

    __slots__ = ("holds_groups", "min", "name", "pods", "teams", "wish")

    def __init__(self, name: str, *, least: int, holds_groups: bool, wish: gangs.TopologyWish | None) -> None:
        self.name = name
        self.min = least
        self.holds_groups = holds_groups
        self.wish = wish
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
        self._startable = State.WAITING
        self.is_moved = False

    def priced_by(self, prices: Callable[[str], Amounts] | None) -> None:
        """Who says from now on what a waiting pod costs at most."""
        self.prices = prices
        self._asked = None

    def reset(self) -> None:
        """Back to where its pods stand before anything is decided."""
        self.state = {id_: state_of(pod) for id_, pod in self.pods.items()}
        self._asked = None
        self._startable = State.WAITING
        self.is_moved = False

    def refill(self, *, is_on: bool) -> None:
        """Whether the next pods are those taken off in a scenario instead of those that wait."""
        self._startable = State.TAKEN if is_on else State.WAITING
        self._asked = None
        self.is_moved = True

    # What is there

    def is_satisfied(self, team: Team, without: Collection[str] = ()) -> bool:
        """Whether a group has its minimum."""
        return self._count(team, without) >= team.min

    def _count(self, team: Team, without: Collection[str] = ()) -> int:
        if team.holds_groups:
            return sum(self.is_satisfied(child, without) for child in team.teams)
        state = self.state
        if not without:
            return sum(state[id_] in THERE for id_ in team.pods)
        return sum(state[id_] in THERE and id_ not in without for id_ in team.pods)

    @property
    def fullness(self) -> int:
        """0 below its minimum, 1 at it, 2 above."""
        return self.fullness_without(())

    def fullness_without(self, gone: Collection[str]) -> int:
        """The same, were these pods gone."""
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
        return any(state is State.ACTIVE for state in self.state.values())

    def active(self) -> tuple[str, ...]:
        """The pods that run."""
        return tuple(id_ for id_ in self.root.members() if self.state[id_] is State.ACTIVE)

    @property
    def has_waiting(self) -> bool:
        """Whether any pod waits, be it free to start or not."""
        return any(state is State.WAITING or state is State.GATED for state in self.state.values())

    @property
    def is_running(self) -> bool:
        """Whether any pod runs, or was given a node."""
        return any(state in PLACED for state in self.state.values())

    # Who is next

    def can_reach_minimum(self) -> bool:
        """Whether enough pods are there, running or free to start."""
        return self._reaches(self.root)

    def _reaches(self, team: Team) -> bool:
        if team.holds_groups:
            return sum(map(self._reaches, team.teams)) >= team.min
        able = THERE | {self._startable}
        return sum(self.state[id_] in able for id_ in team.pods) >= team.min

    def next_pods(self) -> tuple[str, ...]:
        """The pods to start next, all of them or none."""
        return tuple(self._next(self.root))

    def _next(self, team: Team) -> list[str]:
        if not team.holds_groups:
            waiting = [id_ for id_ in team.pods if self.state[id_] is self._startable]
            lacking = team.min - self._count(team)
            if lacking > len(waiting):
                return []
            return waiting[: max(lacking, 1)]
        ranked = sorted(team.teams, key=self._rank)
        lacking = team.min - self._count(team)
        if lacking <= 0:
            return next((found for child in ranked if (found := self._next(child))), [])
        able = [found for child in ranked if not self.is_satisfied(child) and (found := self._next(child))]
        return [id_ for found in able[:lacking] for id_ in found] if len(able) >= lacking else []

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
        self.state[id_] = state
        self._asked = None
        self.is_moved = True

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
        self._asked = None
        self._startable = State.WAITING
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
        (parent if parent.holds_groups else root).teams.append(known[group.name])
    leaves = {name: team for name, team in known.items() if not team.holds_groups}
    first = next(iter(leaves.values()), None)
    for id_, (_, named) in sorted(members.items(), key=lambda item: _pod_rank(item[1][0])):
        team = leaves.get(named, first)
        if team is not None:
            team.pods.append(id_)
    return root


def _pod_rank(pod: pods.Pod) -> tuple[bool, float, str]:
    """Pods that state an order first, the higher the earlier; then by name."""
    text = pod.metadata.annotations.get(ORDER_ANNOTATION)
    try:
        stated = float(text) if text is not None else None
    except ValueError:
        stated = None
    return stated is None, -(stated or 0.0), pod.metadata.name
