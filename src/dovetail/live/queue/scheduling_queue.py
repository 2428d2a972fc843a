"""The scheduling queue: which waiting pods the next cycle decides about.

Ready pods are taken by rank. A refused pod is parked until an event may help it (kube-scheduler's
unschedulable queue); one whose write failed backs off, longer each time; one whose search a budget ended
comes after the others. State in, state out; the time is given. Never decides where a pod goes.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dovetail.schedule.pod_order import Rank
from dovetail.world.events import ObjectKey

FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
FIRST_FUTILE_DELAY: Final = 60.0  # if the server will never take the pod's writes
LONGEST_FUTILE_DELAY: Final = 600.0


class Parked(NamedTuple):
    """A refused pod, and the names it waits for (`awaited_objects`): claims, volumes, groups."""

    rank: Rank
    names: frozenset[ObjectKey]


class SchedulingQueue:
    """The pods without a node, each in one place: ready, unfinished, parked, or backing off."""

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}  # every pod that is ready
        self._heap: list[tuple[Rank, str]] = []
        # Pods whose search a budget ended, oldest first: they come after others, whatever their rank.
        self._unfinished: dict[str, Rank] = {}
        self._continued: dict[str, int] = {}  # how often in a row each was left unfinished
        self._is_turn_of_unfinished = False
        self._parked: dict[str, Parked] = {}
        self._by_name: dict[ObjectKey, set[str]] = {}
        self._delayed: dict[str, tuple[float, Rank]] = {}
        self._due: list[tuple[float, str]] = []
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ranks) + len(self._unfinished)

    def __contains__(self, pod_id: str) -> bool:
        places = (self._ranks, self._unfinished, self._parked, self._delayed)
        return any(pod_id in place for place in places)

    @property
    def counts(self) -> dict[str, int]:
        """Pods by where they are, under kube-scheduler's names for its queues."""
        return {
            "active": len(self),
            "backoff": len(self._delayed),
            "unschedulable": len(self._parked),
        }

    def ready(self, pod_id: str, rank: Rank) -> None:
        """The pod waits for a decision, after its backoff if it has one."""
        if pod_id in self._delayed:
            self._delayed[pod_id] = (self._delayed[pod_id][0], rank)
            return
        if pod_id in self._unfinished:
            self._unfinished[pod_id] = rank
            return
        self._unpark(pod_id)
        if self._ranks.get(pod_id) != rank:
            self._ranks[pod_id] = rank
            heapq.heappush(self._heap, (rank, pod_id))

    def unfinished(self, pod_id: str, rank: Rank) -> int:
        """A budget ended the search: other pods come first, so that such pods do not starve them.

        Returns how often that happened in a row.
        """
        times = self._continued.get(pod_id, 0) + 1
        self.drop(pod_id)
        self._unfinished[pod_id] = rank
        self._continued[pod_id] = times
        return times

    def take(self, most: int) -> list[str]:
        """Takes the next pods out, best rank first. The caller puts each back where it belongs.

        Unfinished pods get one place, and those that ready pods leave. If there is only one place, ready
        and unfinished pods take turns.
        """
        has_turn = most > 1 or self._is_turn_of_unfinished
        reserved = 1 if self._unfinished and has_turn else 0
        self._is_turn_of_unfinished = not self._is_turn_of_unfinished
        pod_ids: list[str] = []
        while self._heap and len(pod_ids) < most - reserved:
            rank, pod_id = heapq.heappop(self._heap)
            if self._ranks.get(pod_id) == rank:
                del self._ranks[pod_id]
                pod_ids.append(pod_id)
        while self._unfinished and len(pod_ids) < most:
            pod_id = next(iter(self._unfinished))
            del self._unfinished[pod_id]
            pod_ids.append(pod_id)
        return pod_ids

    def park(self, pod_id: str, rank: Rank, names: Iterable[ObjectKey]) -> None:
        """The pod was refused: it waits for an event under one of these names."""
        self._continued.pop(pod_id, None)
        self._parked[pod_id] = parked = Parked(rank, frozenset(names))
        for key in parked.names:
            self._by_name.setdefault(key, set()).add(pod_id)

    def delay(self, pod_id: str, rank: Rank, now: float, *, is_futile: bool = False) -> float:
        """The pod failed: it backs off, longer each time, and much longer if it will fail again.

        Returns until when.
        """
        failures = self._failures[pod_id] = self._failures.get(pod_id, 0) + 1
        first, longest = FIRST_DELAY, LONGEST_DELAY
        if is_futile:
            first, longest = FIRST_FUTILE_DELAY, LONGEST_FUTILE_DELAY
        until = now + min(first * float(1 << min(failures - 1, 16)), longest)
        self._delayed[pod_id] = (until, rank)
        heapq.heappush(self._due, (until, pod_id))
        return until

    def hold(self, pod_id: str, rank: Rank, until: float) -> None:
        """The pod is not decided about before that time, although it did not fail."""
        self.drop(pod_id)
        self._delayed[pod_id] = (until, rank)
        heapq.heappush(self._due, (until, pod_id))

    def take_all(self) -> list[str]:
        """Takes all ready pods out; parked pods stay. The caller puts each back where it belongs."""
        pod_ids = [*self._ranks, *self._unfinished]
        self._ranks.clear()
        self._unfinished.clear()
        self._heap.clear()
        return pod_ids

    def take_parked(self, pod_id: str) -> None:
        """Takes a parked pod out. The caller puts it back where it belongs."""
        self._unpark(pod_id)

    @property
    def backing_off(self) -> Collection[str]:
        """The pods that back off."""
        return self._delayed.keys()

    def drop(self, pod_id: str) -> None:
        """The pod is gone or has a node."""
        self._ranks.pop(pod_id, None)
        self._unfinished.pop(pod_id, None)
        self._continued.pop(pod_id, None)
        self._delayed.pop(pod_id, None)
        self._failures.pop(pod_id, None)
        self._unpark(pod_id)

    def requeue(self, key: ObjectKey) -> int:
        """Pods parked under this name are ready again. Returns how many there were."""
        pod_ids = list(self._by_name.get(key, ()))
        for pod_id in pod_ids:
            self.ready(pod_id, self._parked[pod_id].rank)
        return len(pod_ids)

    def parked_under(self, key: ObjectKey) -> Collection[str]:
        """The pods parked under this name."""
        return self._by_name.get(key, frozenset())

    def parked(self) -> Collection[str]:
        """All parked pods."""
        return self._parked.keys()

    def requeue_all(self) -> int:
        """All parked pods are ready again. Returns how many there were."""
        stirred = list(self._parked.items())
        for pod_id, parked in stirred:
            self.ready(pod_id, parked.rank)
        return len(stirred)

    def end_backoffs(self, now: float) -> float | None:
        """Pods whose backoff is over are ready. Returns when the next backoff ends."""
        while self._due:
            until, pod_id = self._due[0]
            delayed = self._delayed.get(pod_id)
            if delayed is None or delayed[0] != until:
                heapq.heappop(self._due)  # an old entry: the pod was dropped or delayed again
            elif until > now:
                return until
            else:
                heapq.heappop(self._due)
                del self._delayed[pod_id]
                self.ready(pod_id, delayed[1])
        return None

    def _unpark(self, pod_id: str) -> None:
        parked = self._parked.pop(pod_id, None)
        if parked is None:
            return
        for key in parked.names:
            users = self._by_name[key]
            users.discard(pod_id)
            if not users:
                del self._by_name[key]
