"""Finds the fewest pods to evict so that a job starts: tries scenarios until one fits and is fair.

Scenarios come from narrow to wide: where pods only move, what blocks one place for a slice of a GPU; victims that
share a node with the victim considered last, then all victims on the few nodes with the most free capacity, then all
victims. Within a scenario each victim stays where it was if its place is still free, else moves if the rule allows it,
and only then is lost. A gang is first tried as a whole, then grown by doubling, each size starting from the victims of
the size before. Given a transaction and the rules; a scenario that fails leaves no trace.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity import durations
from dovetail.schedule.evict import eviction_rules
from dovetail.schedule.evict.claim_groups import ClaimGroups, VictimGroup
from dovetail.schedule.evict.eviction_rules import Loss, Rules
from dovetail.schedule.evict.partition_repair import PartitionRepair
from dovetail.schedule.evict.scenario_bounds import NodeOffers, ScenarioBounds, nodes_of
from dovetail.schedule.evict.victim_order import EvictionCosts
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import EvictedPod, Transaction
from dovetail.schedule.queue import amounts, quota_check
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.queue_order import JobQueue, VictimOrder

MOST_NODES_BEYOND: Final = 8  # nodes tried beyond the fewest that could do
MOST_AT_ONCE: Final = 4  # scenarios for a gang as a whole
FREE_SLACK: Final = 2  # a slice may fit where by these counts half of it is free
MOST_SPARED: Final = 16  # victims that a scenario, once found, is tried without


class _Candidates:
    """Victim groups in their order, computed only when they are read, and remembered for the next reader."""

    def __init__(self, source: Iterator[VictimGroup]) -> None:
        self._source = source
        self._read: list[VictimGroup] = []

    def __iter__(self) -> Iterator[VictimGroup]:
        yield from self._read
        for group in self._source:
            self._read.append(group)
            yield group

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be evicted at all."""
        return next(iter(self), None) is None


class _Outcome(NamedTuple):
    """What became of the victims in a scenario that works."""

    unneeded: Sequence[VictimGroup]  # without whom it might work as well
    leaving: Sequence[VictimGroup]  # who do not stay on their node
    is_harmless: bool  # all of them stay or move, so it might work without evicting any


