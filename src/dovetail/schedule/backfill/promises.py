"""Decides who is promised a start, and keeps others from taking what is promised: backfill.

The first in line that find no room are promised the moment at which they will, with nodes and devices. Others may run
ahead if they end before that, or if what is promised still fits beside them. A promise once made is kept: it moves
later only for more important work, for a queue within its quota, or because nodes or stated runtimes did not hold; it
then says why. Given a stage and what was promised before. Never starts anybody.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from dovetail.model import durations, plan, pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.backfill.profile import NEVER, Held, Profile, Unknown
from dovetail.schedule.backfill.runtimes import LATE_SECONDS, Runtimes
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.placement import Found
from dovetail.world.events import pod_id


def begun(stage: Stage, placer: Placer) -> Promises | None:
    """The promises of a decision; None where nobody could be promised anything: no work states how long it takes."""
    if stage.now is None or stage.policy.batch.promises <= 0 or not _states_any(stage):
        return None
    return Promises(stage, placer, stage.now)


def added(refusal: plan.Refusal, promise: plan.Promise | None) -> plan.Refusal:
    """The refusal with what is promised to the pod all the same."""
    if promise is None or (promise.start is None and promise.moved_from is None and promise.cause.startswith(NEVER)):
        return refusal
    return msgspec.structs.replace(refusal, summary=f"{refusal.summary}; {_sentence(promise)}")


def _sentence(promise: plan.Promise) -> str:
    if promise.start is None and promise.moved_from is None:
        return f"its start is {promise.cause}"
    if promise.start is None:
        assert promise.moved_from is not None
        why = NEVER if promise.cause.startswith(NEVER) else promise.cause
        return f"its start is {why}, instead of {_stamp(promise.moved_from)}: {promise.lost_to}"
    if promise.moved_from is None:
        return f"starts by {_stamp(promise.start)}"
    return f"starts by {_stamp(promise.start)} instead of {_stamp(promise.moved_from)}: {promise.cause}"


def _stamp(moment: plan.Instant) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Promises:
    """What is promised, in one decision. A guard of its stage."""

    def __init__(self, stage: Stage, placer: Placer, now: plan.Instant) -> None:
        self._stage = stage
        self._now = now
        self._times = Runtimes(stage.accounts, now)
        self._profile = Profile(stage, placer, self._times)
        self._held: dict[str, Held] = {}  # by job
        self._unknown: dict[str, Unknown] = {}
        self._before: dict[str, plan.Promise] = {}
        self._lost: dict[str, plan.Promise] = {}  # before that: they have no hour, and are told why
        self._shut: set[str] = set()  # jobs whose queue takes no more
        self._ranks = self._profile.ranks  # of promises, those made first first
        self._made = 0  # to those first in line
        self._seen: dict[str, list[str]] = {}  # by node, who was given room there when promises were last looked at
        self._is_trying = False  # what is tried to find a promise, or to test one, is nobody's real start
        for ref, promise in stage.world.promises.items():
            job = stage.jobs.get(str(ref))
            if job is not None and _waits(job):
                if promise.start is None:
                    self._lost[job.id] = promise
                    continue
                self._before[job.id] = promise
                self._profile.ahead[job.id] = set(promise.ahead)
                self._ranks[job.id] = len(self._ranks)
        for id_, promise in sorted(self._before.items(), key=_hour):  # who starts earlier has less to choose from
            self._restore(stage.jobs[id_], promise)
        due = {
            id_: found.node for held in self._held.values() if held.start <= now for id_, found in held.seats.items()
        }
        stage.toward = {**due, **stage.toward}  # elsewhere it might be in the way of another promise

    def _restore(self, job: Job, promise: plan.Promise) -> None:
        """Keeps what was promised before, if it still can be had at that hour or by now."""
        assert promise.start is not None
        wanted = {seat.pod.uid: seat.node for seat in promise.seats if seat.pod.uid in job.pods}
        if len(wanted) < len(promise.seats) or set(wanted) != set(job.next_pods()):
            return
        with self._trying():
            found = self._profile.seats_at(job, max(promise.start, self._now), wanted, [*self._held.values()])
        if found is not None:
            self._held[job.id] = found

    # Asked while others are placed

    def allows(self, job: Job, pod: pods.Pod, found: Found) -> bool:
        """Whether the place may be taken now: everybody else still gets what was promised, at that time."""
        if self._is_trying:
            return True
        seconds = self._times.enforced(job)
        end = None if seconds is None else durations.later(self._now, seconds)
        near = [held for held in self._held.values() if held.on(found.node)]
        if near:
            self._refresh((found.node,))
            near = [self._held[held.job.id] for held in near]
        for held in near:
            seats = held.on(found.node)
            if held.job is job or not _is_open(held) or self._comes_before(job, held.job):
                continue
            if end is None or end > held.start:
                with self._trying():
                    if not self._survives(held, seats, pod, found):
                        return False
        self._note_ahead(job, pod)
        return True

    def kept_for(self, job: Job, node: str) -> Reason:
        """Who was promised a start on the node."""
        held = sorted((one for one in self._open() if one.job is not job and one.on(node)), key=lambda one: one.start)
        names = ", ".join(f"{one.job.id}, promised {_stamp(one.start)}" for one in held[:3])
        return Reason(code=ReasonCode.PROMISED, subject=names)

    def _note_ahead(self, job: Job, pod: pods.Pod) -> None:
        """Whoever starts while a promise stands counts, for that promise, with the time after which it is ended.

        On whichever node: a promise must not move to another one, and give up its own, on such a pod's word.
        """
        expected = self._times.expected(job)
        if expected is None or expected == self._times.enforced(job):
            return
        for held in self._held.values():
            if held.job is not job and not self._comes_before(job, held.job):
                self._profile.ahead.setdefault(held.job.id, set()).add(pod_id(pod))

    def stands(self, job: Job) -> bool:
        """Whether everybody a job does not come before still gets what was promised, as things now are."""
        stage = self._stage
        touched = {one.found.node for one in stage.given.values()}
        touched |= {why.job.pods[id_].spec.node_name for id_, why in stage.yielded.items()}
        self._refresh(touched)
        kept = [one for one in self._open() if one.job is not job and not self._comes_before(job, one.job)]
        with self._trying():
            for held in [one for one in kept if not touched.isdisjoint(one.nodes())]:
                if self._anew(held, [one for one in kept if one is not held]) is None:
                    return False
        return True

    @contextmanager
    def _trying(self) -> Iterator[None]:
        before, self._is_trying = self._is_trying, True
        try:
            with self._stage.steps.lenient():  # what was promised before is changed meanwhile
                yield
        finally:
            self._is_trying = before

    def _refresh(self, nodes: Iterable[str]) -> None:
        """Finds devices anew for promises on nodes where somebody was given room since: on others, at the same hour.

        Also where it was taken back since: what was found beside somebody who then did not come is not kept.
        """
        given: dict[str, list[str]] = {node: [] for node in nodes}
        for id_, one in self._stage.given.items():
            if one.found.node in given:
                given[one.found.node].append(id_)
        changed = {node for node, ids in given.items() if self._seen.get(node, []) != ids}
        if not changed:
            return
        self._seen |= given
        fixed = [held for held in self._open() if changed.isdisjoint(held.nodes())]
        with self._trying():
            for held in sorted((one for one in self._open() if one not in fixed), key=lambda one: one.start):
                # Whoever can stays where it is: of two that look for others at the same time one may find none.
                kept = held if self._profile.is_free(held, fixed) else self._anew(held, fixed) or held
                self._held[held.job.id] = kept
                fixed.append(kept)

    def _anew(self, held: Held, others: Sequence[Held]) -> Held | None:
        wanted = {id_: found.node for id_, found in held.seats.items()}
        return self._profile.seats_at(held.job, held.start, wanted, others)

    def _survives(self, held: Held, seats: Sequence[str], pod: pods.Pod, found: Found) -> bool:
        """Whether the promised pods of a node still fit there beside this one, on their devices or on others."""
        stage, world, node = self._stage, self._stage.world, found.node
        with self._profile.at(held.start, on=(node,), promised=held.job):
            every = dict(found.taken(pod))
            world.assume(pod, node, every)
            with world.trial():
                self._profile.seat(held, seats)
                for id_ in seats:
                    every |= held.seats[id_].taken(held.job.pods[id_])
                if world.sound(node, every) is None:
                    return True
            for other in self._open():  # on other devices it must not be in their way; on its own it is not
                if other is not held and other.overlaps(held.start, held.end):
                    self._profile.seat(other, other.on(node))
            return all(stage.place(held.job, id_, within=(node,)) is None for id_ in seats)

    def blocked(self, job: Job, ids: Sequence[str]) -> None:
        """A job whose turn it was found no room: is it promised a start."""
        is_full = self._made >= self._stage.policy.batch.promises
        if job.is_satisfied(job.root) or (is_full and job.id not in {**self._held, **self._before}):
            return
        self._made += 1
        self._promise(job, ids)

    def closed(self, job: Job) -> None:
        """A job may start nothing: what was promised is no longer kept."""
        self._held.pop(job.id, None)
        self._shut.add(job.id)

    def _promise(self, job: Job, ids: Sequence[str], *, is_last: bool = False) -> None:
        """The first start that moves nobody's promise but of those it comes before; nobody's at all if it is last."""
        # First, and with its own among them: what it falls back on must not be found for somebody else meanwhile.
        self._refresh({node for held in self._open() for node in held.nodes()})
        before = self._held.pop(job.id, None)
        kept = [one for one in self._open() if is_last or self._is_kept(one.job, job, is_lost=before is None)]
        with self._trying():
            found = self._profile.first_start(job, ids, kept, before=None if before is None else before.start)
            if isinstance(found, Unknown) and self._profile.ahead.pop(job.id, set()):
                # Lost for another cause, and those who started since do not say more: what they expect is all there is.
                found = self._profile.first_start(job, ids, kept)
        if isinstance(found, Unknown):
            self._unknown[job.id] = found
            return
        self._ranks.setdefault(job.id, len(self._ranks))
        if found is None:
            assert before is not None
            found = before
        self._held[job.id] = found
        for other in [one for one in self._open() if one is not found and one not in kept]:
            if self._held.get(other.job.id) is other and not self._stands(other):
                del self._held[other.job.id]
                self._promise(other.job, [*other.seats], is_last=True)

    def _open(self) -> list[Held]:
        """Promises to those who still wait: others were given room in this decision."""
        return [held for held in self._held.values() if _is_open(held)]

    def _is_kept(self, other: Job, job: Job, *, is_lost: bool) -> bool:
        """Whether a job leaves another its promise: unless it comes before it, or lost its own, made earlier."""
        if self._comes_before(job, other):
            return False
        if is_lost and job.id in self._before and other.id in self._before:
            return self._ranks[other.id] < self._ranks[job.id]
        return True

    def _stands(self, held: Held) -> bool:
        """Whether a promise can still be kept beside all others."""
        others = [one for one in self._open() if one is not held]
        with self._trying():
            found = self._anew(held, others)
            if found is not None and not self._profile.is_free(held, others):
                self._held[held.job.id] = found
        return found is not None

    def _comes_before(self, job: Job, other: Job) -> bool:
        """Whether a job may have what was promised to another: more important, or due to a queue within its quota."""
        if job.queue == other.queue:
            return job.priority > other.priority
        return self._is_within_quota(job) and not self._is_within_quota(other)

    def _is_within_quota(self, job: Job) -> bool:
        account = self._stage.accounts.by_name[job.queue]
        asked = job.asked()
        return all(
            one.charged.get(name, 0) + amount <= one.quota_of(name)
            for one in account.lineage()
            for name, amount in asked.items()
            if amount > 0
        )

    # What is told

    def told(self) -> tuple[plan.Promise, ...]:
        """Every promise, after everything else was decided; those that others made impossible are made anew."""
        nominated = [self._stage.jobs[id_] for id_ in {**self._held, **self._before}]
        for id_, held in [*self._held.items()]:
            if not _waits(held.job) or set(held.seats) != set(held.job.next_pods()):
                del self._held[id_]
        self._refresh({node for held in self._held.values() for node in held.nodes()})
        for id_ in [*self._held]:
            kept = self._held.get(id_)
            if kept is not None and not self._stands(kept):
                del self._held[id_]
                self._promise(kept.job, [*kept.seats])
        self._take_up_again()
        made = [*self._nominated(nominated)]
        made += [self._told(held) for held in sorted(self._held.values(), key=lambda one: self._ranks[one.job.id])]
        return (*made, *self._silent())

    def _silent(self) -> Iterator[plan.Promise]:
        """Those whose start nobody knows, and those who had an hour and have none."""
        for id_ in {**self._unknown, **self._before, **self._lost}:
            job = self._stage.jobs[id_]
            if id_ not in self._held and _waits(job):
                unknown, before, lost = self._unknown.get(id_), self._before.get(id_), self._lost.get(id_)
                made = plan.Promise(gang=_ref(job), cause="not known" if unknown is None else unknown.why)
                if before is not None:
                    made = msgspec.structs.replace(made, moved_from=before.start, lost_to=self._cause(job, before))
                elif lost is not None:
                    made = msgspec.structs.replace(made, moved_from=lost.moved_from, lost_to=lost.lost_to)
                yield made

    def _take_up_again(self) -> None:
        """Whoever gave way to somebody who then found room elsewhere has its old promise back, if it can be had."""
        for id_, promise in self._before.items():
            held = self._held.get(id_)
            assert promise.start is not None
            if held is not None and held.start > max(promise.start, self._now):
                del self._held[id_]
                self._restore(held.job, promise)
                self._held.setdefault(id_, held)

    def _nominated(self, jobs: Iterable[Job]) -> Iterator[plan.Promise]:
        """Those who had a promise and are to start once others left: nobody takes that from them meanwhile."""
        for job in jobs:
            found = {id_: self._stage.given[id_].found for id_, state in job.state.items() if state is State.NOMINATED}
            if found and not job.next_pods():
                held = Held(job, self._now, None, found)
                before = self._before.get(job.id)
                start = self._now if before is None or before.start is None else min(before.start, self._now)
                yield plan.Promise(gang=_ref(job), start=start, latest=self._now, seats=_seats(held))

    def wake_at(self) -> datetime.datetime | None:
        """The next hour at which somebody is to start; now, where that was found out too late for this decision."""
        for id_, held in self._held.items():
            before = self._before.get(id_)
            if held.start <= self._now and (before is None or before.start is None or before.start > self._now):
                return self._now  # once: then it is before
        hours = [
            hour for held in self._held.values() for hour in (held.start, durations.later(held.start, LATE_SECONDS))
        ]
        return min((hour for hour in hours if hour > self._now), default=None)

    def _told(self, held: Held) -> plan.Promise:
        before, lost = self._before.get(held.job.id), self._lost.get(held.job.id)
        made = plan.Promise(
            gang=_ref(held.job),
            start=held.start,
            latest=self._latest(held),
            seats=_seats(held),
            ahead=self._ahead_of(held.job),
        )
        if lost is not None and lost.moved_from is not None and _is_later(held.start, lost.moved_from):
            return _moved(made, lost.moved_from, lost.lost_to)
        if before is None or before.start is None:
            return made
        if _is_later(held.start, before.start):
            return _moved(made, before.start, self._cause(held.job, before))
        if before.start < held.start <= self._now:  # due: its hour stays what it was while the room is being cleared
            made = msgspec.structs.replace(made, start=before.start)
        return _moved(made, before.moved_from, before.cause)

    def _ahead_of(self, job: Job) -> tuple[str, ...]:
        """The pods that run ahead of a promise, without those that ended or were not given a node after all."""
        world, given = self._stage.world, self._stage.given
        noted = self._profile.ahead.get(job.id, ())
        return tuple(sorted(id_ for id_ in noted if id_ in given or id_ in world.running() or id_ in world.assumed))

    def _latest(self, held: Held) -> datetime.datetime | None:
        """The start, should everybody who is on its nodes take as long as they may."""
        latest = held.start
        for node in {found.node for found in held.seats.values()}:
            for id_ in self._profile.on_node(node):
                job = self._stage.job_of(id_)
                sooner, late = self._times.end_of(job, id_), self._times.end_of(job, id_, is_late=True)
                if sooner is not None and late is not None and sooner.at <= held.start:
                    latest = max(latest, late.at)
        return latest

    def _cause(self, job: Job, before: plan.Promise) -> str:
        """Why a promise is later than before, or gone."""
        if job.id in self._shut:
            return f"queue {job.queue} takes no more"
        nodes = set(before.nodes)
        if gone := sorted(nodes - self._stage.world.nodes.keys()):
            return f"node {gone[0]} is gone"
        if shut := sorted(node for node in nodes if self._stage.world.nodes[node].spec.unschedulable):
            return f"node {shut[0]} takes no more pods"
        if any(seat.pod.uid not in job.pods for seat in before.seats):
            return "its pods were made anew"
        for other in self._newcomers(job, nodes):
            if other.queue != job.queue:
                return f"queue {other.queue} is due what {other.id} takes"
            if other.priority > job.priority:
                return f"{other.id} of priority {other.priority} comes first"
        if (first := self._promised_first(job, nodes)) is not None:
            return f"{first.job.id}, promised before it, moved: {self._cause(first.job, self._before[first.job.id])}"
        for node in sorted(nodes):
            for id_ in self._profile.on_node(node):
                end = self._times.end_of(self._stage.job_of(id_), id_)
                if end is not None and end.is_unsure:
                    return f"{self._stage.job_of(id_).id} runs longer than it stated"
        return "less is free on its nodes than was stated"

    def _promised_first(self, job: Job, nodes: set[str]) -> Held | None:
        """Whoever was promised a start before this job and is now to have these nodes, later or instead of others."""
        rank = self._ranks[job.id]
        for held in self._held.values():
            if self._ranks.get(held.job.id, rank) < rank and not nodes.isdisjoint(held.nodes()):
                before = self._before[held.job.id]
                assert before.start is not None
                where = {seat.pod.uid: seat.node for seat in before.seats}
                has_moved = any(where.get(id_) != found.node for id_, found in held.seats.items())
                if has_moved or _is_later(held.start, before.start):
                    return held
        return None

    def _newcomers(self, job: Job, nodes: set[str]) -> Iterable[Job]:
        """Others that were given, or promised, room on these nodes in this decision, or hold it without having to."""
        for given in self._stage.given.values():
            if given.job is not job and given.found.node in nodes:
                yield given.job
        for held in self._held.values():
            if held.job is not job and nodes.intersection(found.node for found in held.seats.values()):
                yield held.job
        for node in sorted(nodes):
            for id_ in self._profile.on_node(node):
                yield self._stage.job_of(id_)


def _states_any(stage: Stage) -> bool:
    """Whether any work says how long it takes, or any queue how long it may."""
    if any(one.queue is not None and one.queue.spec.max_runtime_seconds for one in stage.accounts.by_name.values()):
        return True
    return any(job.gang.expected_runtime is not None or job.gang.max_runtime is not None for job in stage.jobs.values())


def _hour(entry: tuple[str, plan.Promise]) -> datetime.datetime:
    assert entry[1].start is not None
    return entry[1].start


def _is_open(held: Held) -> bool:
    return all(held.job.state[id_] is State.WAITING for id_ in held.seats)


def _waits(job: Job) -> bool:
    return bool(job.next_pods()) and not job.is_satisfied(job.root)


def _ref(job: Job) -> plan.GangRef:
    return plan.GangRef(job.gang.metadata.namespace, job.gang.metadata.name)


def _seats(held: Held) -> tuple[plan.Seat, ...]:
    return tuple(
        plan.Seat(pod=plan.pod_ref(held.job.pods[id_]), node=found.node, devices=_devices(held.job.pods[id_], found))
        for id_, found in held.seats.items()
    )


def _devices(pod: pods.Pod, found: Found) -> tuple[str, ...]:
    return tuple(
        f"{one.driver}/{one.pool}/{one.device}"
        for result in found.taken(pod).values()
        for one in result.devices.results
    )


def _moved(promise: plan.Promise, moved_from: datetime.datetime | None, cause: str) -> plan.Promise:
    return plan.Promise(
        gang=promise.gang,
        start=promise.start,
        latest=promise.latest,
        seats=promise.seats,
        moved_from=moved_from,
        cause=cause,
        ahead=promise.ahead,
    )


def _is_later(start: datetime.datetime, promised: datetime.datetime) -> bool:
    """Whether a start is later than it was promised, by more than the end of a pod takes to be seen."""
    return start > durations.later(promised, LATE_SECONDS)
