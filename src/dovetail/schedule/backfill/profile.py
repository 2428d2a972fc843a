"""Finds the first moment at which a gang fits: walks the ends of running work and tries the gang in what is free then.

Given a stage, whose running pods state how long they take, and what is promised to others meanwhile. Counting rules
out most moments; each that is left is tried with nodes and devices, in a trial. Never decides who is promised anything.
"""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from dovetail.model import claims, durations
from dovetail.schedule.backfill.runtimes import End, Runtimes
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.placement import Found
from dovetail.schedule.yielding.bounds import Bounds, Room
from dovetail.world.events import ObjectKey

NEVER: Final = "never, as things are"  # how it begins where a gang is in its own way
_THERE: Final = (State.ACTIVE, State.STARTING)


class Held(NamedTuple):
    """Room kept for a gang from an hour on."""

    job: Job
    start: datetime.datetime
    end: datetime.datetime | None  # None: nobody knows
    seats: Mapping[str, Found]  # by pod

    def overlaps(self, start: datetime.datetime, end: datetime.datetime | None) -> bool:
        """Whether it is kept at any time between these."""
        return (self.end is None or self.end > start) and (end is None or self.start < end)

    def on(self, node: str) -> list[str]:
        """The pods that are to be there."""
        return [id_ for id_, found in self.seats.items() if found.node == node]

    def nodes(self) -> set[str]:
        """Where it is kept."""
        return {found.node for found in self.seats.values()}


class Unknown(NamedTuple):
    """A gang whose start nobody can tell."""

    holders: int  # in its way, and nobody knows for how long; 0: it would not fit if everybody were gone
    why: str


class Leavers:
    """Pods on nodes by the hour at which they end, and those of which nobody knows it."""

    def __init__(self, ends: Sequence[tuple[datetime.datetime, str]], staying: Sequence[str]) -> None:
        self.ends = ends
        self.staying = staying
        self.has_nominated = False  # some only come once others left: they are not where a count would look for them
        self._hours = [at for at, _ in ends]
        self._ids = [id_ for _, id_ in ends]

    def moments(self) -> set[datetime.datetime]:
        """The hours at which somebody ends."""
        return set(self._hours)

    def by(self, at: datetime.datetime) -> list[str]:
        """Who has ended by then."""
        return self._ids[: bisect.bisect_right(self._hours, at)]

    def all(self) -> list[str]:
        """Everybody who ends."""
        return self._ids