class VictimSearch:
    """Tries scenarios on one transaction, under one set of rules."""

    def __init__(
        self,
        transaction: Transaction,
        placer: Placer,
        rules: Rules,
        *,
        spared: frozenset[str],
        waiting: Mapping[str, Sequence[Job]],
    ) -> None:
        self._transaction = transaction
        self._placer = placer
        self._rules = rules
        self._spared = spared
        self._pending = waiting  # by queue
        self._offers = NodeOffers(transaction)
        self._costs = EvictionCosts(transaction)
        self._claim_groups = ClaimGroups(transaction)
        self._groups_by_job: dict[str, list[VictimGroup]] = {}  # considered so far, in order
        self._bundles: dict[tuple[str, ...], list[VictimGroup]] = {}  # by pods, who share devices
        self._repair_notes: Mapping[frozenset[str], str] = {}  # by pods moved for one place
        self.wake: datetime.datetime | None = None  # when a job first gets old enough

    def solve(self, job: Job) -> Reason | None:
        """Evicts pods so that the next pods of a job start; the reason if that is not possible."""
        pod_ids = job.next_pods()
        if (reason := eviction_rules.may_evict(self._transaction, job)) is not None:
            self._wake_by(eviction_rules.may_evict_from(job))
            return reason
        if (reason := self._rules.refusal(job)) is not None:
            return reason

        running_count = len(self._transaction.running_jobs())
        node_count = len(self._transaction.world.nodes)
        self._transaction.steps.spend((node_count + running_count + len(pod_ids)) // 8)
        bounds = ScenarioBounds(self._transaction, self._offers, pod_ids)
        self._repair_notes = {}
        if not bounds.could_ever_fit():
            return _waits("it has no room even if every preemptible pod were evicted")
        candidates = _Candidates(self._candidates(job))
        is_too_little = self._rules.must_move and not bounds.is_free_in_total()
        # The pods evicted so far may leave enough room for this job as well.
        has_evicted = bool(self._transaction.evictions)
        outcome = self._try(job, pod_ids, ()) if has_evicted and not is_too_little else None
        if outcome is not None and candidates.is_empty:
            # A job that may evict nothing has no claim to room that was freed for others.
            return _waits("it has room once the pods that are being evicted are gone")

        if outcome is not None:
            victims: tuple[VictimGroup, ...] | None = self._carry_out(job, pod_ids, (), outcome)
        else:
            victims = self._repair_partitions(job, pod_ids, candidates, bounds)
            if victims is None and is_too_little:
                return _waits("the free capacity of all nodes together is too small for it")
            if victims is None:
                victims = self._find_victims(job, pod_ids, candidates, bounds)
        if victims is None:
            if candidates.is_empty:
                return _waits("no running pod may be evicted for it")
            return _waits("no fair set of evictions that makes room for it was found")

        self._offers.changed((*nodes_of(self._transaction, job), *self._nodes_touched(victims)))
        return None

    def _find_victims(
        self,
        job: Job,
        pod_ids: Sequence[str],
        candidates: _Candidates,
        bounds: ScenarioBounds,
    ) -> tuple[VictimGroup, ...] | None:
        """Tries a gang as a whole where one more pod fits on each of several nodes, else pod by pod, doubling.

        Doubling keeps the work within twice that of the last size, and a small size finds the victims that the larger
        ones start from.
        """
        if len(pod_ids) > 1:
            scenarios = _whole_gang_scenarios(candidates, bounds, len(pod_ids))
            first_scenarios = itertools.islice(scenarios, MOST_AT_ONCE)
            victims = self._search(job, pod_ids, first_scenarios, bounds, is_final=True)
            if victims is not None:
                return victims

        victims_so_far: tuple[VictimGroup, ...] = ()
        count = 1
        while True:
            is_final = count >= len(pod_ids)
            scenarios = self._scenarios(
                candidates, victims_so_far, bounds, min(count, len(pod_ids)), is_final=is_final
            )
            victims = self._search(job, pod_ids[:count], scenarios, bounds, is_final=is_final)
            if victims is None or is_final:
                return victims
            victims_so_far = victims
            count *= 2

    def _repair_partitions(
        self,
        job: Job,
        pod_ids: Sequence[str],
        candidates: _Candidates,
        bounds: ScenarioBounds,
    ) -> tuple[VictimGroup, ...] | None:
        """Moves the least that blocks a place for one slice of a GPU; None where that is not possible or not allowed.

        The counts of `bounds` are too strict for slices: what is free of a GPU is measured by its scarcest counter,
        what a slice takes by its largest share. So they only rule out clusters that are far too full.
        """
        if not self._rules.must_move or len(pod_ids) != 1:
            return None
        if not bounds.is_free_in_total(slack=FREE_SLACK):
            return None
        repair = PartitionRepair(self._transaction, self._offers, most=self._rules.most)
        places = repair.places_for(job, pod_ids[0])
        if not places:
            return None
        self._repair_notes = repair.notes
        scenarios = repair.scenarios(places, candidates)
        return self._search(job, pod_ids, scenarios, None, is_final=True)

    def _nodes_touched(self, victims: Sequence[VictimGroup]) -> list[str]:
        """The nodes these victims are on, and those they were given instead."""
        nodes: list[str] = []
        for victim in victims:
            nodes += _nodes(victim)
            nodes += nodes_of(self._transaction, victim.job)
        return nodes

    # Candidates

    def _candidates(self, job: Job) -> Iterator[VictimGroup]:
        """Every group of pods that may be evicted, in order."""
        transaction = self._transaction
        considered: dict[str, set[str]] = {}  # by job, pods offered or ruled out so far
        self._groups_by_job = {}
        self._bundles = {}
        allowed = list(self._rules.victims(job))
        allowed_ids = {victim.id for victim in allowed}

        def may_evict(victim: Job, pod_ids: tuple[str, ...]) -> bool:
            gone = considered.setdefault(victim.id, set())
            gone.update(pod_ids)
            if victim.id not in allowed_ids or not self._spared.isdisjoint(pod_ids):
                return False
            # Pods beyond the minimum may always go. Below it the job ends: it must have run for its minimum runtime,
            # and nothing of it may be left behind.
            if victim.is_satisfied(victim.root, gone):
                return True
            return not self._stays_in_part(victim, gone) and not self._is_too_young(job, victim)

        in_order = VictimOrder(
            transaction.accounts,
            allowed,
            cost=transaction.cost_of,
            toll=self._costs.toll,
            spend=transaction.steps.spend,
        )
        for victim, pod_ids in in_order:
            already = considered.get(victim.id, ())
            fresh = tuple(pod_id for pod_id in pod_ids if pod_id not in already)
            if not fresh:
                continue
            groups = self._claim_groups.of(victim, fresh, may_evict=may_evict)
            if groups is None:
                continue
            for group in groups:
                self._groups_by_job.setdefault(group.job.id, []).append(group)
                if len(groups) > 1:
                    self._bundles[group.pod_ids] = groups
            yield from groups

    def _completed(self, chosen: Sequence[VictimGroup]) -> Sequence[VictimGroup]:
        """The same victims with what their jobs lose before them, and with all that share devices with them.

        A job loses its minimum only after everything beyond it, and a shared claim frees its devices only without all
        of its users.
        """
        if not self._is_incomplete(chosen):
            return chosen

        completed: dict[tuple[str, ...], VictimGroup] = {}
        queue = list(chosen)
        while queue:
            victim = queue.pop(0)
            if victim.pod_ids in completed:
                continue
            completed[victim.pod_ids] = victim
            of_job = self._groups_by_job[victim.job.id]
            queue += of_job[: of_job.index(victim)]
            queue += self._bundles.get(victim.pod_ids, ())
        return list(completed.values())

    def _is_incomplete(self, chosen: Sequence[VictimGroup]) -> bool:
        """Whether other victims may have to go with these."""
        if self._bundles:
            return True
        return any(len(self._groups_by_job[victim.job.id]) > 1 for victim in chosen)

    def _stays_in_part(self, victim: Job, gone: set[str]) -> bool:
        """Whether some of its pods would remain: spared ones, or ones placed in this decision."""
        return not self._spared.isdisjoint(gone) or victim.has_placed(gone)

    def _is_too_young(self, job: Job, victim: Job) -> bool:
        min_runtime = self._rules.min_runtime(job, victim)
        seconds = eviction_rules.seconds_running(self._transaction, victim) if min_runtime else 0.0
        if seconds >= min_runtime:
            return False
        if self._transaction.now is not None:
            self._wake_by(durations.later(self._transaction.now, min_runtime - seconds))
        return True

    def _wake_by(self, time: datetime.datetime | None) -> None:
        """At that time the answer may change although nothing else does."""
        if time is not None:
            self.wake = time if self.wake is None else min(self.wake, time)

    # Scenarios

    def _scenarios(
        self,
        candidates: _Candidates,
        victims_so_far: tuple[VictimGroup, ...],
        bounds: ScenarioBounds,
        count: int,
        *,
        is_final: bool,
    ) -> Iterator[Sequence[VictimGroup]]:
        """Sets of victims, from narrow to wide. All of them include the victims of the size before."""
        if victims_so_far or not is_final:  # so few pods may fit without more evictions
            yield victims_so_far

        # Each new victim together with those before it on the same node, as soon as that could hold a pod, unless even
        # then not all pods would have a slot: for a gang that doubled, one more node is seldom enough.
        by_node: dict[str, list[VictimGroup]] = {}
        already_chosen = {id(victim) for victim in victims_so_far}
        gains = bounds.gains_after(victims_so_far)
        for newest in candidates:
            nodes = _nodes(newest)
            for node in nodes:
                by_node.setdefault(node, []).append(newest)
                gains.add(node, newest, is_spread=len(nodes) > 1)
            if id(newest) in already_chosen:
                continue
            for node in nodes:
                if not gains.is_ripe(node):
                    continue
                if gains.might_reach(count, node) or self._is_incomplete(by_node[node]):
                    yield _merged(victims_so_far, by_node[node])

        # Pods that need several nodes: all victims on the nodes with the most free capacity, one node more each time.
        all_victims = list(candidates)
        ranked_nodes = bounds.by_promise(by_node)
        fewest = min(count, len(ranked_nodes))
        most = min(len(ranked_nodes), count + MOST_NODES_BEYOND)
        for node_count in range(fewest, most + 1):
            self._transaction.steps.spend(len(all_victims) // 8)
            chosen_nodes = set(ranked_nodes[:node_count])
            on_nodes = [
                victim for victim in all_victims if not chosen_nodes.isdisjoint(_nodes(victim))
            ]
            yield _merged(victims_so_far, on_nodes)

        yield all_victims

    def _search(
        self,
        job: Job,
        pod_ids: Sequence[str],
        scenarios: Iterable[Sequence[VictimGroup]],
        bounds: ScenarioBounds | None,
        *,
        is_final: bool,
    ) -> tuple[VictimGroup, ...] | None:
        """The victims of the first scenario that works; carried out if it is for all pods of the step."""
        tried: set[frozenset[str]] = set()
        for chosen in map(self._completed, scenarios):
            self._transaction.steps.spend(1 + len(chosen) // 4)
            victim_ids = [pod_id for victim in chosen for pod_id in victim.pod_ids]
            key = frozenset(victim_ids)
            if key in tried or self._is_too_many(victim_ids):
                continue
            if is_final and not victim_ids:
                continue  # another action hands out capacity that is free already

            tried.add(key)
            if bounds is not None and not bounds.could_fit(len(pod_ids), victim_ids):
                continue
            outcome = self._try(job, pod_ids, chosen)
            if outcome is None:
                continue
            if not is_final:
                return tuple(chosen)

            if outcome.is_harmless:
                without_victims = self._try(job, pod_ids, ())
                if without_victims is not None:
                    return self._carry_out(job, pod_ids, (), without_victims)
            if self._is_settled(job, pod_ids, outcome):
                return self._carry_out(job, pod_ids, chosen, outcome)
        return None

    def _is_too_many(self, victim_ids: Sequence[str]) -> bool:
        return self._rules.most is not None and len(victim_ids) > self._rules.most

    def _carry_out(
        self,
        job: Job,
        pod_ids: Sequence[str],
        chosen: Sequence[VictimGroup],
        outcome: _Outcome,
    ) -> tuple[VictimGroup, ...]:
        """Spares victims without whom the scenario works as well, then commits it."""
        victims = list(chosen)
        for spare in self._last_first(outcome.unneeded[:MOST_SPARED]):
            bundle = self._bundles.get(spare.pod_ids, ())
            fewer = [victim for victim in victims if victim != spare and victim not in bundle]
            # Not where others of the list need the spared ones to go first.
            if not fewer or len(self._completed(fewer)) != len(fewer):
                continue
            without_spare = self._try(job, pod_ids, fewer)
            if without_spare is not None and self._is_settled(job, pod_ids, without_spare):
                victims = fewer

        committed = self._try(job, pod_ids, victims, is_committed=True)
        assert committed is not None, "the same scenario had another end"
        return tuple(victims)

    def _last_first(self, victims: Sequence[VictimGroup]) -> Iterator[VictimGroup]:
        """In their order, but within one job what it would lose last comes first."""
        by_job: dict[str, list[VictimGroup]] = {}
        for victim in victims:
            by_job.setdefault(victim.job.id, []).append(victim)
        for job_id, of_job in by_job.items():
            yield from sorted(of_job, key=self._groups_by_job[job_id].index, reverse=True)

    # One scenario

    def _try(
        self,
        job: Job,
        pod_ids: Sequence[str],
        chosen: Sequence[VictimGroup],
        *,
        is_committed: bool = False,
    ) -> _Outcome | None:
        """Evicts the victims, places the job, and restores or moves the victims it can. None if that is not allowed."""
        transaction = self._transaction
        with transaction.attempt() as attempt, transaction.after_evictions():
            costs = self._evict(job, chosen)
            request: Amounts = {}
            if job.prices is not None:
                request = amounts.total(job.prices(pod_id) for pod_id in pod_ids)
            if not self._place_all(job, pod_ids, chosen):
                return None

            losses = self._losses(chosen, costs)
            if self._rules.must_move and losses:
                return None
            if not self._rules.is_fair(job, losses, request):
                return None
            if not all(guard.still_holds(job) for guard in transaction.guards):
                return None

            unneeded = list(self._unneeded(job, chosen)) if len(chosen) > 1 else []
            outcome = _Outcome(unneeded, self._leaving(chosen), is_harmless=not losses)
            if is_committed:
                attempt.commit()
        return outcome

    def _evict(self, job: Job, chosen: Sequence[VictimGroup]) -> dict[str, Amounts]:
        """Evicts the victims; by pod, what its queue was charged for it."""
        transaction, rule = self._transaction, self._rules.rule
        numbers = self._rules.explanation(job)
        moved_ids = frozenset(pod_id for victim in chosen for pod_id in victim.pod_ids)
        numbers += self._repair_notes.get(moved_ids, "")
        costs = {}
        for victim in chosen:
            why = EvictedPod(victim.job, rule, job, numbers + self._costs.note(victim.job))
            for pod_id in victim.pod_ids:
                # One by one: a claim shared by several victims is saved with the last of them.
                costs[pod_id] = transaction.cost_of(victim.job, (pod_id,))
                transaction.evict_in_scenario(victim.job, pod_id, why)
        return costs

    def _losses(self, chosen: Sequence[VictimGroup], costs: Mapping[str, Amounts]) -> list[Loss]:
        """What the victims lose for good: pods that neither stay nor move."""
        evicted, placed = self._transaction.evictions, self._transaction.placements
        losses: list[Loss] = []
        for victim in chosen:
            lost = [
                pod_id for pod_id in victim.pod_ids if pod_id in evicted and pod_id not in placed
            ]
            if lost:
                cost = amounts.total(costs[pod_id] for pod_id in lost)
                losses.append(Loss(victim.job, cost))
        return losses

    def _leaving(self, chosen: Sequence[VictimGroup]) -> list[VictimGroup]:
        """The victims, without those of their pods that stay on their node."""
        leaving: list[VictimGroup] = []
        for victim in chosen:
            pod_ids = tuple(filter(self._leaves_its_node, victim.pod_ids))
            if pod_ids:
                leaving.append(VictimGroup(victim.job, pod_ids))
        return leaving

    def _leaves_its_node(self, pod_id: str) -> bool:
        if pod_id not in self._transaction.evictions:
            return False
        placement = self._transaction.placements.get(pod_id)
        return placement is None or placement.choice.node != self._transaction.node_of(pod_id)

    def _unneeded(self, job: Job, chosen: Sequence[VictimGroup]) -> Iterator[VictimGroup]:
        """Victims without whom it might work as well: the job is not on their nodes, or they find a place again."""
        used = set(nodes_of(self._transaction, job))
        for victim in chosen:
            nodes = _nodes(victim)
            placements = [
                self._transaction.placements[pod_id]
                for pod_id in victim.pod_ids
                if pod_id in self._transaction.placements
            ]
            if self._rules.must_move:
                # All of them find a place. Only those that find it on their own nodes need not have moved.
                placements = [
                    placement for placement in placements if placement.choice.node in nodes
                ]
            if used.isdisjoint(nodes) or placements:
                yield victim

    def _place_all(self, job: Job, pod_ids: Sequence[str], chosen: Sequence[VictimGroup]) -> bool:
        """Places the job and then the victims in what is left, in the order of any other cycle."""
        victims = {victim.job.id: victim.job for victim in chosen}
        with _refilling(victims.values()):
            if self._rules.must_move:
                # Victims of consolidation lose nothing by coming second, and the job must not wait for them.
                if not self._place(job, pod_ids):
                    return False
                line = JobQueue(self._transaction.accounts, victims.values())
            else:
                line = JobQueue(self._transaction.accounts, (job, *victims.values()))

            for next_job in line:
                if next_job is job:
                    if not self._place(job, pod_ids):
                        return False
                elif self._restore_or_move(next_job) and next_job.next_pods():
                    line.put_back(next_job)
            return True

    def _is_settled(self, job: Job, pod_ids: Sequence[str], outcome: _Outcome) -> bool:
        """Whether the scenario would last: no other pending job takes the freed room first.

        Otherwise the next cycle gives the room to that job, this one evicts again, and so on without end. What only
        moves frees nothing for others.
        """
        return self._rules.must_move or self._starts_next(job, pod_ids, outcome.leaving)

    def _starts_next(
        self, job: Job, pod_ids: Sequence[str], leaving: Sequence[VictimGroup]
    ) -> bool:
        """Whether the job is placed where all pending jobs of the queues involved take their turns first."""
        victims = {victim.job.id: victim.job for victim in leaving}
        competitors = self._competitors(job, victims)
        self._transaction.steps.spend(len(competitors))
        if not any(pending is not job and pending.next_pods() for pending in competitors):
            return True

        with self._transaction.attempt(), self._transaction.after_evictions():
            self._evict(job, leaving)
            with _refilling(victims.values()):
                contenders = (job, *victims.values(), *competitors)
                jobs_by_id = {contender.id: contender for contender in contenders}
                line = JobQueue(self._transaction.accounts, jobs_by_id.values())
                for next_job in line:
                    if next_job is job:
                        return self._place(job, pod_ids)
                    next_ids = next_job.next_pods()
                    if next_ids and self._place(next_job, next_ids) and next_job.next_pods():
                        line.put_back(next_job)
        return False

    def _competitors(self, job: Job, victims: Mapping[str, Job]) -> list[Job]:
        """The pending jobs of the queues involved, without the victims themselves."""
        queues = {job.queue, *(victim.queue for victim in victims.values())}
        competitors: list[Job] = []
        for queue in queues:
            pending_jobs = self._pending.get(queue, ())
            competitors += [pending for pending in pending_jobs if pending.id not in victims]
        return competitors

    def _place(self, job: Job, pod_ids: Sequence[str]) -> bool:
        least = amounts.total(self._transaction.price_of_pending(pod_id)[0] for pod_id in pod_ids)
        account = self._transaction.accounts.by_name[job.queue]
        reason = quota_check.refusal(
            account, least, is_fixed=not job.is_preemptible, why=job.non_preemptible_because
        )
        return reason is None and self._placer.step(job, pod_ids) is None

    def _restore_or_move(self, victim: Job) -> bool:
        """Whether the next pods of a victim stay where they were, or move."""
        pod_ids = victim.next_pods()
        if not pod_ids:
            return False
        if victim.gang.evicts_whole:
            return self._restore_or_move_all(victim)

        with self._transaction.attempt() as attempt:
            moving = [pod_id for pod_id in pod_ids if not self._transaction.restore(victim, pod_id)]
            if not moving or (self._may_move(victim) and self._placer.step(victim, moving) is None):
                attempt.commit()
                return True

        # Those that could stay may be what keeps the others from fitting: move all of them.
        if not self._may_move(victim) or len(moving) == len(pod_ids):
            return False
        return self._placer.step(victim, pod_ids) is None

    def _restore_or_move_all(self, victim: Job) -> bool:
        """Whether all pods of a victim stay, or all move."""
        pod_ids = tuple(pod_id for pod_id, state in victim.state.items() if state is State.EVICTED)
        with self._transaction.attempt() as attempt:
            if all(self._transaction.restore(victim, pod_id) for pod_id in pod_ids):
                attempt.commit()
                return True
        return self._may_move(victim) and self._placer.step(victim, pod_ids) is None

    def _may_move(self, victim: Job) -> bool:
        """Moving is evicting and starting again, so a controller has to recreate the pods."""
        return self._rules.may_move and victim.gang.is_recreated


def _waits(detail: str) -> Reason:
    return Reason(code=ReasonCode.GANG_WAITS, detail=detail)


@contextmanager
def _refilling(victims: Iterable[Job]) -> Iterator[None]:
    """Meanwhile the next pods of these jobs are their evicted ones, not their pending ones."""
    jobs = list(victims)
    for job in jobs:
        job.refill(is_on=True)
    try:
        yield
    finally:
        for job in jobs:
            job.refill(is_on=False)


def _whole_gang_scenarios(
    candidates: _Candidates, bounds: ScenarioBounds, count: int
) -> Iterator[Sequence[VictimGroup]]:
    """Victims on nodes that would each hold one more pod, from the point on at which all pods have a slot."""
    by_node: dict[str, list[VictimGroup]] = {}
    slots: dict[str, int] = {}  # gained, by node
    for newest in candidates:
        for node in _nodes(newest):
            by_node.setdefault(node, []).append(newest)
            gained = bounds.slots_gained(node, by_node[node])
            if gained <= slots.get(node, 0):
                continue
            slots[node] = gained
            if bounds.slots + sum(slots.values()) >= count:
                on_nodes = [victim for ripe_node in slots for victim in by_node[ripe_node]]
                yield _merged((), on_nodes)


def _nodes(victim: VictimGroup) -> dict[str, None]:
    """The nodes its pods are bound to, in order."""
    if len(victim.pod_ids) == 1:
        return {victim.job.pods[victim.pod_ids[0]].spec.node_name: None}
    return dict.fromkeys(victim.job.pods[pod_id].spec.node_name for pod_id in victim.pod_ids)


def _merged(first: Sequence[VictimGroup], more: Sequence[VictimGroup]) -> list[VictimGroup]:
    return list({id(victim): victim for victim in (*first, *more)}.values())
