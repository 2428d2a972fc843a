"""The draft of one decision: which pods get a node, which have to go, and what the World looks like then.

Given the World inside a trial, the jobs and the accounts of their queues. Everything is done inside an attempt, and
undone with it unless it is committed. Two undo logs close together: the World has its own, and the draft's pod
states, placements, evictions and charges share a second one. Capacity that pods still occupy is visible only inside
`later`: there leaving pods are gone, and pods nominated for their capacity are in. Never chooses a job, a node or a
victim.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import plan, policy, reservations
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refusal_summary
from dovetail.schedule.gang import nominations
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.settled_jobs import SettledJobs
from dovetail.schedule.node import equivalence, preconditions
from dovetail.schedule.node.filters import relational
from dovetail.schedule.node.find_node import NodePlacement, NodeSearch
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims, releasing_scheduler
from dovetail.schedule.node.pod_profiles import PodProfile, PodProfiles
from dovetail.schedule.queue import amounts, quota_check
from dovetail.schedule.queue.accounts import Accounts
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.charges import Allocations, Charges
from dovetail.schedule.queue.overlay import Overlay
from dovetail.schedule.queue.power_caps import PowerCaps
from dovetail.schedule.queue.pricing import Pricing
from dovetail.schedule.queue.pricing_cache import PricingCache
from dovetail.schedule.step_budget import MOVED, PLACE, Steps
from dovetail.world import events
from dovetail.world.events import ObjectKey
from dovetail.world.undo_log import Trial, UndoLog
from dovetail.world.world import World

Within = Collection[str] | None  # nodes that may be used; None for all


class PodPlacement(NamedTuple):
    """A node given to a pod in this decision."""

    job: Job
    pod: pods.Pod  # as it would be placed: without the node it may still be on
    choice: NodePlacement
    needs: PodClaims
    is_now: bool  # else once leaving pods are gone


class EvictedPod(NamedTuple):
    """Why a pod is evicted in this decision."""

    job: Job
    rule: plan.Rule
    beneficiary: Job | None
    detail: str


class Transaction:
    """One decision in the making."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        budget: policy.Budget,
        *,
        now: plan.Instant | None,
        jobs: Mapping[str, Job],
        live_jobs: Sequence[Job],
        settled: SettledJobs,
        accounts: Accounts,
        pricing: Pricing,
        price_cache: PricingCache,
        among: Collection[str] | None = None,
    ) -> None:
        self.world = world
        self.policy = policy_
        self.now = now
        self.jobs = jobs
        self.live_jobs = live_jobs  # all but the settled ones
        self.settled = settled.snapshot()
        self.accounts = accounts
        self.pricing = pricing
        self._caps = PowerCaps(world)
        self.claim_lookup = ClaimLookup(world)
        self.profiles = PodProfiles(world, is_kept=policy_.memo)
        self.search = NodeSearch(world, policy_, budget, among=among)
        self.steps = Steps(budget.steps)
        self.placements: dict[str, PodPlacement] = {}
        self._nominated_on: Counter[str] = Counter()  # by node, pods nominated for it
        self.evictions: dict[str, EvictedPod] = {}
        self.guards: list[nominations.Guard] = []
        self.kept_nodes: Mapping[str, str] = {}  # by pod, a node that is kept for it
        self.is_after_evictions = False
        self.refusals: dict[str, plan.Refusal] = {}
        self._leaving = _leaving_pods(live_jobs)
        self._leftover_claims: list[ObjectKey] | None = None
        self._job_of = Overlay(self.settled.job_by_pod)
        self._job_of.update((pod_id, job) for job in live_jobs for pod_id in job.pods)
        self.woken: dict[str, Job] = {}  # settled jobs that this decision did something to
        self.wake_job: Callable[[Job], None] = lambda job: None  # prepares such a job
        self._running: list[Job] | None = None
        self._undo = UndoLog()
        self.withdrawn: dict[str, Job] = {}  # jobs with a placement that was withdrawn
        self.charges = Charges(
            world,
            accounts,
            pricing,
            price_cache=price_cache,
            profiles=self.profiles,
            undo=self._undo,
            settled=self.settled,
        )
        self.unpriced = self.charges.unpriced  # pending pods whose selectors cost too much
        self.charges.charge_running(live_jobs, self.node_of, settled)

    # Jobs and prices

    @property
    def jobs_by_pod(self) -> Overlay[str, Job]:
        """The job of every pod that is part of the decision."""
        return self._job_of

    def kept_for(self, job: Job, pod_id: str) -> str:
        """The node that is kept for a pending pod; empty if none is."""
        pod = job.pods[pod_id]
        if pod.spec.node_name:
            return ""
        return self.kept_nodes.get(pod_id) or pod.status.nominated_node_name

    def includes(self, pod_id: str) -> bool:
        """Whether the pod is part of the decision."""
        return pod_id in self._job_of

    def job_of(self, pod_id: str) -> Job:
        """The job of a pod."""
        return self._job_of[pod_id]

    def node_of(self, pod_id: str) -> str:
        """The node a pod is bound to, or is being bound to."""
        bound_to = self._job_of[pod_id].pods[pod_id].spec.node_name
        return bound_to or self.world.assumed[pod_id].node

    def price_of_pending(self, pod_id: str) -> tuple[Amounts, Amounts]:
        """The least and the most a pending pod may cost; nothing at all while it is unpriced."""
        pod = self._job_of[pod_id].pods[pod_id]
        return self.charges.price_of_pending(pod_id, pod, self.search.spending)

    def cost_of(self, job: Job, ids: Collection[str]) -> Amounts:
        """What the queue would save without these running pods."""
        return self.charges.cost_of(job, ids)

    def charge_left_out(self, job: Job) -> None:
        """Charges a job that is no part of the decision for what it holds."""
        self.charges.charge_left_out(job)

    def kind_of(self, job: Job, pod_id: str) -> Hashable:
        """Equal for pods that fit the same nodes; a pod whose claims are not ready is only equal to itself."""
        pod = unbound(job.pods[pod_id])
        needs = preconditions.needs(pod, self.claim_lookup)
        if not isinstance(needs, PodClaims):
            return pod_id
        return equivalence.pod_key(pod, needs, self.world.images)

    def running_jobs(self) -> list[Job]:
        """Jobs that ran when the decision began and may be evicted; some may have no running pod left."""
        if self._running is None:
            self._running = [
                job
                for job in self.jobs.values()
                if (job.is_preemptible or job.idle_since is not None) and job.has_active
            ]
        return self._running

    # Attempts

    @contextmanager
    def attempt(self) -> Iterator[Trial]:
        """Undoes everything done inside unless it is committed."""
        with self.world.trial() as trial, self._undo.trial(trial):
            yield trial

    @contextmanager
    def after_evictions(self) -> Iterator[None]:
        """The World once leaving pods are gone and the pods nominated for their capacity are in."""
        if self.is_after_evictions:
            yield
            return

        self.steps.spend((len(self._leaving) + len(self.evictions)) * MOVED)
        self.is_after_evictions = True
        try:
            with self.world.trial():
                for key in self._leftovers():
                    self.world.free_claim(key)
                for pod_id in (*self._leaving, *self.evictions):
                    self.world.vacate(pod_id)
                for placement in self.placements.values():
                    if not placement.is_now:
                        self._assume(placement)
                yield
        finally:
            self.is_after_evictions = False

    def _assume(self, placement: PodPlacement) -> None:
        pod, choice = placement.pod, placement.choice
        self.world.assume(pod, choice.node, choice.allocations_to_assume(pod))

    @property
    def has_leaving_capacity(self) -> bool:
        """Whether any capacity is about to be free: pods are leaving, or claims of ended pods still hold devices."""
        return bool(self._leaving or self.evictions or self._leftovers())

    def _leftovers(self) -> list[ObjectKey]:
        """Claims that still hold devices for ended pods. They are released soon; no pod is evicted for them."""
        if self._leftover_claims is None:
            self._leftover_claims = [
                key
                for key in self.world.claims_off_node()
                if self._is_leftover(self.world.claims[key])
            ]
        return self._leftover_claims

    def _is_leftover(self, claim: claims.ResourceClaim) -> bool:
        users = claim.status.reserved_for
        if any(map(reservations.is_group, users)):
            return self._releases_group_claim(claim)
        if users:
            return all(self.world.has_ended(user, claim.metadata.namespace) for user in users)

        if claim.metadata.deletion_timestamp is not None:
            return True
        return any(
            owner.controller and owner.kind == "Pod" and owner.uid not in self.world.pods
            for owner in claim.metadata.owner_references
        )

    def _releases_group_claim(self, claim: claims.ResourceClaim) -> bool:
        """Whether it is this scheduler that releases a claim of a group without pods."""
        scheduler_name = releasing_scheduler(claim, self.world)
        if scheduler_name is None:
            return False
        names = self.policy.scheduler_names
        return not names or scheduler_name in names

    # Placing

    def place(self, job: Job, pod_id: str, *, within: Within = None) -> plan.Refusal | None:
        """Places a pod on the best node it may use: now, or inside `later` once pods have left.

        A refusal if there is no such node.
        """
        pod = unbound(job.pods[pod_id])
        if node := self.kept_nodes.get(pod_id):
            pod = _nominated(pod, node)

        profile = self.profiles.of(pod_id, pod)
        needs = self._needs(job, pod, profile)
        if not isinstance(needs, PodClaims):
            return refusal_summary.of_pod(pod, needs)

        choice = self._affordable_node(job, pod, needs, within, profile)
        if isinstance(choice, plan.Refusal):
            return choice

        if profile is not None:
            self.pricing.know_request(pod_id, profile.request)
        self._give(pod_id, PodPlacement(job, pod, choice, needs, not self.is_after_evictions))
        # Volumes are provisioned only for a pod that is bound now.
        volumes = () if self.is_after_evictions else choice.volumes
        self.world.assume(
            pod,
            choice.node,
            choice.allocations_to_assume(pod),
            volumes=volumes,
            request=profile.request if profile is not None else None,
        )
        self.search.placed(choice)
        return None

    def _needs(
        self, job: Job, pod: pods.Pod, profile: PodProfile | None
    ) -> PodClaims | tuple[Reason, ...]:
        """The pod's claims, or why it cannot start; where the policy asks for it, claims belong to a queue, too."""
        needs = (
            profile.needs if profile is not None else preconditions.needs(pod, self.claim_lookup)
        )
        if not isinstance(needs, PodClaims) or not self.policy.batch.claims_need_queue:
            return needs

        for request in needs.wanted:
            queue = request.claim.metadata.labels.get("dovetail.dev/queue")
            if queue != job.queue and not _is_owned_by(request.claim, pod):
                detail = f"is labelled for queue {queue}" if queue else "is labelled for no queue"
                subject = f"claim {request.name}"
                return (Reason(code=ReasonCode.CLAIM_QUEUE, subject=subject, detail=detail),)
        return needs

    def _affordable_node(
        self,
        job: Job,
        pod: pods.Pod,
        needs: PodClaims,
        within: Within,
        profile: PodProfile | None,
    ) -> NodePlacement | plan.Refusal:
        """The best node whose price neither the queue's bounds nor a power cap rule out.

        Prices depend on the node (another type of GPU, another rack), so the search goes on elsewhere. It ends: each
        node that is too dear removes itself, with all nodes on which the pod would cost the same.
        """
        too_dear: tuple[Reason, frozenset[str]] | None = None
        if not self._caps.are_none:
            too_dear = self._caps.exhausted(self.price_of_pending(events.pod_id(pod))[0])
        first_reason = too_dear[0] if too_dear is not None else None
        while True:
            if too_dear is not None:
                reason, nodes = too_dear
                within = self._all_but(nodes, within)
                if not within:
                    return refusal_summary.of_pod(pod, (reason,))

            choice = self._unpromised_node(job, pod, needs, within, profile)
            if isinstance(choice, plan.Refusal):
                if first_reason is None:
                    return choice
                return refusal_summary.with_nodes_ruled_out(choice, first_reason)

            if choice.made is not None:
                self.pricing.add_new_claim(choice.allocations_to_assume(pod), choice.made.claim)
            too_dear = self._over_bounds(job, pod, choice.node, choice.allocations_to_assume(pod))
            if too_dear is None:
                return choice
            first_reason = first_reason or too_dear[0]

    def _all_but(self, excluded: Collection[str], within: Within) -> set[str]:
        if within is None:
            return self.world.nodes.keys() - excluded
        return set(within).difference(excluded)

    def _unpromised_node(
        self,
        job: Job,
        pod: pods.Pod,
        needs: PodClaims,
        within: Within,
        profile: PodProfile | None,
    ) -> NodePlacement | plan.Refusal:
        """The best node where the pod takes nothing that is kept for another pod.

        A refusal counts, for each such pod or gang, the nodes that would do and are kept for it.
        """
        kept_nodes: Counter[Reason] | None = None  # few pods need it
        while True:
            worked_before = self.search.worked
            choice = self.search.find(pod, needs, within=within, profile=profile)
            self.steps.spend(PLACE + self.search.worked - worked_before)
            if isinstance(choice, plan.Refusal):
                return refusal_summary.with_reserved_nodes(choice, kept_nodes or {})

            reason = self._kept_for_others(job, pod, choice, needs)
            if reason is None:
                return choice
            kept_nodes = kept_nodes if kept_nodes is not None else Counter()
            kept_nodes[reason] += 1
            within = self._all_but({choice.node}, within)

    def _kept_for_others(
        self, job: Job, pod: pods.Pod, choice: NodePlacement, needs: PodClaims
    ) -> Reason | None:
        """Why the pod may not have a node that would do; None if it may."""
        if not self.is_after_evictions and not self._leaves_nominations(pod, choice, needs):
            return self._nominated_reason(choice.node)
        for guard in self.guards:
            if not guard.allows(job, pod, choice):
                return guard.kept_for(job, choice.node)
        return None

    def _nominated_reason(self, node: str) -> Reason:
        names = sorted({placement.job.id for placement in self._nominations(node).values()})
        return Reason(code=ReasonCode.NOMINATED, subject=", ".join(names[:3]))

    def _nominations(self, node: str) -> dict[str, PodPlacement]:
        """By pod, what is kept on a node for pods that start once others have left it."""
        return {
            pod_id: placement
            for pod_id, placement in self.placements.items()
            if not placement.is_now and placement.choice.node == node
        }

    def _leaves_nominations(self, pod: pods.Pod, choice: NodePlacement, needs: PodClaims) -> bool:
        """Whether the pods nominated for the node still fit after evictions, on other devices if need be."""
        if choice.node not in self._nominated_on:
            return True

        with self.after_evictions():
            # A claim whose other users leave has no devices inside `later`. This pod takes it over with its devices.
            allocations: dict[ObjectKey, claims.AllocationResult] = {}
            for request in needs.held:
                if request.allocation is not None and self.world.allocation(request.key) is None:
                    allocations[request.key] = request.allocation
            allocations |= choice.allocations_to_assume(pod)

            self.world.assume(pod, choice.node, allocations)
            if self.world.binding_problem(choice.node, allocations) is None:
                return True
            exchanged = nominations.exchanged(
                self.world,
                self.search,
                pricing=self.pricing,
                nominated=self._nominations(choice.node),
            )

        if exchanged is None:
            return False
        for pod_id, other_choice in exchanged.items():
            before = self.placements[pod_id]
            self._undo.note(functools.partial(self.placements.__setitem__, pod_id, before))
            self.placements[pod_id] = before._replace(choice=other_choice)
        return True

    def _over_bounds(
        self, job: Job, pod: pods.Pod, node: str, allocations: Allocations
    ) -> tuple[Reason, frozenset[str]] | None:
        """Why the pod, placed like this, exceeds its queue's bounds or a power cap, and on which nodes it does."""
        account = self.accounts.by_name[job.queue]
        if job.is_preemptible and not account.is_bounded and self._caps.are_none:
            return None

        cost = dict(self.pricing.cost_on_node(pod, node))
        for key, allocation in allocations.items():
            amounts.add(cost, self.pricing.cost_of_claim(key, allocation))
        reason = quota_check.refusal(
            account, cost, is_fixed=not job.is_preemptible, why=job.non_preemptible_because
        )
        if reason is not None:
            return reason, self.pricing.equal_nodes(node)
        return self._caps.refusal(node, cost)

    def _give(self, pod_id: str, placement: PodPlacement) -> None:
        job, choice = placement.job, placement.choice
        before = job.state[pod_id]
        self._add_placement(pod_id, placement)
        self._undo.note(lambda: self._drop_placement(pod_id))
        state = State.STARTING if placement.is_now else State.NOMINATED
        self.mark(job, pod_id, state, before=before)
        self.charges.charge(job, pod_id, choice.node, choice.allocations_to_assume(placement.pod))

    def _add_placement(self, pod_id: str, placement: PodPlacement) -> None:
        self.placements[pod_id] = placement
        if not placement.is_now:
            self._nominated_on[placement.choice.node] += 1

    def _drop_placement(self, pod_id: str) -> PodPlacement:
        placement = self.placements.pop(pod_id)
        if not placement.is_now:
            node = placement.choice.node
            self._nominated_on[node] -= 1
            if not self._nominated_on[node]:
                del self._nominated_on[node]
        return placement

    def postpone(self, pod_id: str) -> None:
        """Turns a placement into a nomination: the gang has to wait for another of its pods."""
        placement = self.placements[pod_id]
        assert placement.is_now
        self.world.forget(placement.pod)
        self._drop_placement(pod_id)
        self._add_placement(pod_id, placement._replace(is_now=False))
        self._undo.note(lambda: self._add_placement(pod_id, placement))
        self._undo.note(lambda: self._drop_placement(pod_id))  # noted last, so undone first
        self.mark(placement.job, pod_id, State.NOMINATED, before=State.STARTING)

    def withdraw(self, pod_id: str) -> None:
        """Takes back what this decision gave a pod."""
        placement = self._drop_placement(pod_id)
        job, choice = placement.job, placement.choice
        self._undo.note(lambda: self._add_placement(pod_id, placement))
        if placement.is_now:
            self.world.forget(placement.pod)
        self.charges.uncharge(job, pod_id, choice.node, choice.allocations_to_assume(placement.pod))
        self.mark(job, pod_id, State.WAITING, before=job.state[pod_id])
        self.withdrawn[job.id] = job

    def mark(self, job: Job, pod_id: str, state: State, *, before: State) -> None:
        """Sets the state of a pod."""
        if before is State.ACTIVE and job.prices is None:
            self.woken[job.id] = job
            self.wake_job(job)
        job.mark(pod_id, state)
        self._undo.note(lambda: job.mark(pod_id, before))

    # Evicting

    def evict_in_scenario(self, job: Job, pod_id: str, why: EvictedPod) -> None:
        """Evicts a running pod, which may find a place again in the same scenario. Only inside `later`."""
        assert self.is_after_evictions
        self.steps.spend(MOVED)
        self.evict(job, pod_id, why, state=State.EVICTED)
        self.world.vacate(pod_id)
        if pod_id in self.world.assumed:  # evicted before in this step, and restored
            self.world.forget(job.pods[pod_id])

    def evict(
        self, job: Job, pod_id: str, why: EvictedPod, *, state: State = State.LEAVING
    ) -> None:
        """Evicts a running pod: it is no longer charged, and occupies its node until it is gone."""
        pod = job.pods[pod_id]
        self.charges.uncharge(job, pod_id, pod.spec.node_name, self._allocations_of(pod))
        self.evictions[pod_id] = why
        self._undo.note(lambda: self.evictions.pop(pod_id))
        self.mark(job, pod_id, state, before=job.state[pod_id])

    def _allocations_of(self, pod: pods.Pod) -> dict[ObjectKey, claims.AllocationResult]:
        """What the claims of a pod hold in the World as it stands."""
        allocations: dict[ObjectKey, claims.AllocationResult] = {}
        for key in self.world.claims_used(pod):
            allocation = self.world.allocation(key)
            if allocation is not None:
                allocations[key] = allocation
        return allocations

    def restore(self, job: Job, pod_id: str, *, is_untouched: bool = False) -> bool:
        """Restores an evicted pod on its node and its devices, if no other pod took them.

        Where nothing was placed since (`is_untouched`), its affinities and its fit hold as before and are not checked
        again.
        """
        self.steps.spend(MOVED)
        pod = job.pods[pod_id]
        node = pod.spec.node_name
        allocations = self._former_allocations(pod)
        if node not in self.world.nodes:
            return False
        if self._over_bounds(job, pod, node, allocations) is not None:
            return False

        pending = unbound(pod)
        if not is_untouched and not self._suits_its_neighbours(pending, node):
            return False
        with self.world.trial() as trial:
            self.world.assume(pending, node, allocations)
            if not is_untouched and self.world.binding_problem(node, allocations) is not None:
                return False
            trial.commit()

        why = self.evictions.pop(pod_id)
        self._undo.note(lambda: self.evictions.__setitem__(pod_id, why))
        self.mark(job, pod_id, State.ACTIVE, before=State.EVICTED)
        self.charges.charge(job, pod_id, node, allocations)
        return True

    def _suits_its_neighbours(self, pod: pods.Pod, node: str) -> bool:
        """Whether affinity and spread constraints, as they stand now, let the pod be on the node."""
        filters = relational.filters_of(pod, self.world)
        if filters is None:
            return True
        return (
            isinstance(filters, relational.RelationalFilters)
            and filters.misfit(self.world.nodes[node]) is None
        )

    def _former_allocations(self, pod: pods.Pod) -> dict[ObjectKey, claims.AllocationResult]:
        """By status, the devices of those claims of a pod that hold none in this trial."""
        allocations: dict[ObjectKey, claims.AllocationResult] = {}
        for key in self.world.claims_used(pod):
            claim = self.world.claims.get(key)
            if claim is None or claim.status.allocation is None:
                continue
            if self.world.allocation(key) is None:
                allocations[key] = claim.status.allocation
        return allocations


def unbound(pod: pods.Pod) -> pods.Pod:
    """The pod as if it were unbound."""
    if not pod.spec.node_name:
        return pod
    status = msgspec.structs.replace(
        pod.status, extended_resource_claim_status=None, nominated_node_name=""
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=status)


def _leaving_pods(jobs: Iterable[Job]) -> list[str]:
    return [pod_id for job in jobs for pod_id, state in job.state.items() if state is State.LEAVING]


def _nominated(pod: pods.Pod, node: str) -> pods.Pod:
    """The pod as if it were nominated for this node."""
    status = msgspec.structs.replace(pod.status, nominated_node_name=node)
    return msgspec.structs.replace(pod, status=status)


def _is_owned_by(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    return any(
        owner.controller and owner.uid == pod.metadata.uid
        for owner in claim.metadata.owner_references
    )
