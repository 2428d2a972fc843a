"""Finds the first time at which a gang fits: walks the ends of running work and tries the gang in what is free then.

Given a transaction whose running pods state their runtimes, and the reservations of other gangs. Counting rules out
most times; each one that is left is tried with nodes and devices, in an attempt that is undone. Never decides which
gang is promised a start.
"""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from dovetail.kubetypes.resource import claims
from dovetail.quantity import durations
from dovetail.schedule.backfill.runtimes import End, Runtimes
from dovetail.schedule.evict.scenario_bounds import NodeOffers, ScenarioBounds
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.node.find_node import NodePlacement
from dovetail.world.events import ObjectKey

NEVER: Final = (
    "never, as things are"  # opens the sentence where a gang would not fit an empty cluster
)
_ON_NODE: Final = (State.ACTIVE, State.STARTING)

_PodEnd = tuple[datetime.datetime, str]  # when a pod ends, and its id


class Reservation(NamedTuple):
    """Nodes and devices kept for a gang from its start on."""

    job: Job
    start: datetime.datetime
    end: datetime.datetime | None  # None: not known
    seats: Mapping[str, NodePlacement]  # by pod

    def overlaps(self, start: datetime.datetime, end: datetime.datetime | None) -> bool:
        """Whether it is in force at any time between these."""
        begins_before = end is None or self.start < end
        ends_after = self.end is None or self.end > start
        return begins_before and ends_after

    def on(self, node: str) -> list[str]:
        """The pods that will be on the node."""
        return [pod_id for pod_id, choice in self.seats.items() if choice.node == node]

    def nodes(self) -> set[str]:
        """Its nodes."""
        return {choice.node for choice in self.seats.values()}

    def allocations_on(self, node: str) -> dict[ObjectKey, claims.AllocationResult]:
        """The devices it reserves on a node."""
        allocations: dict[ObjectKey, claims.AllocationResult] = {}
        for pod_id in self.on(node):
            allocations |= self.seats[pod_id].allocations_to_assume(self.job.pods[pod_id])
        return allocations


class Unknown(NamedTuple):
    """A gang whose start cannot be predicted."""

    holders: int  # in its way without a stated runtime; 0: it would not fit an empty cluster
    why: str


class Departures:
    """The pods on nodes by the time at which they end, and those that state none."""

    def __init__(
        self, ends: Sequence[_PodEnd], staying: Sequence[str], *, has_nominated: bool
    ) -> None:
        self.ends = ends  # sorted
        self.staying = staying
        # Nominated pods arrive only once others have left: counting by node would look for them in the wrong place.
        self.has_nominated = has_nominated
        self._times = [time for time, _ in ends]
        self._pod_ids = [pod_id for _, pod_id in ends]

    def times(self) -> set[datetime.datetime]:
        """The times at which a pod ends."""
        return set(self._times)

    def by(self, time: datetime.datetime) -> list[str]:
        """The pods that have ended by then."""
        return self._pod_ids[: bisect.bisect_right(self._times, time)]

    def all(self) -> list[str]:
        """All pods that end."""
        return self._pod_ids


