"""The state of one decision about queues and gangs: jobs, accounts, a transaction on the World, whose turn it was.

Given a World inside a trial. `decide` opens a session and runs the policy's actions on it; `session_plan` reads the
plan off it. A bounded decision ends when its steps are spent and the next one continues: together they make a round,
in which every waiting job gets its turn in every action. Never places or evicts a pod itself.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.model import gangs, plan, policy
from dovetail.model.queue import queue_tree
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity import durations
from dovetail.schedule import gang_refusals, pod_order, step_budget
from dovetail.schedule.backfill import promises
from dovetail.schedule.evict.place_or_preempt import PlaceOrPreempt
from dovetail.schedule.gang import job_cache
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job, SinglePodJob, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.node import equivalence, preconditions
from dovetail.schedule.node.filters import relational
from dovetail.schedule.node.pod_claims import PodClaims
from dovetail.schedule.queue import amounts, power_caps, unplaceable, usage_history
from dovetail.schedule.queue.accounts import NO_QUEUE, Accounts
from dovetail.schedule.queue.pricing import Pricing
from dovetail.schedule.queue.queue_order import JobQueue
from dovetail.schedule.step_budget import STEP_BITS, TURN_STEPS
from dovetail.world.world import World


class Scope(NamedTuple):
    """What a decision is about."""

    among: Collection[str] | None = None  # the pods to decide about, by id; None: every pending pod
    spared: Collection[str] = ()  # pods that must not be evicted
    toward: Mapping[str, str] = {}  # by pod id, a node that is reserved for it and tried first
    aside: Collection[
        gangs.GangKey
    ] = ()  # gangs that keep what they hold and are not decided about


class Session:
    """One decision about queues and gangs."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        now: plan.Instant | None,
        budget: policy.Budget,
        scope: Scope,
    ) -> None:
        self._among = frozenset(scope.among) if scope.among is not None else None
        self.spared = frozenset(scope.spared)
        self._aside = frozenset(scope.aside)
        self._queues = queue_tree.usable(world.queues)
        self._saturated = _saturated(policy_.batch, now)
        self.job_cache = job_cache.of(world, policy_)
        self.transaction = self._begin_transaction(world, policy_, now, budget, scope)
        self.refused = self.job_cache.reasons()  # by job, why it is not considered
        self._charge_what_stays()
        self._price_jobs()
        self.waiting = {job.id: job for job in self.transaction.live_jobs if job.has_waiting}
        self._mark_nominated()
        self._begin_round(budget, has_reservations=bool(scope.toward))
        self.unplaceable: set[str] = set()  # waiting pods that would fit no node if all were empty
        self.may_not_evict: dict[str, Reason] = {}  # by job, why it evicts nothing to make room
        self._record_demand()
        self.wake_at: datetime.datetime | None = None
        self.promises: promises.Promises | None = None
        self.place_or_preempt: PlaceOrPreempt | None = None  # only where no queue exists

    def _begin_transaction(
        self,
        world: World,
        policy_: policy.Policy,
        now: plan.Instant | None,
        budget: policy.Budget,
        scope: Scope,
    ) -> Transaction:
        resources = {name for queue in self._queues.values() for name in queue.spec.resources}
        pricing = Pricing(world, policy_.batch, resources, has_power=power_caps.has_caps(world))
        jobs = self.job_cache.jobs(
            world,
            self._queues,
            self._aside,
            among=scope.among,
            is_bounded=budget.steps is not None,
        )
        price_cache = self.job_cache.price_cache
        accounts = Accounts(
            self._queues,
            enforces=policy_.batch.enforces_quota,
            capacity=price_cache.capacity(world, pricing),
        )
        transaction = Transaction(
            world,
            policy_,
            budget,
            now=now,
            jobs=jobs,
            live_jobs=self.job_cache.live_jobs(world),
            settled=self.job_cache.settled,
            accounts=accounts,
            pricing=pricing,
            price_cache=price_cache,
            among=scope.among,
        )
        transaction.kept_nodes = scope.toward
        transaction.wake_job = self._wake_job
        return transaction

    def _charge_what_stays(self) -> None:
        """Charges what this decision cannot take back: gangs set aside, and devices in quarantine."""
        transaction = self.transaction
        for job in self.job_cache.left_out(transaction.world, self._queues, self._aside):
            transaction.charge_left_out(job)
        # A pod removed by force may still use its devices, so they stay charged to its queue.
        for name, doubt in transaction.world.uncertain_holds.items():
            cost = transaction.pricing.cost_of_claim(("", name), transaction.world.held[name])
            queue = doubt.queue if doubt.queue in transaction.accounts.by_name else NO_QUEUE
            transaction.accounts.charge(queue, cost, is_fixed=True)

    def _price_jobs(self) -> None:
        for job in self.transaction.live_jobs:
            self._price_job(job)

    def _price_job(self, job: Job) -> None:
        job.set_prices(self._highest_price)
        job.is_aged = self._saturated is not None and job.created <= self._saturated

    def _wake_job(self, job: Job) -> None:
        """A settled job is evicted or moved: from now on it is one like any other."""
        self._price_job(job)
        self.job_cache.note_woken(job)

    def _highest_price(self, pod_id: str) -> amounts.Amounts:
        """What a waiting pod costs at most."""
        return self.transaction.price_of_pending(pod_id)[1]

    def _mark_nominated(self) -> None:
        for job in self.waiting.values():
            job.has_kept_node = not self.transaction.world.queues and any(
                pod.status.nominated_node_name for pod in job.pods.values()
            )

    def _begin_round(self, budget: policy.Budget, *, has_reservations: bool) -> None:
        """Nothing is decided yet. A bounded decision continues the round that earlier ones began."""
        world = self.transaction.world
        self.most_pods = self.pods_left = budget.pods
        self.is_cut_short = False  # some job had no turn
        self.has_offered_all = False  # every job had a turn at free capacity: eviction may begin
        self.has_pods_only = not world.queues and world.gangs.is_trivial
        # Pods alone come in batches: a pod without a turn is in the next batch, and needs no round.
        self.is_in_rounds = not self.has_pods_only and not has_reservations
        keeps_round = self.is_in_rounds and budget.steps is not None
        self.rounds = self.job_cache.rounds if keeps_round else step_budget.Rounds()
        self.is_changed = self.rounds.begin(world.changes)
        self.without_turn: set[str] = set()  # jobs with no turn now, nor earlier in the round

    # What queues wait for

    def _record_demand(self) -> None:
        """Records for every queue what it waits for. Pods of equal price are counted first, then added at once."""
        counts: Counter[tuple[str, int]] = Counter()
        prices: dict[int, amounts.Amounts] = {}
        is_bounded = self.transaction.steps.most is not None
        filter_ = self._unplaceable_filter()

        for job in self.waiting.values():
            if job.id in self.refused:
                continue
            waiting = [pod_id for pod_id, state in job.state.items() if state is State.WAITING]
            price_ranges = {pod_id: self.transaction.price_of_pending(pod_id) for pod_id in waiting}
            if filter_ is not None:
                lowest = {pod_id: least for pod_id, (least, _) in price_ranges.items()}
                self.unplaceable |= filter_.of(job, lowest, self.transaction.accounts.capacity)

            for pod_id, (_, most) in price_ranges.items():
                is_demand = (
                    pod_id not in self.unplaceable and pod_id not in self.transaction.unpriced
                )
                if is_demand:
                    prices[id(most)] = most
                    counts[job.queue, id(most)] += 1
                if is_bounded and isinstance(job, SinglePodJob):
                    self.job_cache.note_demand(job, most if is_demand else None)

        for (queue, price_id), count in counts.items():
            self._add_demand(queue, prices[price_id], count)
        for queue, most, count in self.job_cache.unseen_demand():
            self._add_demand(queue, most, count)

    def _unplaceable_filter(self) -> unplaceable.Unplaceable | None:
        transaction = self.transaction
        if not transaction.world.queues:
            return None
        return unplaceable.Unplaceable(
            transaction.world,
            transaction.policy,
            transaction.search.spending,
            transaction.profiles,
        )

    def _add_demand(self, queue: str, price: amounts.Amounts, count: int) -> None:
        total = {name: amount * count for name, amount in price.items()}
        self.transaction.accounts.wait(queue, total)

    def past_usage(self) -> dict[str, dict[str, float]] | None:
        """By queue and resource, what was used lately, as a part of the cluster; None where that does not count."""
        batch = self.transaction.policy.batch
        if batch.usage_weight <= 0:
            return None
        half_life = batch.usage_half_life_seconds
        return usage_history.parts(
            self._queues, self.transaction.accounts.capacity, half_life=half_life
        )

    # Running actions

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Actions run inside. Nominations of the pods to decide about are void: each is placed where it is best now."""
        crowd = self.transaction.world.pod_index
        nominated = [pod_id for pod_id in crowd.nominated() if self._is_about(pod_id)]
        try:
            with crowd.without_nominations(nominated):
                self._prepare_actions()
                yield
        finally:
            for job in (*self.transaction.live_jobs, *self.transaction.woken.values()):
                job.set_prices(None)  # jobs outlive the decision, and must not keep its world alive

    def _is_about(self, pod_id: str) -> bool:
        return self.transaction.includes(pod_id) and self.covers((pod_id,))

    def _prepare_actions(self) -> None:
        transaction = self.transaction
        self.placer = Placer(transaction)
        self.promises = promises.start_promises(transaction, self.placer)
        if self.promises is not None:
            transaction.guards.append(self.promises)
        if not transaction.world.queues and policy.Step.PREEMPT in transaction.policy.steps:
            self.place_or_preempt = PlaceOrPreempt(
                transaction,
                self.placer,
                spared=self.spared,
                likeness=self.equivalence_key,
                may_not_evict=self.may_not_evict,
            )

    @property
    def is_over(self) -> bool:
        """Whether the steps were spent before every job had its turn at free capacity."""
        return self.is_cut_short and not self.has_offered_all

    def covers(self, pod_ids: Iterable[str]) -> bool:
        """Whether the decision is about all of these pods."""
        return self._among is None or self._among.issuperset(pod_ids)

    def wake_by(self, when: datetime.datetime | None) -> None:
        """Another decision is due then, if none is due before."""
        if when is not None and (self.wake_at is None or when < self.wake_at):
            self.wake_at = when

    # Jobs that wait

    def drop_started(self) -> None:
        """Forgets jobs that wait for nothing any more: later actions need not ask each of them again."""
        self.waiting = {job_id: job for job_id, job in self.waiting.items() if job.has_waiting}

    def waiting_jobs(self) -> Iterable[Job]:
        """Jobs with pods that may wait; a decision may withdraw what it gave."""
        return (self.waiting | self.transaction.withdrawn).values()

    def line(self) -> JobQueue:
        """Jobs that may start a pod, in order."""
        startable = (job for job in self.waiting_jobs() if self.may_start(job))
        return JobQueue(self.transaction.accounts, startable)

    def may_start(self, job: Job) -> bool:
        """Whether a job may start a pod, given room. Records why it may not."""
        if job.id in self.refused:
            return False
        pod_ids = job.next_pods()
        if any(pod_id in self.transaction.unpriced for pod_id in pod_ids):
            gang_refusals.unpriced(self.transaction, job)
            return False
        if not job.can_reach_minimum():
            gang_refusals.too_few(self.transaction, job)
            return False
        if pod_ids and not job.gang.is_known and self._awaits_owner(job):
            owner = gangs.owner_name(_key(job))
            unseen = Reason(
                code=ReasonCode.GANG_INCOMPLETE, detail=f"its {owner} has not been seen yet"
            )
            gang_refusals.of_job(self.transaction, job, unseen)
            return False
        return bool(pod_ids) and self.covers(pod_ids)

    def _awaits_owner(self, job: Job) -> bool:
        """Whether the gang's owner may still appear; wakes up when that is over. PodGroups must exist."""
        if gangs.source_of(_key(job)) in gangs.GROUPS:
            return True
        if self.transaction.now is None or job.created is pod_order.NEVER:
            return False
        until = durations.later(job.created, gangs.UNKNOWN_SECONDS)
        if self.transaction.now >= until:
            return False
        self.wake_by(until)
        return True

    def equivalence_key(self, job: Job, pod_ids: Sequence[str]) -> Hashable:
        """Equal for jobs that can make room or none of them can; the job's own id where that is not certain."""
        if not isinstance(job, SinglePodJob) or job.gang.may_evict_after:
            return job.id
        pod = job.pods[pod_ids[0]]
        needs = preconditions.needs(pod, self.transaction.claim_lookup)
        if (
            not isinstance(needs, PodClaims)
            or relational.filters_of(pod, self.transaction.world) is not None
        ):
            return job.id
        pod_key = equivalence.pod_key(pod, needs, self.transaction.world.images)
        return job.queue, job.priority, job.is_preemptible, pod.spec.preemption_policy, pod_key

    # Turns in a round of bounded decisions

    def had_turn(self, job: Job, step: policy.Step) -> bool:
        """Whether a job had its turn in an action of this round."""
        return self.rounds.had_turn(job, STEP_BITS[step])

    def mark_turn(self, job: Job, step: policy.Step) -> None:
        """A job had its turn in an action."""
        self.rounds.mark_turn(job, STEP_BITS[step])

    def jobs_without_turn(self, step: policy.Step) -> list[Job]:
        """Jobs that may start a pod and had no turn in this round."""
        jobs = [job for job in self.waiting_jobs() if not self.had_turn(job, step)]
        return [job for job in jobs if self.may_start(job)]

    def lacks_unseen(self, step: policy.Step) -> bool:
        """Whether a job that this decision does not even list had no turn."""
        return self.is_in_rounds and self.job_cache.lacks(step)

    def end_round(self) -> None:
        """A decision that was cut short continues at once; so does a round during which the World changed."""
        if self.transaction.steps.most is None:
            return
        if any(
            self.lacks_unseen(step) for step in self.transaction.policy.steps if step in TURN_STEPS
        ):
            self.is_cut_short = True
        if self.is_cut_short:
            self.rounds.continue_later()
        is_complete = not self.is_cut_short and not self.rounds.end()
        if self.is_in_rounds and not is_complete and self.transaction.now is not None:
            self.wake_by(self.transaction.now)


def _saturated(batch: policy.Batch, now: plan.Instant | None) -> datetime.datetime | None:
    """Jobs created by then are as old as counts. Age alone starts no pod, so this is no time to wake up at."""
    if now is None or not batch.age_saturation_seconds:
        return None
    return durations.earlier(now, batch.age_saturation_seconds)


def _key(job: Job) -> gangs.GangKey:
    return job.gang.metadata.namespace, job.gang.metadata.name
