"""The state of a gang's groups, kept up to date with every change: which have their minimum, and which start next.

Given the tree of groups and the state of every pod, then every change of one. A change costs a few steps on the way
to the root, and the next pods cost as many steps as they are, however large the gang is. Never changes a pod's
state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

SLACK: Final = 64  # entries of a heap, beyond four for each group, before it is rebuilt
Rank = tuple[bool, bool, float, str]


class Team(Protocol):
    """A group of the tree, with what is read of it here."""

    name: str
    min: int
    holds_groups: bool

    @property
    def teams(self) -> Sequence[Team]:
        """The groups below."""

    @property
    def pods(self) -> Sequence[str]:
        """The pods of the group itself, in the order in which they start."""


class Standing(NamedTuple):
    """What a parent counts of its groups."""

    satisfied: bool  # it has its minimum
    able: bool  # it has pods to start next
    above: bool  # it, or a group below, has more than its minimum
    reaches: bool  # its minimum is there or free to start


class Group:
    """What all groups have: counts, what follows from them, and the parent that hears of changes."""

    __slots__ = (
        "able",
        "above",
        "count",
        "index",
        "min",
        "name",
        "parent",
        "reaches",
        "satisfied",
        "version",
    )

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        self.name = team.name
        self.min = team.min
        self.parent = parent
        self.index = index  # among the groups of its parent
        self.count = 0  # pods that are there, or groups that have their minimum
        self.satisfied = self.able = self.above = self.reaches = False  # as in Standing
        self.version = 0

    @property
    def standing(self) -> Standing:
        """How it stands now."""
        return Standing(self.satisfied, self.able, self.above, self.reaches)

    def rank(self) -> Rank:
        """Lower is next: groups below their minimum, of those the one with the smallest share of it."""
        share = self.count / self.min if self.min > 0 else 0.0
        return self.count >= self.min, self.min <= 0, share, self.name

    def next_pods(self) -> list[str]:
        """The pods to start next, all of them or none."""
        raise NotImplementedError

    def settle(self) -> None:
        """Computes how it stands from its own counts."""
        self.satisfied = self.count >= self.min
        self.above = self._is_above()
        self.able = self._is_able()
        self.reaches = self._can_reach()

    def changed(self) -> None:
        """Its counts changed: computes how it and all groups above it stand now."""
        before = self.standing
        self.settle()
        self.version += 1
        if self.parent is not None:
            self.parent.child_changed(self, before)

    def _is_above(self) -> bool:
        raise NotImplementedError

    def _is_able(self) -> bool:
        raise NotImplementedError

    def _can_reach(self) -> bool:
        raise NotImplementedError


class Pods(Group):
    """A group of pods. Those that may start are in a heap by their place; outdated entries are dropped when met."""

    __slots__ = ("_heap", "_is_queued", "_may_start", "_pod_ids", "startable")

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        super().__init__(team, parent, index)
        self._pod_ids = team.pods
        self._may_start = bytearray(len(team.pods))  # by place
        self._is_queued = bytearray(len(team.pods))  # by place, whether it is in the heap
        self._heap: list[int] = []
        self.startable = 0

    def put(self, place: int, *, is_there: bool, may_start: bool) -> None:
        """Enters a pod with its first state. Called in the order of places, so that the list is a heap."""
        self.count += is_there
        if may_start:
            self.startable += 1
            self._may_start[place] = self._is_queued[place] = 1
            self._heap.append(place)

    def move(self, place: int, *, change: int, may_start: bool) -> None:
        """The state of a pod changed; `change` is what it adds to the count of pods that are there."""
        self.count += change
        if may_start != self._may_start[place]:
            self._may_start[place] = may_start
            self.startable += 1 if may_start else -1
            if may_start and not self._is_queued[place]:
                self._is_queued[place] = 1
                heapq.heappush(self._heap, place)
        self.changed()

    def next_pods(self) -> list[str]:
        """The first that may start: as many as the minimum lacks, else one."""
        if not self.able:
            return []
        needed = max(self.min - self.count, 1)
        places: list[int] = []
        while len(places) < needed:
            place = heapq.heappop(self._heap)
            if self._may_start[place]:
                places.append(place)
            else:
                self._is_queued[place] = 0
        for place in places:
            heapq.heappush(self._heap, place)
        return [self._pod_ids[place] for place in places]

    def _is_above(self) -> bool:
        return self.count > self.min

    def _is_able(self) -> bool:
        return self.startable >= max(self.min - self.count, 1)

    def _can_reach(self) -> bool:
        return self.count + self.startable >= self.min


class Groups(Group):
    """A group of groups. Those with pods to start are in a heap by rank; outdated entries are dropped when met.

    An entry is outdated if its version is not the group's: every change of a group adds a new entry instead of looking
    for the old one.
    """

    __slots__ = ("_able", "_above", "_heap", "_lacking", "_reaching", "children")

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        super().__init__(team, parent, index)
        self.children: list[Group] = [
            _group(child, self, position) for position, child in enumerate(team.teams)
        ]
        self._able = 0  # groups with pods to start next
        self._lacking = 0  # of those, groups below their minimum
        self._above = 0
        self._reaching = 0
        self._heap: list[tuple[Rank, int, int]] = []

    def settle_all(self) -> None:
        """Computes how all groups below stand, and this one."""
        for child in self.children:
            if isinstance(child, Groups):
                child.settle_all()
            else:
                child.settle()
            self._tally(child.standing, sign=1)
        self._rebuild_heap()
        self.settle()

    def child_changed(self, child: Group, before: Standing) -> None:
        """A group below stands otherwise than before."""
        self._tally(before, sign=-1)
        self._tally(child.standing, sign=1)
        if child.able:
            heapq.heappush(self._heap, (child.rank(), child.index, child.version))
            if len(self._heap) > 4 * len(self.children) + SLACK:
                self._rebuild_heap()
        self.changed()

    def next_pods(self) -> list[str]:
        """The next pods of the first group; below the minimum, of as many groups as it lacks."""
        if not self.able:
            return []
        lacking = self.min - self.count
        if lacking <= 0:
            return self._first().next_pods()
        startable = [child for child in self.children if child.able and not child.satisfied]
        startable.sort(key=Group.rank)
        return [pod_id for child in startable[:lacking] for pod_id in child.next_pods()]

    def _first(self) -> Group:
        while True:
            _, index, version = self._heap[0]
            child = self.children[index]
            if child.able and child.version == version:
                return child
            heapq.heappop(self._heap)

    def _rebuild_heap(self) -> None:
        self._heap = [
            (child.rank(), child.index, child.version) for child in self.children if child.able
        ]
        heapq.heapify(self._heap)

    def _tally(self, standing: Standing, *, sign: int) -> None:
        satisfied, able, above, reaches = standing
        self.count += sign * satisfied
        self._able += sign * able
        self._lacking += sign * (able and not satisfied)
        self._above += sign * above
        self._reaching += sign * reaches

    def _is_above(self) -> bool:
        return self.count > self.min or self._above > 0

    def _is_able(self) -> bool:
        lacking = self.min - self.count
        return self._able > 0 if lacking <= 0 else self._lacking >= lacking

    def _can_reach(self) -> bool:
        return self._reaching >= self.min


class GroupStates:
    """All groups of one gang."""

    def __init__(
        self, root: Team, *, is_there: Callable[[str], bool], may_start: Callable[[str], bool]
    ) -> None:
        self.root = _group(root, None, 0)
        self._places: dict[str, tuple[Pods, int]] = {}
        self._by_team: dict[int, Group] = {}
        self._enter(root, self.root, is_there, may_start)
        if isinstance(self.root, Groups):
            self.root.settle_all()
        else:
            self.root.settle()

    def _enter(
        self,
        team: Team,
        group: Group,
        is_there: Callable[[str], bool],
        may_start: Callable[[str], bool],
    ) -> None:
        self._by_team[id(team)] = group
        if isinstance(group, Groups):
            for child, below in zip(team.teams, group.children, strict=True):
                self._enter(child, below, is_there, may_start)
        elif isinstance(group, Pods):
            for place, pod_id in enumerate(team.pods):
                self._places[pod_id] = (group, place)
                group.put(place, is_there=is_there(pod_id), may_start=may_start(pod_id))

    def of(self, team: Team) -> Group:
        """How a group stands."""
        return self._by_team[id(team)]

    def move(self, pod_id: str, *, change: int, may_start: bool) -> None:
        """The state of a pod changed; a pod that is in no group counts nowhere."""
        position = self._places.get(pod_id)
        if position is not None:
            group, place = position
            group.move(place, change=change, may_start=may_start)


def _group(team: Team, parent: Groups | None, index: int) -> Group:
    return Groups(team, parent, index) if team.holds_groups else Pods(team, parent, index)
