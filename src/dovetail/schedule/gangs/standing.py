"""How the groups of a gang stand, counted from change to change: who is there, who may start, which groups are next.

Given the tree of groups and what every pod is doing; told of every change. A change costs a few steps on the way to the
root, and the pods to start next cost as many steps as they are, however large the gang is. Never changes a state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, Protocol

SLACK: Final = 64  # entries of a heap beyond four for each group before it is made again
Rank = tuple[bool, bool, float, str]


class Team(Protocol):
    """A group of the tree, as far as it is read here."""

    name: str
    min: int
    holds_groups: bool

    @property
    def teams(self) -> Sequence[Team]:
        """The groups below."""

    @property
    def pods(self) -> Sequence[str]:
        """The pods of the group itself, in the order in which they start."""


class Group:
    """What all groups have: how they stand, and whom they tell when that changes."""

    __slots__ = ("able", "above", "count", "index", "min", "name", "parent", "reaches", "satisfied", "version")

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        self.name = team.name
        self.min = team.min
        self.parent = parent
        self.index = index  # among the groups of its parent
        self.count = 0  # pods that are there, or groups that have their minimum
        self.satisfied = False  # it has its minimum
        self.above = False  # it, or a group below, has more than that
        self.able = False  # it has pods to start next
        self.reaches = False  # its minimum is there or free to start
        self.version = 0

    def rank(self) -> Rank:
        """Lower is next: groups that lack something, of those the ones that have most of it."""
        share = self.count / self.min if self.min > 0 else 0.0
        return self.count >= self.min, self.min <= 0, share, self.name

    def next_pods(self) -> list[str]:
        """The pods to start next, all of them or none."""
        raise NotImplementedError

    def settle(self) -> None:
        """Works out how it stands by its own counts, before anybody asks."""
        self.satisfied = self.count >= self.min
        self.above = self._is_above()
        self.able = self._is_able()
        self.reaches = self._can_reach()

    def changed(self) -> None:
        """Its own counts changed: how it stands now, and all above it."""
        before = (self.satisfied, self.able, self.above, self.reaches)
        self.settle()
        self.version += 1
        if self.parent is not None:
            self.parent.child_changed(self, *before)

    def _is_above(self) -> bool:
        raise NotImplementedError

    def _is_able(self) -> bool:
        raise NotImplementedError

    def _can_reach(self) -> bool:
        raise NotImplementedError


class Pods(Group):
    """A group of pods. Those that may start are kept in a heap by their place; what is out of date is dropped late."""

    __slots__ = ("_flags", "_heap", "_ids", "_queued", "startable")

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        super().__init__(team, parent, index)
        self._ids = team.pods
        self._flags = bytearray(len(team.pods))  # by place, whether the pod may start
        self._queued = bytearray(len(team.pods))  # by place, whether it is in the heap
        self._heap: list[int] = []
        self.startable = 0

    def put(self, place: int, *, is_there: bool, may_start: bool) -> None:
        """A pod as it stands at first; in the order of places."""
        self.count += is_there
        if may_start:
            self.startable += 1
            self._flags[place] = self._queued[place] = 1
            self._heap.append(place)

    def move(self, place: int, *, there: int, may_start: bool) -> None:
        """A pod does something else: `there` is one more, one less, or none."""
        self.count += there
        if may_start != self._flags[place]:
            self._flags[place] = may_start
            self.startable += 1 if may_start else -1
            if may_start and not self._queued[place]:
                self._queued[place] = 1
                heapq.heappush(self._heap, place)
        self.changed()

    def next_pods(self) -> list[str]:
        """The first that may start: as many as lack, else one."""
        if not self.able:
            return []
        wanted = max(self.min - self.count, 1)
        found: list[int] = []
        while len(found) < wanted:
            place = heapq.heappop(self._heap)
            if self._flags[place]:
                found.append(place)
            else:
                self._queued[place] = 0
        for place in found:
            heapq.heappush(self._heap, place)
        return [self._ids[place] for place in found]

    def _is_above(self) -> bool:
        return self.count > self.min

    def _is_able(self) -> bool:
        return self.startable >= max(self.min - self.count, 1)

    def _can_reach(self) -> bool:
        return self.count + self.startable >= self.min


class Groups(Group):
    """A group of groups. Those with pods to start are kept in a heap by rank; what is out of date is dropped late."""

    __slots__ = ("_able", "_above", "_heap", "_lacking", "_reaching", "children")

    def __init__(self, team: Team, parent: Groups | None, index: int) -> None:
        super().__init__(team, parent, index)
        self.children: list[Group] = [_made(child, self, at) for at, child in enumerate(team.teams)]
        self._able = self._lacking = self._above = self._reaching = (
            0  # groups; of those able, those below their minimum
        )
        self._heap: list[tuple[Rank, int, int]] = []

    def settle_all(self) -> None:
        """Works out how all groups below stand, and this one."""
        for child in self.children:
            if isinstance(child, Groups):
                child.settle_all()
            else:
                child.settle()
            self._count(child.satisfied, child.able, child.above, child.reaches, sign=1)
        self._make_heap()
        self.settle()

    def child_changed(self, child: Group, satisfied: bool, able: bool, above: bool, reaches: bool) -> None:
        """A group below stands otherwise than before."""
        self._count(satisfied, able, above, reaches, sign=-1)
        self._count(child.satisfied, child.able, child.above, child.reaches, sign=1)
        if child.able:
            heapq.heappush(self._heap, (child.rank(), child.index, child.version))
            if len(self._heap) > 4 * len(self.children) + SLACK:
                self._make_heap()
        self.changed()

    def next_pods(self) -> list[str]:
        """Of the group that is next; where groups lack, of as many as lack."""
        if not self.able:
            return []
        lacking = self.min - self.count
        if lacking <= 0:
            return self._first().next_pods()
        able = [child for child in self.children if child.able and not child.satisfied]
        able.sort(key=Group.rank)
        return [id_ for child in able[:lacking] for id_ in child.next_pods()]

    def _first(self) -> Group:
        while True:
            _, index, version = self._heap[0]
            child = self.children[index]
            if child.able and child.version == version:
                return child
            heapq.heappop(self._heap)

    def _make_heap(self) -> None:
        self._heap = [(child.rank(), child.index, child.version) for child in self.children if child.able]
        heapq.heapify(self._heap)

    def _count(self, satisfied: bool, able: bool, above: bool, reaches: bool, *, sign: int) -> None:
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


class Standings:
    """All groups of one gang."""

    def __init__(self, root: Team, *, is_there: Callable[[str], bool], may_start: Callable[[str], bool]) -> None:
        self.root = _made(root, None, 0)
        self._places: dict[str, tuple[Pods, int]] = {}
        self._by_team: dict[int, Group] = {}
        self._enter(root, self.root, is_there, may_start)
        if isinstance(self.root, Groups):
            self.root.settle_all()
        else:
            self.root.settle()

    def _enter(
        self, team: Team, group: Group, is_there: Callable[[str], bool], may_start: Callable[[str], bool]
    ) -> None:
        self._by_team[id(team)] = group
        if isinstance(group, Groups):
            for child, below in zip(team.teams, group.children, strict=True):
                self._enter(child, below, is_there, may_start)
        elif isinstance(group, Pods):
            for place, id_ in enumerate(team.pods):
                self._places[id_] = (group, place)
                group.put(place, is_there=is_there(id_), may_start=may_start(id_))

    def of(self, team: Team) -> Group:
        """How a group stands."""
        return self._by_team[id(team)]

    def move(self, id_: str, *, there: int, may_start: bool) -> None:
        """A pod does something else; one that is in no group counts nowhere."""
        known = self._places.get(id_)
        if known is not None:
            group, place = known
            group.move(place, there=there, may_start=may_start)


def _made(team: Team, parent: Groups | None, index: int) -> Group:
    return Groups(team, parent, index) if team.holds_groups else Pods(team, parent, index)
