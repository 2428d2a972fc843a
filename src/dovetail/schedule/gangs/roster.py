"""Keeps the jobs of a world from one decision to the next: what did not change since costs next to nothing.

A job is made anew when its gang, or any of its pods, is another object than before, and is put back to where it stood
when a decision moved it. What all of them depend on, such as queues, is compared as a whole. With the memo off every
job is made anew; the plan is the same. Never decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from dovetail.model import gangs, policy, queueuse
from dovetail.model.gangs import GangKey
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import memory, steps
from dovetail.schedule.gangs.jobs import Job, State, job_of
from dovetail.schedule.queues.accounts import NO_QUEUE
from dovetail.schedule.queues.bills import Bills
from dovetail.schedule.yielding import idleness
from dovetail.world.world import World

NOT_REMADE: Final = "nothing makes its pod again (dovetail.dev/when-evicted: end would let it yield)"


class Roster:
    """The jobs of one world under one policy."""

    def __init__(self, policy_: policy.Policy) -> None:
        self._names = policy_.scheduler_names
        self._preemptible_below = policy_.batch.preemptible_below
        self._rules: object = None  # what said which queue a job uses
        self._jobs: dict[GangKey, Job] = {}
        self._foreign: dict[GangKey, gangs.Gang] = {}  # gangs of which no pod is ours to decide about
        self._reasons: dict[str, Reason] = {}  # by job, why it may start nothing
        self._idle: list[Job] = []
        self._shielded: list[tuple[Job, bool]] = []  # with whether they would yield otherwise
        self.bills = Bills()
        self.rounds = steps.Rounds()

    def jobs(self, world: World, known: Collection[str], aside: Collection[GangKey] = ()) -> dict[str, Job]:
        """Every job by id, in the world's order, but for those set aside; `known` are the queues in order."""
        rules = _rules(world)
        if self._rules != rules:
            self._rules = rules
            self._jobs.clear()
        doors = queueuse.Doors(world.queues, world.namespaces) if world.queues else None
        before, foreign = self._jobs, self._foreign
        self._jobs, self._foreign = {}, {}
        for key in world.gangs.keys():  # noqa: SIM118 (not a mapping)
            if key in aside:
                continue
            gang = world.gangs.known(key)
            job = before.get(key)
            if job is not None and job.gang is gang:
                if job.is_moved:
                    job.reset()
            elif foreign.get(key) is gang:
                job = None
            else:
                job = self._made(world, key, gang, doors=doors, known=known)
            if job is None:
                self._foreign[key] = gang
            else:
                self._jobs[key] = job
        self._find_idle(world)
        self._find_starting(world)
        self._find_shielded(world)
        return {job.id: job for job in self._jobs.values()}

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
            there = {job.id for job in self._jobs.values()}
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
        return [self._jobs[key] for key in keys if key in self._jobs]


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
