"""Preempts by priority alone, where no queue exists: node by node, with kube-scheduler's order of preference.

On each node all pods of lower priority are evicted; then those that leave the pod its room are restored, the most
important first. Of the nodes that remain, the one whose victims matter least is chosen. A pod without a controller
is a victim like any other. A gang uses the general search instead. Given a transaction and a placer; a scenario
that fails leaves no trace.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import pod_order
from dovetail.schedule.evict import eviction_rules
from dovetail.schedule.evict.claim_groups import ClaimGroups, VictimGroup
from dovetail.schedule.evict.scenario_bounds import NodeOffers, ScenarioBounds, nodes_of
from dovetail.schedule.evict.victim_order import EvictionCosts
from dovetail.schedule.evict.victim_search import VictimSearch
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job, SinglePodJob, State
from dovetail.schedule.gang.transaction import EvictedPod, Transaction
from dovetail.schedule.node.filters import relational
from dovetail.schedule.step_budget import SpentError

MOST_CANDIDATES: Final = 100  # nodes compared for one pod; kube-scheduler compares at least as many
_NO_VICTIMS: Final = Reason(
    code=ReasonCode.GANG_WAITS, detail="no pod of lower priority could make room for it"
)
# Added to each priority, so that two victims are worse than one even where priorities are negative.
_LEAST_PRIORITY: Final = 2**31


class Unit(NamedTuple):
    """Pods that are evicted together or not at all: one pod, a gang at its minimum, pods that share devices."""

    groups: tuple[VictimGroup, ...]
    priority: int  # the highest of its jobs
    started: datetime.datetime  # the first of its pods

    @property
    def pod_ids(self) -> tuple[str, ...]:
        """Its pods."""
        return tuple(pod_id for group in self.groups for pod_id in group.pod_ids)


class Candidate(NamedTuple):
    """A node with the pods that would have to go."""

    node: str
    victims: tuple[Unit, ...]

    @property
    def rank(self) -> tuple[int, int, int, float, str]:
        """Lower is better, in kube-scheduler's order.

        The highest priority among the victims, the sum of priorities, their number, the latest start of the most
        important; the name decides ties.
        """
        highest = max(unit.priority for unit in self.victims)
        priorities = [
            group.job.pods[pod_id].spec.priority or 0
            for unit in self.victims
            for group in unit.groups
            for pod_id in group.pod_ids
        ]
        total = sum(priority + _LEAST_PRIORITY for priority in priorities)
        started = min(unit.started for unit in self.victims if unit.priority == highest)
        return highest, total, len(priorities), -started.timestamp(), self.node


class CandidateNodes:
    """What a node offers pods of one kind."""

    __slots__ = ("candidate", "is_tried", "least", "node", "units")

    def __init__(self, node: str, least: int, units: Sequence[Unit]) -> None:
        self.node = node
        self.least = least  # by counting, a victim of at least this priority has to go
        self.units = units  # the most important first
        self.is_tried = False
        self.candidate: Candidate | None = None


class Preemptor:
    """Preemption on one transaction."""

    def __init__(self, transaction: Transaction, placer: Placer, *, spared: frozenset[str]) -> None:
        self._transaction = transaction
        self._placer = placer
        self._spared = spared
        self._offers = NodeOffers(transaction)
        self._claim_groups = ClaimGroups(transaction)
        self._costs = EvictionCosts(transaction)
        self._running: dict[str, list[str]] | None = None  # by node, pods that may be evicted
        self._nodes_by_priority: list[tuple[int, str]] = []  # the lowest priority on a node first
        self._units: dict[str, list[Unit]] = {}  # by node, the most important first
        self._dirty: set[str] = set()  # nodes where pods were placed since
        self._outlooks: dict[
            str, dict[Hashable, CandidateNodes | None]
        ] = {}  # by node and kind of job
        self.wake: datetime.datetime | None = None  # when a job first gets old enough

    def changed(self, job: Job) -> None:
        """The job was given nodes. They are looked at again at the next preemption."""
        self._dirty.update(nodes_of(self._transaction, job))

    def _forget(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._units.pop(node, None)
            self._outlooks.pop(node, None)
        self._offers.changed(nodes)

    def preempt(self, job: Job, kind: Hashable) -> Reason | None:
        """Evicts pods of lower priority so that the next pods of a job start; the reason if that is not possible.

        `kind` is equal for jobs that fare alike: what one learned about a node is good for the next.
        """
        if (reason := eviction_rules.may_evict(self._transaction, job)) is not None:
            self._wake_by(eviction_rules.may_evict_from(job))
            return reason
        lowest = self._transaction.world.lowest_priority(self._transaction.policy.scheduler_names)
        if lowest is None or lowest >= job.priority:
            return _NO_VICTIMS

        with self._transaction.after_evictions():
            self._forget(self._dirty)
            self._dirty.clear()
            if not isinstance(job, SinglePodJob):
                return self._preempt_for_gang(job)
            (pod_id,) = job.next_pods()
            candidate = self._confirmed(job, pod_id, kind)
            if candidate is None:
                return _NO_VICTIMS
            self._carry_out(job, pod_id, candidate)
            return None

    def _preempt_for_gang(self, job: Job) -> Reason | None:
        # No competitors to check for: all pending jobs come after this one, and its nominations are kept from them.
        solver = VictimSearch(
            self._transaction,
            self._placer,
            eviction_rules.Preemption(self._transaction),
            spared=self._spared,
            waiting={},
        )
        reason = solver.solve(job)
        self._wake_by(solver.wake)
        if reason is None:
            self._units.clear()
            self._outlooks.clear()
            self._offers = NodeOffers(self._transaction)
        return reason

    def _wake_by(self, time: datetime.datetime | None) -> None:
        if time is not None:
            self.wake = time if self.wake is None else min(self.wake, time)

    # Victims

    def _units_on(self, node: str) -> list[Unit]:
        """What may be evicted on a node, in the order in which it is restored."""
        units = self._units.get(node)
        if units is None:
            units = self._units[node] = sorted(self._grouped(node), key=_importance)
        return units

    def _grouped(self, node: str) -> list[Unit]:
        """The units of a node. Groups that overlap are one unit: each needs the others to go, too."""
        self._transaction.steps.spend(1 + len(self._pods_by_node().get(node, ())) // 4)
        units: dict[int, list[VictimGroup]] = {}
        unit_of: dict[str, int] = {}  # by pod
        for number, (job, pod_ids) in enumerate(self._single_victims(node)):
            groups = self._evicted_with(job, pod_ids)
            if groups is None:
                continue
            overlapping = {
                unit_of[pod_id] for group in groups for pod_id in group.pod_ids if pod_id in unit_of
            }
            for other_number in overlapping:
                groups = _joined(groups, units.pop(other_number))
            units[number] = groups
            for group in groups:
                unit_of.update(dict.fromkeys(group.pod_ids, number))
        return [_unit(groups) for groups in units.values()]

    def _evicted_with(self, job: Job, pod_ids: tuple[str, ...]) -> list[VictimGroup] | None:
        """These pods with all that have to go with them; None if one of them may not."""
        if not isinstance(job, SinglePodJob) or self._transaction.world.claims_used(
            job.pods[pod_ids[0]]
        ):
            return self._claim_groups.of(job, pod_ids, may_evict=self._may_evict)
        # Most pods are alone and share nothing.
        return [VictimGroup(job, pod_ids)] if self._may_evict(job, pod_ids) else None

    def _single_victims(self, node: str) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """The pods of a node one by one, but a gang that would fall below its minimum as a whole."""
        by_job: dict[str, tuple[Job, list[str]]] = {}
        for pod_id in self._pods_by_node().get(node, ()):
            job = self._transaction.job_of(pod_id)
            if job.state[pod_id] is State.ACTIVE:
                by_job.setdefault(job.id, (job, []))[1].append(pod_id)

        for job, pod_ids in by_job.values():
            goes_whole = not isinstance(job, SinglePodJob) and (
                job.gang.evicts_whole or not job.is_satisfied(job.root, pod_ids)
            )
            if goes_whole:
                yield job, job.active()
            else:
                yield from ((job, (pod_id,)) for pod_id in pod_ids)

    def _pods_by_node(self) -> dict[str, list[str]]:
        """By node, pods that may be evicted."""
        if self._running is not None:
            return self._running

        self._running = {}
        lowest: dict[str, int] = {}
        jobs = self._transaction.running_jobs()
        self._transaction.steps.spend(len(jobs) // 8)
        for job in jobs:
            for pod_id in job.active():
                node = self._transaction.node_of(pod_id)
                self._running.setdefault(node, []).append(pod_id)
                lowest[node] = min(lowest.get(node, job.priority), job.priority)
        self._nodes_by_priority = sorted((priority, node) for node, priority in lowest.items())
        return self._running

    def _nodes_in_order(self) -> list[tuple[int, str]]:
        """Nodes with the lowest priority that ran there when the decision began: a lower bound for their victims."""
        self._pods_by_node()
        return self._nodes_by_priority

    def _may_evict(self, job: Job, pod_ids: Collection[str]) -> bool:
        is_preemptible = job.is_preemptible or job.idle_since is not None
        return is_preemptible and self._spared.isdisjoint(pod_ids)

    # Nodes

    def _confirmed(self, job: Job, pod_id: str, kind: Hashable) -> Candidate | None:
        """The best node, checked once more where the answer was learned from an equal job."""
        best = self._best(job, pod_id, kind)
        with self._transaction.steps.lenient():
            holds = best is None or self._fits_without(job, pod_id, best.node, best.victims)
        if holds:
            return best
        # Devices that several nodes share were given away since: nothing that was learned is reliable.
        self._outlooks.clear()
        return self._best(job, pod_id, kind)

    def _best(self, job: Job, pod_id: str, kind: Hashable) -> Candidate | None:
        """The best node. Nodes come by their lowest priority, so the search ends where none can be better."""
        bounds = ScenarioBounds(self._transaction, self._offers, (pod_id,))
        is_tied = relational.filters_of(job.pods[pod_id], self._transaction.world) is not None
        best: Candidate | None = None
        count = 0
        for least, node in self._nodes_in_order():
            if least >= job.priority or count >= MOST_CANDIDATES:
                break
            if best is not None and least > best.rank[0]:
                break
            try:
                candidate = self._candidate(
                    job, pod_id, node, kind, bounds, best=best, is_tied=is_tied
                )
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
        pod_id: str,
        node: str,
        kind: Hashable,
        bounds: ScenarioBounds,
        *,
        best: Candidate | None,
        is_tied: bool,
    ) -> Candidate | None:
        """The victims on a node; None where it cannot hold the pod, or is certainly worse than the best so far."""
        outlooks = self._outlooks.setdefault(node, {})
        if kind not in outlooks:
            outlooks[kind] = self._outlook(job, node, bounds)
        outlook = outlooks[kind]
        if outlook is None:
            return None
        is_worse = best is not None and outlook.least > best.rank[0]
        if is_worse:
            return None

        if not outlook.is_tried:
            outlook.candidate = self._tried(job, pod_id, outlook, bounds, is_tied=is_tied)
            outlook.is_tried = True
        return outlook.candidate

    def _outlook(self, job: Job, node: str, bounds: ScenarioBounds) -> CandidateNodes | None:
        if node not in self._transaction.world.nodes:
            return None
        units = [unit for unit in self._units_on(node) if unit.priority < job.priority]
        least_important_first = units[::-1]
        index = bounds.ripe_after(node, [unit.groups for unit in least_important_first])
        if index is None:
            return None
        return CandidateNodes(node, least_important_first[index].priority, units)

    def _tried(
        self,
        job: Job,
        pod_id: str,
        outlook: CandidateNodes,
        bounds: ScenarioBounds,
        *,
        is_tied: bool,
    ) -> Candidate | None:
        """The victims on a node; None where the pod has no room even without all of them."""
        units, node = outlook.units, outlook.node
        if not is_tied:
            # A shortcut, exact for pods without affinities, whom fewer neighbours never hinder. The counts say which
            # units certainly have to go. If the pod fits without them, it fits next to each of the others, and
            # restoring one after the other would end with the same victims.
            groups_by_unit = [unit.groups for unit in units]
            indexes = bounds.must_go(node, groups_by_unit) or ()
            must_go = tuple(units[index] for index in indexes)
            if must_go and self._fits_without(job, pod_id, node, must_go):
                return Candidate(node, must_go)

        victims: list[Unit] = []
        with self._transaction.attempt():
            for unit in units:
                self._evict(job, unit)
            if not self._fits(job, pod_id, node):
                return None
            for unit in units:
                with self._transaction.attempt() as attempt:
                    if self._is_restored(unit) and self._fits(job, pod_id, node):
                        attempt.commit()
                        continue
                victims.append(unit)
        if not victims:
            return None
        return Candidate(node, tuple(victims))

    def _fits_without(self, job: Job, pod_id: str, node: str, victims: Sequence[Unit]) -> bool:
        with self._transaction.attempt():
            for unit in victims:
                self._evict(job, unit)
            return self._fits(job, pod_id, node)

    def _fits(self, job: Job, pod_id: str, node: str) -> bool:
        transaction = self._transaction
        with transaction.attempt():
            if transaction.place(job, pod_id, within={node}) is not None:
                return False
            return all(guard.still_holds(job) for guard in transaction.guards)

    def _is_restored(self, unit: Unit) -> bool:
        return all(
            self._transaction.restore(group.job, pod_id, is_untouched=True)
            for group in unit.groups
            for pod_id in group.pod_ids
        )

    def _evict(self, job: Job, unit: Unit) -> None:
        for victim in unit.groups:
            note = self._costs.note(victim.job)
            detail = f"priority {job.priority} comes before its {victim.job.priority}{note}"
            why = EvictedPod(victim.job, plan.Rule.PREEMPTED, job, detail)
            for pod_id in victim.pod_ids:
                self._transaction.evict_in_scenario(victim.job, pod_id, why)

    def _carry_out(self, job: Job, pod_id: str, candidate: Candidate) -> None:
        touched = {candidate.node}
        for unit in candidate.victims:
            for group in unit.groups:
                touched.update(map(self._transaction.node_of, group.job.active()))

        with self._transaction.steps.lenient(), self._transaction.attempt() as attempt:
            for unit in candidate.victims:
                self._evict(job, unit)
            refusal = self._transaction.place(job, pod_id, within={candidate.node})
            assert refusal is None, "the same scenario had another end"
            attempt.commit()
        self._forget(touched)


def _importance(unit: Unit) -> tuple[int, datetime.datetime, tuple[str, ...]]:
    """Lower is restored first."""
    return -unit.priority, unit.started, unit.pod_ids


def _joined(groups: Sequence[VictimGroup], more: Sequence[VictimGroup]) -> list[VictimGroup]:
    """Both together, one group per job."""
    by_job = {group.job.id: group for group in groups}
    for group in more:
        before = by_job.get(group.job.id, VictimGroup(group.job, ()))
        pod_ids = tuple(dict.fromkeys((*before.pod_ids, *group.pod_ids)))
        by_job[group.job.id] = VictimGroup(group.job, pod_ids)
    return list(by_job.values())


def _unit(groups: Sequence[VictimGroup]) -> Unit:
    starts = [
        pod_order.instant(group.job.pods[pod_id].status.start_time)
        for group in groups
        for pod_id in group.pod_ids
    ]
    priority = max(group.job.priority for group in groups)
    return Unit(tuple(groups), priority, min(starts))