class Profile:
    """What is free when, in one decision."""

    def __init__(self, stage: Stage, placer: Placer, times: Runtimes) -> None:
        self._stage = stage
        self._placer = placer
        self._times = times
        self._bound: tuple[list[tuple[datetime.datetime, str]], list[str]] | None = None
        self._by_node: dict[str, list[str]] | None = None
        self.ranks: dict[str, int] = {}  # by promised job, in which order the promises were made
        self.ahead: dict[str, set[str]] = {}  # by promised job, pods that started since and state more than is enforced

    def leavers(self, job: Job) -> Leavers:
        """Who ends when, as things stand now, for a job to be promised a start. What is bound is looked at once.

        A pod that runs ahead of the job's promise counts with the time after which it is ended, not with what it says:
        two such pods could otherwise each stand on the other's word.
        """
        found = self._leavers()
        ahead = self.ahead.get(job.id)
        if not ahead:
            return found
        sure = [(end.at, id_) for id_ in ahead if (end := self._end_of(id_, ahead)) is not None]
        plain = [one for one in found.ends if one[1] not in ahead]
        known = {id_ for _, id_ in sure}
        there = {id_ for _, id_ in found.ends} | set(found.staying)
        staying = [id_ for id_ in found.staying if id_ not in known]
        staying += [id_ for _, id_ in found.ends if id_ in ahead and id_ not in known]
        strict = Leavers(sorted((*plain, *(one for one in sure if one[1] in there))), staying)
        strict.has_nominated = found.has_nominated
        return strict

    def _end_of(self, id_: str, ahead: Collection[str]) -> End | None:
        stage = self._stage
        if not stage.knows(id_):
            return None
        is_new = id_ in stage.given
        return self._times.end_of(stage.job_of(id_), id_, is_new=is_new, is_ahead=id_ in ahead)

    def _leavers(self) -> Leavers:
        stage = self._stage
        if self._bound is None:
            there = [(job, id_) for job in stage.jobs.values() for id_ in job.pods if job.state[id_] in _THERE]
            self._bound = self._ended(one for one in there if one[1] not in stage.given)
        given = stage.given  # whoever moves begins anew
        came = self._ended([(one.job, id_) for id_, one in given.items()], is_new=True)
        ends = [one for one in self._bound[0] if one[1] not in given]
        found = Leavers(sorted((*ends, *came[0])), [*(id_ for id_ in self._bound[1] if id_ not in given), *came[1]])
        found.has_nominated = any(not one.is_now for one in stage.given.values())
        return found

    def _ended(
        self, pods_: Iterable[tuple[Job, str]], *, is_new: bool = False
    ) -> tuple[list[tuple[datetime.datetime, str]], list[str]]:
        ends: list[tuple[datetime.datetime, str]] = []
        staying: list[str] = []
        for job, id_ in pods_:
            end = self._times.end_of(job, id_, is_new=is_new)
            if end is None:
                staying.append(id_)
            else:
                ends.append((end.at, id_))
        return ends, staying

    def first_start(
        self, job: Job, ids: Sequence[str], kept: Sequence[Held], *, before: datetime.datetime | None = None
    ) -> Held | Unknown | None:
        """When and where these pods of a job start at the earliest; None if not before that hour.

        Tries a few moments, not all.
        """
        leavers = self.leavers(job)
        hours = leavers.moments() | {one.end for one in kept if one.end is not None and one.end > self._times.now}
        hours.add(self._times.now)  # some have ended, and are about to give back what they held
        moments = sorted(hour for hour in hours if before is None or hour < before)
        with self._stage.attempt(), self._stage.later():
            bounds = Bounds(self._stage, Room(self._stage), ids)

        def could_fit(index: int) -> bool:
            return leavers.has_nominated or bounds.could_fit(len(ids), leavers.by(moments[index]))

        low = _first(0, len(moments), could_fit)
        found: dict[int, Held] = {}

        def fits(index: int) -> bool:
            seats = self._tried(job, ids, moments[index], leavers.by(moments[index]), kept)
            if seats is not None:
                found[index] = Held(job, moments[index], self._end(job, moments[index]), seats)
            return seats is not None

        if (index := _first_by_leaps(low, len(moments), fits)) is not None:
            return found[index]
        return self._never(job, ids, leavers) if before is None else None

    def seats_at(self, job: Job, at: datetime.datetime, wanted: Mapping[str, str], kept: Sequence[Held]) -> Held | None:
        """The same pods on the same nodes at that hour, if they still fit there, on whichever devices."""
        nodes = set(wanted.values())
        with self.at(at, on=nodes, promised=job), self._keeping(kept, job, at):
            for id_, node in wanted.items():
                if node not in self._stage.world.nodes or self._stage.place(job, id_, within=(node,)) is not None:
                    return None
            return Held(job, at, self._end(job, at), self._given(wanted))

    def is_free(self, held: Held, kept: Sequence[Held]) -> bool:
        """Whether the very devices of a promise, and the room, can still be had at its hour."""
        at_hour = self.at(held.start, on=held.nodes(), promised=held.job)
        with at_hour, self._keeping(kept, held.job, held.start):
            self.seat(held, held.seats)
            return all(
                self._stage.world.sound(node, _taken(held, node)) is None
                for node in held.nodes()
                if node in self._stage.world.nodes
            )

    @contextmanager
    def at(self, hour: datetime.datetime, *, on: Collection[str], promised: Job) -> Iterator[None]:
        """The world, on these nodes, once those who end by then are gone. Everything done inside is taken back.

        Who runs ahead of the promised job is gone only if it is ended by then.
        """
        stage = self._stage
        ahead = self.ahead.get(promised.id, ())
        with stage.attempt(), stage.later():
            for job, id_ in self._there(on):
                end = self._times.end_of(job, id_, is_new=id_ in stage.given, is_ahead=id_ in ahead)
                if end is not None and end.at <= hour:
                    self._take_off(id_)
            yield

    def _there(self, nodes: Collection[str]) -> list[tuple[Job, str]]:
        stage = self._stage
        found = [(stage.job_of(id_), id_) for node in nodes for id_ in self.on_node(node) if id_ not in stage.given]
        given = [(one.job, id_) for id_, one in stage.given.items() if one.found.node in nodes]
        return [*found, *given]

    def on_node(self, node: str) -> Sequence[str]:
        """The pods of our jobs that were bound to a node when the decision began."""
        if self._by_node is None:
            self._by_node = {}
            for job in self._stage.jobs.values():
                for id_, state in job.state.items():
                    if state is State.ACTIVE:
                        self._by_node.setdefault(job.pods[id_].spec.node_name, []).append(id_)
        return self._by_node.get(node, ())

    def _tried(
        self, job: Job, ids: Sequence[str], at: datetime.datetime, gone: Sequence[str], kept: Sequence[Held]
    ) -> dict[str, Found] | None:
        with self._stage.attempt(), self._stage.later():
            for id_ in gone:
                self._take_off(id_)
            with self._keeping(kept, job, at):
                if self._placer.step(job, ids) is not None:
                    return None
                return self._given(ids)

    def _given(self, ids: Collection[str]) -> dict[str, Found]:
        return {id_: self._stage.given[id_].found for id_ in ids}

    def _node_of(self, id_: str) -> str:
        given = self._stage.given.get(id_)
        return given.found.node if given is not None else self._stage.node_of(id_)

    def _take_off(self, id_: str) -> None:
        world = self._stage.world
        if (assumed := world.assumed.get(id_)) is not None:
            world.forget(assumed.pod)
        else:
            world.vacate(id_)

    @contextmanager
    def _keeping(self, kept: Sequence[Held], job: Job, start: datetime.datetime) -> Iterator[None]:
        """The world with what is kept for others while the job runs from then on. Taken back with the attempt.

        To those who were promised a start before the job it counts with the time after which it is ended; those who
        were promised theirs since took its word for it.
        """
        said, sure = self._end(job, start), self._sure_end(job, start)
        rank = self.ranks.get(job.id)
        for one in kept:
            is_older = rank is None or self.ranks.get(one.job.id, rank) < rank
            if one.overlaps(start, sure if is_older else said):
                self.seat(one, one.seats)
        yield

    def seat(self, held: Held, ids: Collection[str]) -> None:
        """Puts these pods where room is kept for them."""
        for id_ in ids:
            if id_ not in self._stage.world.assumed:
                pod, found = held.job.pods[id_], held.seats[id_]
                self._stage.world.assume(pod, found.node, found.taken(pod))

    def _end(self, job: Job, start: datetime.datetime) -> datetime.datetime | None:
        seconds = self._times.longest(job)
        return None if seconds is None else durations.later(start, seconds)

    def _sure_end(self, job: Job, start: datetime.datetime) -> datetime.datetime | None:
        seconds = self._times.enforced(job)
        return None if seconds is None else durations.later(start, seconds)

    def _never(self, job: Job, ids: Sequence[str], leavers: Leavers) -> Unknown:
        """Whether it is others' silence that nobody knows when, or the job itself."""
        with self._stage.attempt(), self._stage.later():
            for id_ in (*leavers.all(), *leavers.staying):
                self._take_off(id_)
            refusal = self._placer.step(job, ids)
            nodes = set() if refusal is not None else {found.node for found in self._given(ids).values()}
        if refusal is not None:
            return Unknown(0, f"{NEVER}: {refusal.summary}")
        silent = {self._stage.job_of(id_).id for id_ in leavers.staying if self._node_of(id_) in nodes}
        return Unknown(len(silent), unbounded(len(silent)))


def _taken(held: Held, node: str) -> dict[ObjectKey, claims.AllocationResult]:
    return {key: one for id_ in held.on(node) for key, one in held.seats[id_].taken(held.job.pods[id_]).items()}


def unbounded(holders: int) -> str:
    """What is said where nobody knows when others end."""
    states = "holder states" if holders == 1 else "holders state"
    return f"unbounded: {holders} {states} no runtime"


def _first(low: int, high: int, is_so: Callable[[int], bool]) -> int:
    """The first index from which on it is so; the last one plus one if it never is."""
    while low < high:
        middle = (low + high) // 2
        if is_so(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _first_by_leaps(low: int, high: int, is_so: Callable[[int], bool]) -> int | None:
    """The same from a lower bound that is near, found by steps that double; None if it never is."""
    leap, below = 1, low
    index = low
    while index < high:
        if is_so(index):
            return _first(below, index, is_so)
        below = index + 1
        if index == high - 1:
            return None
        index = min(index + leap, high - 1)
        leap *= 2
    return None
