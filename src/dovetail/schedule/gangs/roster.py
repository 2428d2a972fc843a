"""Keeps the jobs of a world from one decision to the next: what did not change since costs next to nothing.

A job is made anew when its gang, or any of its pods, is another object than before, as the log of gangs tells, and is
put back to where it stood when a decision moved it. What all of them depend on, such as queues, is compared as a whole.
With the memo off every job is made anew; the plan is the same. Never decides.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from dovetail.model import gangs, plan, policy, queueuse
from dovetail.model.gangs import GangKey
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import memory, steps
from dovetail.schedule.gangs.jobs import Job, Lone, State, job_of
from dovetail.schedule.gangs.window import SEEN, Crowd, Demand
from dovetail.schedule.queues.accounts import NO_QUEUE
from dovetail.schedule.queues.amounts import Amounts
from dovetail.schedule.queues.bills import Bills
from dovetail.schedule.steps import HAVING_TURNS, PLACES
from dovetail.schedule.yielding import idleness
from dovetail.world.world import World

NOT_REMADE: Final = "nothing makes its pod again (dovetail.dev/when-evicted: end would let it yield)"
MOST_MADE: Final = 2_048  # jobs of pods that wait alone made in one bounded decision


class Roster:
    """The jobs of one world under one policy."""

    def __init__(self, policy_: policy.Policy) -> None:
        self._names = policy_.scheduler_names
        self._preemptible_below = policy_.batch.preemptible_below
        self._order = tuple(PLACES[step] for step in policy_.steps if step in HAVING_TURNS)
        self._rules: object = None  # what said which queue a job uses
        self._read = -1  # position in the log of gangs
        self._jobs: dict[GangKey, Job | None] = {}  # None where no pod is ours to decide about
        self._others: dict[GangKey, Job] = {}  # all but pods that wait alone
        self._crowd = Crowd()
        self._demand = Demand()
        self._to_make: dict[GangKey, None] = {}  # pods that wait alone whose turn to be made a job has not come
        self._left_unmade: dict[GangKey, None] = {}  # set aside when they were to be made
        self._seen: dict[str, Job] = {}  # in the last decision
        self._reasons: dict[str, Reason] = {}  # by job, why it may start nothing
        self._idle: list[Job] = []
        self._shielded: list[tuple[Job, bool]] = []  # with whether they would yield otherwise
        self.bills = Bills()
        self.rounds = steps.Rounds()

    def jobs(
        self,
        world: World,
        known: Collection[str],
        aside: Collection[GangKey] = (),
        *,
        among: Collection[str] | None = None,
        is_bounded: bool = False,
    ) -> dict[str, Job]:
        """Every job by id, in the world's order, but for those set aside; `known` are the queues in order.

        A bounded decision sees not all of very many pods that wait alone.
        """
        for job in self._seen.values():
            if job.is_moved:
                job.reset()
        try:
            wanted = among if among is not None and len(among) <= SEEN else ()
            self._bring_up(world, known, aside, wanted=wanted if is_bounded else None)
        except BaseException:
            self._read = -1  # what was being made is not lost
            raise
        self._find_idle(world)
        self._find_starting(world)
        self._find_shielded(world)
        if is_bounded and len(self._crowd) > SEEN:
            self._seen = self._window(world, among)
        else:
            self._seen = {job.id: job for job in self._jobs.values() if job is not None}
        for left_out in filter(None, map(self._jobs.get, aside)):
            self._seen.pop(left_out.id, None)
            for step in self._order:
                self.rounds.look(left_out, step)
        return self._seen

    # Who is not seen

    def lacks(self, step: policy.Step) -> bool:
        """Whether anybody who is not seen in this decision had no turn in a step of this round."""
        if self._to_make:
            return True
        is_whole = len(self._seen) >= len(self._others) + len(self._crowd)
        return not is_whole and self._crowd.lacks(self.rounds, PLACES[step], self._seen.keys())

    def unseen(self) -> Counter[str]:
        """By queue, how many pods that wait alone are not seen."""
        if len(self._seen) >= len(self._others) + len(self._crowd):
            return Counter()
        counts = self._crowd.counts()
        counts.subtract(Counter(job.queue for job in self._seen.values() if job.id in self._crowd.jobs))
        return counts

    def note_asked(self, job: Job, cost: Amounts | None) -> None:
        """What a pod that waits alone asks for, found out when it was seen; None where that counts for nothing."""
        if job.id in self._crowd.jobs:
            if cost is None:
                self._demand.drop(job.id)
            else:
                self._demand.put(job.id, job.queue, cost)

    def asked_unseen(self) -> Iterator[tuple[str, Amounts, int]]:
        """By queue, what those ask for who were seen before and are not now, and how often."""
        if len(self._seen) < len(self._others) + len(self._crowd):
            yield from self._demand.beside(self._seen)

    def _window(self, world: World, among: Collection[str] | None) -> dict[str, Job]:
        """All who run or are part of something, those that have to be seen, and some of the crowd."""
        ids = {*world.assumed, *world.crowd.expected()}
        if among is not None and len(among) <= SEEN:
            ids.update(among)
        needed = [job.id for job in self._with_pods(world, dict.fromkeys(sorted(ids)))]
        needed += [str(ref) for ref in world.promises]
        seen: dict[str, Job] = {job.id: job for job in self._others.values()}
        seen.update((id_, self._crowd.jobs[id_]) for id_ in needed if id_ in self._crowd.jobs)
        seen.update((job.id, job) for job in self._crowd.window(self.rounds, self._order))
        return seen

    # What changed

    def _bring_up(
        self, world: World, known: Collection[str], aside: Collection[GangKey], *, wanted: Collection[str] | None
    ) -> None:
        """Makes jobs of what is new or another.

        A bounded decision, which wants these pods, leaves others that wait alone to the next if they are many.
        """
        rules = _rules(world)
        noted = world.gangs.log.since(self._read)
        if self._rules != rules or noted is None:
            noted = self._all_anew(world, aside, is_other=self._rules != rules)
            self._rules = rules
        self._read = world.gangs.log.end
        changed, self._left_unmade = self._left_unmade, {}
        for key, is_gone in noted:
            self._to_make.pop(key, None)
            if is_gone:
                self._forget(key)
                changed.pop(key, None)
            elif key in world.gangs.keys():  # noqa: SIM118 (not a mapping)
                self._jobs.setdefault(key, None)  # keeps the world's order
                changed[key] = None
        doors = queueuse.Doors(world.queues, world.namespaces) if world.queues else None
        for key in changed:
            if key in aside:
                self._forget(key, is_kept=True)
                self._left_unmade[key] = None
            elif wanted is not None and self._waits_alone(world, key):
                if self._jobs[key] is not None:
                    self._forget(key, is_kept=True)
                self._to_make[key] = None
            else:
                self._take_in(key, self._made(world, key, world.gangs.known(key), doors=doors, known=known))
        first = [member.gang for id_ in wanted or () if (member := world.gangs.of(id_)) is not None]
        rest = itertools.islice(self._to_make, MOST_MADE if wanted is not None else None)
        for key in dict.fromkeys([*(key for key in first if key in self._to_make), *rest]):
            del self._to_make[key]
            if key in aside:
                self._left_unmade[key] = None
                continue
            self._take_in(key, self._made(world, key, world.gangs.known(key), doors=doors, known=known))

    def _all_anew(self, world: World, aside: Collection[GangKey], *, is_other: bool) -> list[tuple[GangKey, bool]]:
        """Too much changed to tell what: every gang that is another than before."""
        before: dict[GangKey, Job | None] = {} if is_other else dict(self._jobs)
        keys = world.gangs.keys()
        for key in [key for key in self._jobs if is_other or key not in keys]:
            self._forget(key)
        self._jobs = {key: before.get(key) for key in keys}
        known = world.gangs.known
        others = [key for key in keys if key in aside or (job := before.get(key)) is None or job.gang is not known(key)]
        return [(key, False) for key in others]

    def _waits_alone(self, world: World, key: GangKey) -> bool:
        members = world.gangs.members(key)
        if len(members) != 1:
            return False
        (id_,) = members
        pod = world.pods[id_]
        is_expected = pod.status.nominated_node_name or plan.GangRef(*key) in world.promises
        return id_ not in world.assumed and not pod.spec.node_name and not is_expected

    def _take_in(self, key: GangKey, job: Job | None) -> None:
        self._forget(key, is_kept=True)
        self._jobs[key] = job
        if job is None:
            return
        if isinstance(job, Lone) and job.has_waiting:
            self._crowd.put(job)
        else:
            self._others[key] = job

    def _forget(self, key: GangKey, *, is_kept: bool = False) -> None:
        """A gang is no more, or is to be another."""
        job = self._jobs.get(key)
        if is_kept:
            if key in self._jobs:
                self._jobs[key] = None
        else:
            self._jobs.pop(key, None)
        if job is not None:
            self._others.pop(key, None)
            self._crowd.drop(job.id)
            self._demand.drop(job.id)
            self._seen.pop(job.id, None)

    def left_out(self, world: World, known: Collection[str], aside: Collection[GangKey]) -> Iterator[Job]:
        """The jobs set aside, as far as they can be made: their queues still pay for what they hold."""
        doors = queueuse.Doors(world.queues, world.namespaces) if world.queues and aside else None
        for key in aside:
            if not world.gangs.members(key):
                continue
            job: Job | None = None
            with contextlib.suppress(Exception):  # a fault of ours in making the job may be why it is set aside
                job = self._made(world, key, world.gangs.known(key), doors=doors, known=known)
            if job is not None:
                yield job

    def reasons(self) -> dict[str, Reason]:
        """By job, why it may start nothing whatever is free."""
        if len(self._reasons) > len(self._jobs):
            there = {job.id for job in self._jobs.values() if job is not None}
            self._reasons = {id_: reason for id_, reason in self._reasons.items() if id_ in there}
        return self._reasons

    def _made(
        self,
        world: World,
        key: GangKey,
        gang: gangs.Gang,
        *,
        doors: queueuse.Doors | None,
        known: Collection[str],
    ) -> Job | None:
        names = self._names
        members = {
            id_: (world.pods[id_], group)
            for id_, group in world.gangs.members(key).items()
            if not names or world.pods[id_].spec.scheduler_name in names
        }
        if not members:
            return None
        queue, reason = _queue(doors, gang, known)
        job = job_of(gang, members, queue=queue)
        if gang.is_preemptible is not None:
            job.is_preemptible = gang.is_preemptible
        else:
            job.is_preemptible = job.priority < self._preemptible_below
        if world.queues and job.is_preemptible and is_lost_by_yielding(gang):
            job.is_preemptible, job.fixed_by = False, NOT_REMADE
        if reason is not None:
            self._reasons[job.id] = reason
        else:
            self._reasons.pop(job.id, None)
        return job

    def _find_idle(self, world: World) -> None:
        for job in self._idle:
            job.idle_since = None
        self._idle = []
        for job in self._with_pods(world, world.idle):
            job.idle_since = idleness.since(world, job)
            self._idle.append(job)

    def _find_shielded(self, world: World) -> None:
        """What a disruption budget keeps from being evicted does not yield, and where there are queues counts so."""
        for job, is_preemptible in self._shielded:
            job.shield, job.is_preemptible = "", is_preemptible
            job.fixed_by = job.fixed_by if job.fixed_by == NOT_REMADE else ""
        self._shielded = []
        held = world.shields.held(world.running())
        for job in self._with_pods(world, held):
            name = min(held[id_] for id_ in job.pods if id_ in held)
            self._shielded.append((job, job.is_preemptible))
            job.shield = name
            if world.queues and job.is_preemptible:
                job.is_preemptible = False
                job.fixed_by = f"disruption budget {name} keeps it from being evicted"

    def _find_starting(self, world: World) -> None:
        """What was decided before, and is not confirmed yet, or not its claims."""
        for job in self._with_pods(world, world.assumed):
            for id_ in job.pods.keys() & world.assumed.keys():
                if job.state[id_] in (State.WAITING, State.ACTIVE):
                    job.mark(id_, State.STARTING)

    def _with_pods(self, world: World, ids: Mapping[str, object]) -> list[Job]:
        keys = dict.fromkeys(member.gang for id_ in ids if (member := world.gangs.of(id_)) is not None)
        return [job for key in keys if (job := self._jobs.get(key)) is not None]


def is_lost_by_yielding(gang: gangs.Gang) -> bool:
    """Whether nothing makes its pods again, and its owner did not say that this is acceptable."""
    return not gang.is_recreated and not gang.may_be_lost


def of(world: World, policy_: policy.Policy) -> Roster:
    """The roster of a world, kept for as long as it lives."""
    if not policy_.memo:
        return Roster(policy_)
    return _MEMORY.of(world, msgspec.json.encode(policy_), lambda: Roster(policy_))


_MEMORY: Final = memory.Memory[Roster]()


def _rules(world: World) -> object:
    """All that says which queue a workload may use."""
    spaces = {name: one.metadata.labels for name, one in world.namespaces.items()} if world.queues else None
    return {name: queue.spec for name, queue in world.queues.items()}, spaces


def _queue(doors: queueuse.Doors | None, gang: gangs.Gang, known: Collection[str]) -> tuple[str, Reason | None]:
    """The queue a gang uses, or is charged to; and why it may start nothing."""
    if doors is None:
        return NO_QUEUE, None
    found = doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
    if found.queue is not None:
        return found.queue, None
    if found.verdict is queueuse.Verdict.NONE:
        return NO_QUEUE, None
    charged = found.named if found.named in known else None
    return charged or NO_QUEUE, Reason(code=ReasonCode.QUEUE_UNUSABLE, detail=found.reason)
