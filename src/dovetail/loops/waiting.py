"""Decides which waiting pods are asked about now: ready ones by rank, parked ones after a change, failed ones in time.

State in, state out: told what happened, asked whom to decide about. A refused pod is parked until something changed
that could help; one whose write failed waits longer each time; one that a budget left without an answer goes behind
the others. Never decides where a pod goes, never reads a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dovetail.schedule.order import Rank
from dovetail.world.events import ObjectKey

FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
FIRST_FUTILE_DELAY: Final = 60.0  # where the server will not take what is written about the pod
LONGEST_FUTILE_DELAY: Final = 600.0


class Parked(NamedTuple):
    """A refused pod and the claims, or whatever else has a name, that it waits for."""

    rank: Rank
    claims: frozenset[ObjectKey]


class Waiting:
    """The pods that have no node yet, each in one place: ready, unfinished, parked, or delayed until an instant."""

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}  # every pod that is ready
        self._heap: list[tuple[Rank, str]] = []
        self._unfinished: dict[str, Rank] = {}  # asked about again after others, whatever their rank; the first first
        self._continued: dict[str, int] = {}  # how often each was left unfinished in a row
        self._is_others_turn = False
        self._parked: dict[str, Parked] = {}
        self._by_claim: dict[ObjectKey, set[str]] = {}
        self._delayed: dict[str, tuple[float, Rank]] = {}
        self._due: list[tuple[float, str]] = []
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ranks) + len(self._unfinished)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._ranks or id_ in self._parked or id_ in self._delayed

    @property
    def counts(self) -> dict[str, int]:
        """Pods by where they are, under kube-scheduler's names for its queues."""
        return {"active": len(self), "backoff": len(self._delayed), "unschedulable": len(self._parked)}

    def ready(self, id_: str, rank: Rank) -> None:
        """The pod is to be decided about, unless it has to wait for its time."""
        if id_ in self._delayed:
            self._delayed[id_] = (self._delayed[id_][0], rank)
            return
        if id_ in self._unfinished:
            self._unfinished[id_] = rank
            return
        self._unpark(id_)
        if self._ranks.get(id_) != rank:
            self._ranks[id_] = rank
            heapq.heappush(self._heap, (rank, id_))

    def go_on_later(self, id_: str, rank: Rank) -> int:
        """A budget ended before there was an answer: others come first, so that many such pods starve nobody.

        Returns how often that happened in a row.
        """
        times = self._continued.get(id_, 0) + 1
        self.drop(id_)
        self._unfinished[id_] = rank
        self._continued[id_] = times
        return times

    def take(self, most: int) -> list[str]:
        """The next pods, best rank first; they are nowhere until told what became of them.

        One place is for those who go on, and whatever others leave; where there is one place only, it is alternately.
        """
        reserved = 1 if self._unfinished and (most > 1 or self._is_others_turn) else 0
        self._is_others_turn = not self._is_others_turn
        taken: list[str] = []
        while self._heap and len(taken) < most - reserved:
            rank, id_ = heapq.heappop(self._heap)
            if self._ranks.get(id_) == rank:
                del self._ranks[id_]
                taken.append(id_)
        while self._unfinished and len(taken) < most:
            id_ = next(iter(self._unfinished))
            del self._unfinished[id_]
            taken.append(id_)
        return taken

    def park(self, id_: str, rank: Rank, claims: Iterable[ObjectKey]) -> None:
        """Refused: waits until something changed."""
        self._continued.pop(id_, None)
        self._parked[id_] = parked = Parked(rank, frozenset(claims))
        for key in parked.claims:
            self._by_claim.setdefault(key, set()).add(id_)

    def delay(self, id_: str, rank: Rank, now: float, *, is_futile: bool = False) -> float:
        """Failed: waits for a time, each time longer; much longer where it will fail again. Returns until when."""
        failures = self._failures[id_] = self._failures.get(id_, 0) + 1
        first, longest = (FIRST_FUTILE_DELAY, LONGEST_FUTILE_DELAY) if is_futile else (FIRST_DELAY, LONGEST_DELAY)
        until = now + min(first * float(1 << min(failures - 1, 16)), longest)
        self._delayed[id_] = (until, rank)
        heapq.heappush(self._due, (until, id_))
        return until

    def hold(self, id_: str, rank: Rank, until: float) -> None:
        """Not to be decided about before that time, through no fault of its own."""
        self.drop(id_)
        self._delayed[id_] = (until, rank)
        heapq.heappush(self._due, (until, id_))

    def take_all(self) -> list[str]:
        """Everybody who is ready; they are nowhere until told what became of them. Parked ones stay where they are."""
        taken = [*self._ranks, *self._unfinished]
        self._ranks.clear()
        self._unfinished.clear()
        self._heap.clear()
        return taken

    def lift(self, id_: str) -> None:
        """A parked pod is nowhere until told what became of it."""
        self._unpark(id_)

    @property
    def resting(self) -> Collection[str]:
        """Those who have to wait for their time."""
        return self._delayed.keys()

    def drop(self, id_: str) -> None:
        """The pod is gone or has a node."""
        self._ranks.pop(id_, None)
        self._unfinished.pop(id_, None)
        self._continued.pop(id_, None)
        self._delayed.pop(id_, None)
        self._failures.pop(id_, None)
        self._unpark(id_)

    def claim_changed(self, key: ObjectKey) -> int:
        """Whoever waits for this claim is asked about again. How many there were."""
        concerned = list(self._by_claim.get(key, ()))
        for id_ in concerned:
            self.ready(id_, self._parked[id_].rank)
        return len(concerned)

    def waiting_for(self, key: ObjectKey) -> Collection[str]:
        """The parked pods that wait for something of this name."""
        return self._by_claim.get(key, frozenset())

    def parked(self) -> Collection[str]:
        """All parked pods."""
        return self._parked.keys()

    def stir(self) -> int:
        """Something changed that could help anybody: all parked pods are asked about again. How many there were."""
        stirred = list(self._parked.items())
        for id_, parked in stirred:
            self.ready(id_, parked.rank)
        return len(stirred)

    def wake_due(self, now: float) -> float | None:
        """Delayed pods whose time has come are ready. When the next one's comes."""
        while self._due:
            until, id_ = self._due[0]
            held = self._delayed.get(id_)
            if held is None or held[0] != until:
                heapq.heappop(self._due)
            elif until > now:
                return until
            else:
                heapq.heappop(self._due)
                del self._delayed[id_]
                self.ready(id_, held[1])
        return None

    def _unpark(self, id_: str) -> None:
        parked = self._parked.pop(id_, None)
        if parked is None:
            return
        for key in parked.claims:
            users = self._by_claim[key]
            users.discard(id_)
            if not users:
                del self._by_claim[key]