class Profile:
    """What is free when, in one decision."""

    def __init__(self, transaction: Transaction, placer: Placer, times: Runtimes) -> None:
        self._transaction = transaction
        self._placer = placer
        self._times = times
        self._bound_ends: tuple[list[_PodEnd], list[str]] | None = None
        self._by_node: dict[str, list[str]] | None = None
        self.ranks: dict[str, int] = {}  # by promised job, in which order the promises were made
        # By promised job, pods that started since and may run longer than they state.
        self.ahead: dict[str, set[str]] = {}

    # When pods end

    def departures(self, job: Job) -> Departures:
        """Which pods end when, seen by a job that is promised a start.

        A pod that runs ahead of the job's promise counts with the runtime that is enforced, not with the one it states:
        otherwise two such pods could each be let in on the other's word.
        """
        plain = self._departures()
        ahead = self.ahead.get(job.id)
        if not ahead:
            return plain

        ends = [entry for entry in plain.ends if entry[1] not in ahead]
        staying = [pod_id for pod_id in plain.staying if pod_id not in ahead]
        for pod_id in (*plain.staying, *plain.all()):
            if pod_id not in ahead:
                continue
            end = self._enforced_end(pod_id)
            if end is None:
                staying.append(pod_id)
            else:
                ends.append((end.at, pod_id))
        return Departures(sorted(ends), staying, has_nominated=plain.has_nominated)

    def _enforced_end(self, pod_id: str) -> End | None:
        transaction = self._transaction
        if not transaction.includes(pod_id):
            return None
        is_new = pod_id in transaction.placements
        return self._times.end_of(transaction.job_of(pod_id), pod_id, is_new=is_new, is_ahead=True)

    def _departures(self) -> Departures:
        """Which pods end when, by what they state. Pods bound before the decision are read once."""
        transaction = self._transaction
        if self._bound_ends is None:
            bound = (
                (job, pod_id)
                for job in transaction.jobs.values()
                for pod_id in job.pods
                if job.state[pod_id] in _ON_NODE and pod_id not in transaction.placements
            )
            self._bound_ends = self._ends_of(bound)

        placed = transaction.placements  # a pod that moves starts from the beginning
        new_ends, new_staying = self._ends_of(
            [(placement.job, pod_id) for pod_id, placement in placed.items()], is_new=True
        )
        bound_ends, bound_staying = self._bound_ends
        ends = [entry for entry in bound_ends if entry[1] not in placed]
        staying = [pod_id for pod_id in bound_staying if pod_id not in placed]
        return Departures(
            sorted((*ends, *new_ends)),
            [*staying, *new_staying],
            has_nominated=any(not placement.is_now for placement in placed.values()),
        )

    def _ends_of(
        self, members: Iterable[tuple[Job, str]], *, is_new: bool = False
    ) -> tuple[list[_PodEnd], list[str]]:
        ends: list[_PodEnd] = []
        staying: list[str] = []
        for job, pod_id in members:
            end = self._times.end_of(job, pod_id, is_new=is_new)
            if end is None:
                staying.append(pod_id)
            else:
                ends.append((end.at, pod_id))
        return ends, staying

    # When a gang starts

    def first_start(
        self,
        job: Job,
        pod_ids: Sequence[str],
        reservations: Sequence[Reservation],
        *,
        before: datetime.datetime | None = None,
    ) -> Reservation | Unknown | None:
        """When and where these pods of a job start; None if not before that time.

        Capacity changes for the better only when a pod or a reservation ends, so only those times are candidates. Among
        them it looks for the first in two steps. The count of free slots only grows with time: bisection finds the
        first candidate that it does not rule out, and that is exact. Whether the pods really fit need not grow with
        time, as other reservations begin in between; it is searched upwards by steps that double, then bisected. The
        result is a time at which they fit, nearly always the first, for a number of trials logarithmic in the
        candidates.
        """
        departures = self.departures(job)
        now = self._times.now
        candidates = departures.times()
        candidates |= {
            reservation.end
            for reservation in reservations
            if reservation.end is not None and reservation.end > now
        }
        candidates.add(now)  # some pods have ended and are about to release what they held
        times = sorted(time for time in candidates if before is None or time < before)
        with self._transaction.attempt(), self._transaction.after_evictions():
            bounds = ScenarioBounds(self._transaction, NodeOffers(self._transaction), pod_ids)

        def could_fit(index: int) -> bool:
            if departures.has_nominated:
                return True
            return bounds.could_fit(len(pod_ids), departures.by(times[index]))

        by_index: dict[int, Reservation] = {}

        def fits(index: int) -> bool:
            time = times[index]
            seats = self._tried(job, pod_ids, time, departures.by(time), reservations)
            if seats is not None:
                by_index[index] = Reservation(job, time, self._stated_end(job, time), seats)
            return seats is not None

        lowest = _bisect(0, len(times), could_fit)
        index = _gallop(lowest, len(times), fits)
        if index is not None:
            return by_index[index]
        return self._why_never(job, pod_ids, departures) if before is None else None

    def _tried(
        self,
        job: Job,
        pod_ids: Sequence[str],
        time: datetime.datetime,
        gone: Sequence[str],
        reservations: Sequence[Reservation],
    ) -> dict[str, NodePlacement] | None:
        """Where the pods would go at that time; None if they do not fit."""
        with self._transaction.attempt(), self._transaction.after_evictions():
            for pod_id in gone:
                self._remove(pod_id)
            self._assume_others(reservations, job, time)
            if self._placer.step(job, pod_ids) is not None:
                return None
            return self._choices(pod_ids)

    def _why_never(self, job: Job, pod_ids: Sequence[str], departures: Departures) -> Unknown:
        """Whether pods without a stated runtime are in the way, or the job would not fit an empty cluster."""
        nodes: set[str] = set()
        with self._transaction.attempt(), self._transaction.after_evictions():
            for pod_id in (*departures.all(), *departures.staying):
                self._remove(pod_id)
            refusal = self._placer.step(job, pod_ids)
            if refusal is None:
                nodes = {choice.node for choice in self._choices(pod_ids).values()}
        if refusal is not None:
            return Unknown(0, f"{NEVER}: {refusal.summary}")

        in_the_way = {
            self._transaction.job_of(pod_id).id
            for pod_id in departures.staying
            if self._node_of(pod_id) in nodes
        }
        return Unknown(len(in_the_way), unbounded(len(in_the_way)))

    def seats_at(
        self,
        job: Job,
        time: datetime.datetime,
        node_by_pod: Mapping[str, str],
        reservations: Sequence[Reservation],
    ) -> Reservation | None:
        """A reservation for these pods on these nodes at that time, on any devices; None if they do not fit."""
        transaction = self._transaction
        with self.at(time, on=set(node_by_pod.values()), promised=job):
            self._assume_others(reservations, job, time)
            for pod_id, node in node_by_pod.items():
                if node not in transaction.world.nodes:
                    return None
                if transaction.place(job, pod_id, within=(node,)) is not None:
                    return None
            return Reservation(job, time, self._stated_end(job, time), self._choices(node_by_pod))

    def is_free(self, reservation: Reservation, others: Sequence[Reservation]) -> bool:
        """Whether the very devices of a reservation, and the room, can still be had at its start."""
        world, nodes = self._transaction.world, reservation.nodes()
        with self.at(reservation.start, on=nodes, promised=reservation.job):
            self._assume_others(others, reservation.job, reservation.start)
            self.seat(reservation, reservation.seats)
            return all(
                world.binding_problem(node, reservation.allocations_on(node)) is None
                for node in nodes
                if node in world.nodes
            )

    # The World at another time

    @contextmanager
    def at(self, time: datetime.datetime, *, on: Collection[str], promised: Job) -> Iterator[None]:
        """The World, on these nodes, once the pods that end by then are gone. Undone at the end.

        A pod that runs ahead of the promised job is gone only if its enforced runtime is over.
        """
        transaction = self._transaction
        ahead = self.ahead.get(promised.id, ())
        with transaction.attempt(), transaction.after_evictions():
            for job, pod_id in self._pods_on(on):
                end = self._times.end_of(
                    job, pod_id, is_new=pod_id in transaction.placements, is_ahead=pod_id in ahead
                )
                if end is not None and end.at <= time:
                    self._remove(pod_id)
            yield

    def _pods_on(self, nodes: Collection[str]) -> list[tuple[Job, str]]:
        transaction = self._transaction
        members = [
            (transaction.job_of(pod_id), pod_id)
            for node in nodes
            for pod_id in self.on_node(node)
            if pod_id not in transaction.placements
        ]
        members += [
            (placement.job, pod_id)
            for pod_id, placement in transaction.placements.items()
            if placement.choice.node in nodes
        ]
        return members

    def on_node(self, node: str) -> Sequence[str]:
        """The pods of our jobs that were bound to a node when the decision began."""
        if self._by_node is None:
            self._by_node = {}
            for job in self._transaction.jobs.values():
                for pod_id, state in job.state.items():
                    if state is State.ACTIVE:
                        bound_to = job.pods[pod_id].spec.node_name
                        self._by_node.setdefault(bound_to, []).append(pod_id)
        return self._by_node.get(node, ())

    def _choices(self, pod_ids: Collection[str]) -> dict[str, NodePlacement]:
        return {pod_id: self._transaction.placements[pod_id].choice for pod_id in pod_ids}

    def _node_of(self, pod_id: str) -> str:
        placement = self._transaction.placements.get(pod_id)
        return placement.choice.node if placement is not None else self._transaction.node_of(pod_id)

    def _remove(self, pod_id: str) -> None:
        world = self._transaction.world
        assumed = world.assumed.get(pod_id)
        if assumed is not None:
            world.forget(assumed.pod)
        else:
            world.vacate(pod_id)

    def _assume_others(
        self, reservations: Sequence[Reservation], job: Job, start: datetime.datetime
    ) -> None:
        """Assumes the pods of the reservations that overlap with the job, started then. Undone with the attempt.

        A promise that is older than the job's may only rely on the job's enforced runtime; a younger one was made in
        the knowledge of the runtime the job states.
        """
        stated, enforced = self._stated_end(job, start), self._enforced_end_of_job(job, start)
        rank = self.ranks.get(job.id)
        for reservation in reservations:
            is_older = rank is None or self.ranks.get(reservation.job.id, rank) < rank
            if reservation.overlaps(start, enforced if is_older else stated):
                self.seat(reservation, reservation.seats)

    def seat(self, reservation: Reservation, pod_ids: Collection[str]) -> None:
        """Assumes these pods of a reservation on their nodes and devices."""
        world = self._transaction.world
        for pod_id in pod_ids:
            if pod_id not in world.assumed:
                pod, choice = reservation.job.pods[pod_id], reservation.seats[pod_id]
                world.assume(pod, choice.node, choice.allocations_to_assume(pod))

    def _stated_end(self, job: Job, start: datetime.datetime) -> datetime.datetime | None:
        seconds = self._times.longest(job)
        return None if seconds is None else durations.later(start, seconds)

    def _enforced_end_of_job(self, job: Job, start: datetime.datetime) -> datetime.datetime | None:
        seconds = self._times.enforced(job)
        return None if seconds is None else durations.later(start, seconds)


def unbounded(holders: int) -> str:
    """The sentence where pods in the way state no runtime."""
    states = "holder states" if holders == 1 else "holders state"
    return f"unbounded: {holders} {states} no runtime"


def _bisect(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first index from which on the condition holds; `high` if it never does."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _gallop(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The same where the answer is near `low`: by steps that double, then bisected; None if it never holds."""
    step, below = 1, low
    index = low
    while index < high:
        if holds(index):
            return _bisect(below, index, holds)
        below = index + 1
        if index == high - 1:
            return None
        index = min(index + step, high - 1)
        step *= 2
    return None
