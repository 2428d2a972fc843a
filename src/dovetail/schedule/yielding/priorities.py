"""Makes room by priority alone, where no queue exists: node by node and in the order of preference of kube-scheduler.

On each node all pods of lower priority are taken off; those beside whom the pod fits as well stay, the most important
first. Of the nodes that remain the one is chosen whose victims matter least. A pod without a controller yields as any
other. A gang asks through the general search instead. Given a stage and a placer; a scenario that fails leaves no
trace.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import order, ties
from dovetail.schedule.gangs.jobs import Job, Lone, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Stage, Yielded
from dovetail.schedule.steps import SpentError
from dovetail.schedule.yielding import rules
from dovetail.schedule.yielding.bounds import Bounds, Portion, Room, nodes_of
from dovetail.schedule.yielding.company import Company
from dovetail.schedule.yielding.losses import Losses
from dovetail.schedule.yielding.search import Solver

MOST_CANDIDATES: Final = 100  # nodes compared for one pod; kube-scheduler compares at least as many
_NOBODY: Final = Reason(code=ReasonCode.GANG_WAITS, detail="no pod of lower priority could make room for it")
_LEAST_PRIORITY: Final = 2**31  # added to each priority: two victims are worse than one, be their priority negative


class Unit(NamedTuple):
    """Pods that yield together or not at all: one pod, a gang at its minimum, pods that share devices."""

    portions: tuple[Portion, ...]
    priority: int  # the highest of its pods
    started: datetime.datetime  # the first of its pods

    @property
    def ids(self) -> tuple[str, ...]:
        """Its pods."""
        return tuple(id_ for portion in self.portions for id_ in portion.ids)


class Candidate(NamedTuple):
    """A node with the pods that would have to go."""

    node: str
    victims: tuple[Unit, ...]

    @property
    def rank(self) -> tuple[int, int, int, float, str]:
        """Lower is better: the highest priority, their sum, the count, the latest start of the most important."""
        highest = max(unit.priority for unit in self.victims)
        pods = [(portion.job, id_) for unit in self.victims for portion in unit.portions for id_ in portion.ids]
        total = sum((job.pods[id_].spec.priority or 0) + _LEAST_PRIORITY for job, id_ in pods)
        started = min(unit.started for unit in self.victims if unit.priority == highest)
        return highest, total, len(pods), -started.timestamp(), self.node


class Outlook:
    """What a node promises pods of one kind."""

    __slots__ = ("candidate", "is_tried", "least", "node", "units")

    def __init__(self, node: str, least: int, units: Sequence[Unit]) -> None:
        self.node = node
        self.least = least  # the priority that has to yield at least, by what is counted
        self.units = units  # the most important first
        self.is_tried = False
        self.candidate: Candidate | None = None


class Preemptor:
    """Preemption on one stage."""

    def __init__(self, stage: Stage, placer: Placer, *, spared: frozenset[str]) -> None:
        self._stage = stage
        self._placer = placer
        self._spared = spared
        self._room = Room(stage)
        self._company = Company(stage)
        self._losses = Losses(stage)
        self._running: dict[str, list[str]] | None = None  # by node, pods that may have to yield
        self._order: list[tuple[int, str]] = []  # the lowest priority on a node, and the node
        self._units: dict[str, list[Unit]] = {}  # by node, the most important first
        self._dirty: set[str] = set()  # nodes that somebody was given since
        self._outlooks: dict[str, dict[Hashable, Outlook | None]] = {}  # by node and likeness of who asks
        self.wake: datetime.datetime | None = None  # when a job may next do what it was too young for

    def changed(self, job: Job) -> None:
        """The job was given nodes."""
        self._dirty.update(nodes_of(self._stage, job))  # looked at again once somebody asks

    def _forget(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._units.pop(node, None)
            self._outlooks.pop(node, None)
        self._room.changed(nodes)

    def preempt(self, job: Job, kind: Hashable) -> Reason | None:
        """Makes less important pods yield so that the next pods of a job start; why not, if that cannot be.

        `kind` is equal for jobs that fare alike: what one learned about a node is good for the next.
        """
        if (reason := rules.may_evict(self._stage, job)) is not None:
            self._wake_by(rules.may_evict_from(job))
            return reason
        lowest = self._stage.world.lowest_priority(self._stage.policy.scheduler_names)
        if lowest is None or lowest >= job.priority:
            return _NOBODY
        with self._stage.later():
            self._forget(self._dirty)
            self._dirty.clear()
            if not isinstance(job, Lone):
                return self._gang(job)
            (id_,) = job.next_pods()
            best = self._best(job, id_, kind)
            with self._stage.steps.lenient():
                is_so = best is None or self._does(job, id_, best.node, best.victims)
            if not is_so:
                self._outlooks.clear()  # devices that several nodes share are given away since
                best = self._best(job, id_, kind)
            if best is None:
                return _NOBODY
            self._carry_out(job, id_, best)
            return None

    def _gang(self, job: Job) -> Reason | None:
        solver = Solver(
            self._stage, self._placer, rules.Preemption(self._stage), spared=self._spared, waiting={}
        )  # its turn came before all who wait after it, and what it is nominated for is kept from them
        reason = solver.solve(job)
        self._wake_by(solver.wake)
        if reason is None:
            self._units.clear()
            self._outlooks.clear()
            self._room = Room(self._stage)
        return reason

    def _wake_by(self, moment: datetime.datetime | None) -> None:
        if moment is not None:
            self.wake = moment if self.wake is None else min(self.wake, moment)

    # Who may have to go

    def _on(self, node: str) -> list[Unit]:
        """Those who may have to yield on a node, in the order in which they are let stay."""
        known = self._units.get(node)
        if known is None:
            known = self._units[node] = sorted(self._grouped(node), key=_importance)
        return known

    def _grouped(self, node: str) -> list[Unit]:
        self._stage.steps.spend(1 + len(self._by_node().get(node, ())) // 4)
        groups: dict[int, dict[str, tuple[Job, tuple[str, ...]]]] = {}
        group_of: dict[str, int] = {}
        for number, (job, ids) in enumerate(self._asked_singly(node)):
            together: Mapping[str, tuple[Job, tuple[str, ...]]] | None = {job.id: (job, ids)}
            if not isinstance(job, Lone) or self._stage.world.claims_used(job.pods[ids[0]]):
                together = self._company.of(job, ids, may=self._may_go)
            elif not self._may_go(job, ids):  # as most pods, it shares nothing
                together = None
            if together is None:
                continue
            merged = dict(together)
            going = [id_ for _, listed in together.values() for id_ in listed]
            for other in {group_of[id_] for id_ in going if id_ in group_of}:
                for key, (owner, listed) in groups.pop(other).items():
                    before = merged[key][1] if key in merged else ()
                    merged[key] = owner, tuple(dict.fromkeys((*before, *listed)))
            groups[number] = merged
            for _, listed in merged.values():
                group_of.update(dict.fromkeys(listed, number))
        return [_unit([Portion(*entry) for entry in group.values()]) for group in groups.values()]

    def _asked_singly(self, node: str) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """Pods of a node one by one, but a gang that would fall below its minimum as a whole."""
        by_job: dict[str, tuple[Job, list[str]]] = {}
        for id_ in self._by_node().get(node, ()):
            job = self._stage.job_of(id_)
            if job.state[id_] is State.ACTIVE:
                by_job.setdefault(job.id, (job, []))[1].append(id_)
        for job, ids in by_job.values():
            if not isinstance(job, Lone) and (job.gang.evicts_whole or not job.is_satisfied(job.root, ids)):
                yield job, job.active()
            else:
                yield from ((job, (id_,)) for id_ in ids)

    def _by_node(self) -> dict[str, list[str]]:
        """By node, pods that may have to yield."""
        if self._running is None:
            self._running = {}
            lowest: dict[str, int] = {}
            jobs = self._stage.running_jobs()
            self._stage.steps.spend(len(jobs) // 8)
            for job in jobs:
                for id_ in job.active():
                    node = self._stage.node_of(id_)
                    self._running.setdefault(node, []).append(id_)
                    lowest[node] = min(lowest.get(node, job.priority), job.priority)
            self._order = sorted((priority, node) for node, priority in lowest.items())
        return self._running

    def _in_order(self) -> list[tuple[int, str]]:
        """Nodes with the lowest priority that ran there when the decision began: nobody less important yields there."""
        self._by_node()
        return self._order

    def _may_go(self, job: Job, ids: Collection[str]) -> bool:
        return (job.is_preemptible or job.idle_since is not None) and self._spared.isdisjoint(ids)

    # Where

    def _best(self, job: Job, id_: str, kind: Hashable) -> Candidate | None:
        """The best node; those whose victims would have to be more important anyway are not looked at."""
        bounds = Bounds(self._stage, self._room, (id_,))
        is_tied = ties.of(job.pods[id_], self._stage.world) is not None
        best: Candidate | None = None
        count = 0
        for least, node in self._in_order():
            if least >= job.priority or count >= MOST_CANDIDATES or (best is not None and least > best.rank[0]):
                break
            try:
                candidate = self._candidate(job, id_, node, kind, bounds, best=best, is_tied=is_tied)
            except SpentError:
                if best is None:
                    raise
                break  # the best so far will do
            if candidate is None:
                continue
            count += 1
            if best is None or candidate.rank < best.rank:
                best = candidate
        return best

    def _candidate(
        self,
        job: Job,
        id_: str,
        node: str,
        kind: Hashable,
        bounds: Bounds,
        *,
        best: Candidate | None,
        is_tied: bool,
    ) -> Candidate | None:
        """Who has to go on a node; None where that would not do, or is worse than the best so far."""
        known = self._outlooks.setdefault(node, {})
        if kind not in known:
            known[kind] = self._outlook(job, node, bounds)
        outlook = known[kind]
        if outlook is None or (best is not None and outlook.least > best.rank[0]):
            return None
        if not outlook.is_tried:
            outlook.candidate = self._tried(job, id_, outlook, bounds, is_tied=is_tied)
            outlook.is_tried = True
        return outlook.candidate

    def _outlook(self, job: Job, node: str, bounds: Bounds) -> Outlook | None:
        if node not in self._stage.world.nodes:
            return None
        units = [unit for unit in self._on(node) if unit.priority < job.priority]
        upwards = units[::-1]
        ripe = bounds.ripe_after(node, [unit.portions for unit in upwards])
        return Outlook(node, upwards[ripe].priority, units) if ripe is not None else None

    def _tried(self, job: Job, id_: str, outlook: Outlook, bounds: Bounds, *, is_tied: bool) -> Candidate | None:
        """Who has to go on a node; None where even without all of them there is no room."""
        units, node = outlook.units, outlook.node
        if not is_tied:
            # Fewer neighbours are never in the way then: where the pod fits once those are gone who cannot stay by what
            # is counted, it fits beside each of the others too, as one after the other would show.
            going = bounds.must_go(node, [unit.portions for unit in units]) or ()
            counted = tuple(units[place] for place in going)
            if counted and self._does(job, id_, node, counted):
                return Candidate(node, counted)
        victims: list[Unit] = []
        with self._stage.attempt():
            for unit in units:
                self._take_off(job, unit)
            if not self._fits(job, id_, node):
                return None
            for unit in units:
                with self._stage.attempt() as attempt:
                    if self._stays(unit) and self._fits(job, id_, node):
                        attempt.commit()
                        continue
                victims.append(unit)
        return Candidate(node, tuple(victims)) if victims else None

    def _does(self, job: Job, id_: str, node: str, victims: Sequence[Unit]) -> bool:
        """Whether the pod fits without these."""
        with self._stage.attempt():
            for unit in victims:
                self._take_off(job, unit)
            return self._fits(job, id_, node)

    def _fits(self, job: Job, id_: str, node: str) -> bool:
        stage = self._stage
        with stage.attempt():
            return stage.place(job, id_, within={node}) is None and all(one.stands(job) for one in stage.guards)

    def _stays(self, unit: Unit) -> bool:
        return all(
            self._stage.put_back(portion.job, id_, is_untouched=True)
            for portion in unit.portions
            for id_ in portion.ids
        )

    def _take_off(self, job: Job, unit: Unit) -> None:
        for portion in unit.portions:
            note = self._losses.note(portion.job)
            why = f"priority {job.priority} comes before its {portion.job.priority}{note}"
            for id_ in portion.ids:
                self._stage.take_off(portion.job, id_, Yielded(portion.job, plan.Rule.PREEMPTED, job, why))

    def _carry_out(self, job: Job, id_: str, chosen: Candidate) -> None:
        touched = {chosen.node}
        for unit in chosen.victims:
            for portion in unit.portions:
                touched.update(self._stage.node_of(one) for one in portion.job.active())
        with self._stage.steps.lenient(), self._stage.attempt() as attempt:
            for unit in chosen.victims:
                self._take_off(job, unit)
            refusal = self._stage.place(job, id_, within={chosen.node})
            assert refusal is None, "the same scenario had another end"
            attempt.commit()
        self._forget(touched)


def _importance(unit: Unit) -> tuple[int, datetime.datetime, tuple[str, ...]]:
    """Lower is let stay first."""
    return -unit.priority, unit.started, unit.ids


def _unit(portions: Sequence[Portion]) -> Unit:
    starts = [order.instant(one.job.pods[id_].status.start_time) for one in portions for id_ in one.ids]
    return Unit(tuple(portions), max(one.job.priority for one in portions), min(starts))
