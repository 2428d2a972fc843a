"""A gang as a decision sees it: which pods run, wait or leave, which start next and which would be evicted next.

A tree of groups, each with a minimum: below it everything that lacks starts together, beyond it one pod at a time.
Holds the states of the pods during a decision; the transaction changes them. Never looks at nodes.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum

from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.schedule import pod_order
from dovetail.schedule.gang.group_state import GroupStates
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.amounts import Amounts

ORDER_ANNOTATION = "dovetail.dev/order-priority"


class State(IntEnum):
    """The state of a pod in a decision."""

    WAITING = 0
    GATED = 1
    ACTIVE = 2  # bound or running
    STARTING = 3  # given a node in this decision
    NOMINATED = 4  # given room in this decision that is not free yet
    LEAVING = 5  # being deleted or evicted: occupies its node until it is gone
    STUCK = 6  # being deleted, but a finalizer holds it for an unknown time
    EVICTED = 7  # evicted in a scenario; may find a place again
    SUCCEEDED = 8
    FAILED = 9


PLACED = frozenset({State.ACTIVE, State.STARTING, State.NOMINATED})
THERE = PLACED | {State.SUCCEEDED}  # what counts towards a minimum


class Team:
    """A group of the tree, or its root."""

    __slots__ = ("holds_groups", "min", "name", "parent", "pods", "teams", "wish")

    def __init__(
        self, name: str, *, least: int, holds_groups: bool, wish: gangs.TopologyRequest | None
    ) -> None:
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

    # Since when all it holds is nearly unused, if it is: it may be evicted then, and is the first to be.
    idle_since: datetime.datetime | None = None
    # The round of decisions in which it last had a turn, and the actions in which it had one.
    round_ = looked = 0
    protected_by = ""  # the disruption budget that protects its pods from eviction, if one does
    non_preemptible_because = ""  # what makes it non-preemptible although it does not ask for that
    has_kept_node = False  # without queues: a node is kept for one of its pods, maybe by preemption
    is_aged = False  # so old that age no longer decides between it and others like it

    def __init__(
        self,
        gang: gangs.Gang,
        members: Mapping[str, tuple[pods.Pod, str]],
        *,
        queue: str,
        is_preemptible: bool,
    ) -> None:
        self.gang = gang
        self.id = f"{gang.metadata.namespace}/{gang.metadata.name}"
        self.name = self.id
        self.queue = queue
        self.is_preemptible = is_preemptible
        self.pods = {pod_id: pod for pod_id, (pod, _) in members.items()}
        self.state = {pod_id: state_of(pod) for pod_id, pod in self.pods.items()}
        self.priority = _priority(gang, self.pods.values())
        self.created = _created(gang, self.pods.values())
        self.root = _tree(gang, members)
        self.prices: Callable[[str], Amounts] | None = None  # what a pending pod costs at most
        self._asked: Amounts | None = None
        self._next: tuple[str, ...] | None = None  # valid until the state of a pod changes
        self._startable = State.WAITING
        self._standings: GroupStates | None = None
        self._counts: list[int] | None = None  # by state, how many pods are in it
        self.is_changed = False

    def set_prices(self, prices: Callable[[str], Amounts] | None) -> None:
        """Sets the function that returns what a pending pod costs at most."""
        self.prices = prices
        self._asked = None

    def reset(self) -> None:
        """Back to the states of its pods before anything is decided."""
        self.state = {pod_id: state_of(pod) for pod_id, pod in self.pods.items()}
        self._startable = State.WAITING
        self._forget()
        self.is_changed = False

    def _forget(self) -> None:
        self._asked = self._next = self._standings = self._counts = None

    def refill(self, *, is_on: bool) -> None:
        """Whether the next pods are those evicted in a scenario, instead of the pending ones."""
        self._startable = State.EVICTED if is_on else State.WAITING
        self._asked = self._next = self._standings = None
        self.is_changed = True

    # Pods that are there

    @property
    def size(self) -> int:
        """How many pods it has."""
        return len(self.pods)

    @property
    def _groups(self) -> GroupStates:
        """The state of its groups: counted once, then kept up to date."""
        if self._standings is None:
            state, startable = self.state, self._startable
            self._standings = GroupStates(
                self.root,
                is_there=lambda pod_id: state[pod_id] in THERE,
                may_start=lambda pod_id: state[pod_id] is startable,
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
        """Pods, or groups, that are there; linear in the pods where some are counted as gone."""
        if not without:
            return self._groups.of(team).count
        if team.holds_groups:
            return sum(self.is_satisfied(child, without) for child in team.teams)
        state = self.state
        return sum(state[pod_id] in THERE and pod_id not in without for pod_id in team.pods)

    @property
    def fullness(self) -> int:
        """0 below its minimum, 1 at it, 2 above."""
        return self.fullness_without(())

    def fullness_without(self, gone: Collection[str]) -> int:
        """The same without these pods."""
        if not gone:
            root = self._groups.of(self.root)
            if not root.satisfied:
                return 0
            return 2 if root.above else 1
        if not self.is_satisfied(self.root, gone):
            return 0
        return 2 if self._is_above(self.root, gone) else 1

    def _is_above(self, team: Team, gone: Collection[str]) -> bool:
        return self._count(team, gone) > team.min or any(
            self._is_above(child, gone) for child in team.teams
        )

    def has_placed(self, gone: Collection[str]) -> bool:
        """Whether any pod but these runs or has been given a node."""
        return any(state in PLACED and pod_id not in gone for pod_id, state in self.state.items())

    @property
    def has_active(self) -> bool:
        """Whether any pod runs."""
        return self._number(State.ACTIVE) > 0

    def active(self) -> tuple[str, ...]:
        """The pods that run."""
        return tuple(pod_id for pod_id in self.root.members() if self.state[pod_id] is State.ACTIVE)

    @property
    def has_nominated(self) -> bool:
        """Whether any pod is nominated: given room that is not free yet."""
        return self._number(State.NOMINATED) > 0

    @property
    def has_waiting(self) -> bool:
        """Whether any pod waits, gated ones included."""
        return self._number(State.WAITING, State.GATED) > 0

    @property
    def is_running(self) -> bool:
        """Whether any pod runs, or was given a node."""
        return self._number(*PLACED) > 0

    # The next pods

    def by_team(self, team: Team, ids: Iterable[str]) -> list[tuple[Team, list[str]]]:
        """These pods by the group just below this one; groups without any of them are left out."""
        parts: dict[int, tuple[Team, list[str]]] = {}
        for pod_id in ids:
            child = self._team_of.get(pod_id)
            while child is not None and child.parent is not team:
                child = child.parent
            if child is not None:
                parts.setdefault(id(child), (child, []))[1].append(pod_id)

        if len(parts) <= 1:
            return [*parts.values()]
        return [parts[id(child)] for child in team.teams if id(child) in parts]

    @functools.cached_property
    def _team_of(self) -> dict[str, Team]:
        """By pod, its own group."""
        return {pod_id: team for team in _leaves(self.root) for pod_id in team.pods}

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
        share = count / team.min if team.min > 0 else 0.0
        return count >= team.min, team.min <= 0, share, team.name

    def next_cost(self) -> Amounts:
        """What the next pods cost at most. Must not be modified."""
        if self._asked is None:
            assert self.prices is not None
            costs = [self.prices(pod_id) for pod_id in self.next_pods()]
            self._asked = costs[0] if len(costs) == 1 else amounts.total(costs)
        return self._asked

    def mark(self, pod_id: str, state: State) -> None:
        """Sets the state of a pod."""
        before = self.state[pod_id]
        self.state[pod_id] = state
        self._asked = self._next = None
        self.is_changed = True
        if self._counts is not None:
            self._counts[before] -= 1
            self._counts[state] += 1
        if self._standings is not None:
            change = (state in THERE) - (before in THERE)
            self._standings.move(pod_id, change=change, may_start=state is self._startable)

    # The next victims

    def next_victims(self, gone: Collection[str] = ()) -> tuple[str, ...]:
        """The pods to evict next: one beyond a minimum, else a group beyond it, else all that run."""
        surplus = self._surplus(self.root, gone) if not self.gang.evicts_whole else ()
        if surplus:
            return surplus
        return tuple(pod_id for pod_id in self.active() if pod_id not in gone)

    def _surplus(self, team: Team, gone: Collection[str]) -> tuple[str, ...]:
        """What a group can lose and keep its minimum: its last pod, or one of its groups; nothing if it cannot."""
        if not team.holds_groups:
            if self._count(team, gone) <= team.min:
                return ()
            movable = self._active_in(team.pods, gone)
            return movable[-1:]

        # A surplus deep in the tree goes first: it costs no group its minimum.
        ranked = sorted(team.teams, key=lambda child: self._rank(child, gone), reverse=True)
        for child in ranked:
            surplus = self._surplus(child, gone)
            if surplus:
                return surplus
        if self._count(team, gone) <= team.min:
            return ()
        for child in ranked:
            members = self._active_in(child.members(), gone)
            if members and self.is_satisfied(child, gone):
                return members
        return ()

    def _active_in(self, pod_ids: Iterable[str], gone: Collection[str]) -> tuple[str, ...]:
        state = self.state
        return tuple(
            pod_id for pod_id in pod_ids if state[pod_id] is State.ACTIVE and pod_id not in gone
        )


class SinglePodJob(Job):
    """A gang of one pod, without the tree of groups. Most pods of a cluster are like this."""

    def __init__(self, gang: gangs.Gang, pod_id: str, pod: pods.Pod, *, queue: str) -> None:
        self.gang = gang
        self.id = self.name = f"{gang.metadata.namespace}/{gang.metadata.name}"
        self.queue = queue
        self.is_preemptible = True
        self.pods = {pod_id: pod}
        self.state = {pod_id: state_of(pod)}
        self.priority = gang.priority if gang.priority is not None else pod.spec.priority or 0
        self.created = pod_order.instant(
            gang.metadata.creation_timestamp or pod.metadata.creation_timestamp
        )
        self.prices = None
        self._startable = State.WAITING
        self._forget()
        self.is_changed = False
        self._ids = (pod_id,)
        self._root: Team | None = None

    @property
    def root(self) -> Team:  # type: ignore[override]
        """The tree, built when it is needed."""
        if self._root is None:
            (pod_id,) = self._ids
            self._root = _tree(self.gang, {pod_id: (self.pods[pod_id], gangs.DEFAULT_GROUP)})
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

    def next_victims(self, gone: Collection[str] = ()) -> tuple[str, ...]:
        """Itself, if it runs."""
        is_running = self._state is State.ACTIVE and self._ids[0] not in gone
        return self._ids if is_running else ()


def job_of(gang: gangs.Gang, members: Mapping[str, tuple[pods.Pod, str]], *, queue: str) -> Job:
    """The gang as a job; preemptible until the caller decides otherwise."""
    if len(members) == 1 and _is_plain(gang):
        ((pod_id, (pod, _)),) = members.items()
        return SinglePodJob(gang, pod_id, pod, queue=queue)
    return Job(gang, members, queue=queue, is_preemptible=True)


def _is_plain(gang: gangs.Gang) -> bool:
    """Whether the gang is one group of one pod, without a topology constraint."""
    if len(gang.groups) != 1 or gang.min_groups != 1:
        return False
    (group,) = gang.groups
    return group.min == 1 and gang.topology is None and group.topology is None


def state_of(pod: pods.Pod) -> State:
    """The state of a pod before anything is decided."""
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
        return pod_order.instant(gang.metadata.creation_timestamp)
    return min(pod_order.instant(pod.metadata.creation_timestamp) for pod in members)


def _tree(gang: gangs.Gang, members: Mapping[str, tuple[pods.Pod, str]]) -> Team:
    """The groups with their pods in order; a pod of an unknown group joins the first group of pods."""
    root = Team("", least=gang.min_groups, holds_groups=True, wish=gang.topology)
    by_name: dict[str | None, Team] = {None: root}
    for group in gang.groups:
        by_name[group.name] = Team(
            group.name, least=group.min, holds_groups=group.holds_groups, wish=group.topology
        )
    for group in gang.groups:
        parent = by_name.get(group.parent, root)
        if not parent.holds_groups:
            parent = root
        team = by_name[group.name]
        parent.teams.append(team)
        team.parent = parent

    pod_groups = {name: team for name, team in by_name.items() if not team.holds_groups}
    default = next(iter(pod_groups.values()), None)
    for pod_id, (_, group_name) in sorted(members.items(), key=lambda item: _pod_rank(item[1][0])):
        own_team = pod_groups.get(group_name, default)
        if own_team is not None:
            own_team.pods.append(pod_id)
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
        order = float(text) if text is not None else None
    except ValueError:
        order = None
    return order is None, -(order or 0.0), pod.metadata.name
