"""Charges every pod of a decision to its queue, and knows what a pending pod would cost.

Given the accounts of the queues, the prices, and the undo log of the decision: a charge made inside an attempt is
undone with it. A claim is charged once, to the queue of the first pod that uses it, however many pods share it.
Never refuses anything and never moves a pod.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from dovetail.cel.effort import UNBOUNDED, TooExpensive, Unfinished
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model.reasons import Reason
from dovetail.schedule.gang.jobs import PLACED, Job, State
from dovetail.schedule.gang.settled_jobs import ClaimCharge, SettledJobs, Snapshot
from dovetail.schedule.node.find_node import SELECTORS_LEFT, too_expensive
from dovetail.schedule.node.pod_profiles import PodProfiles
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.accounts import Accounts
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.overlay import Overlay
from dovetail.schedule.queue.pricing import FREE, Price, Pricing
from dovetail.schedule.queue.pricing_cache import PricingCache
from dovetail.schedule.selector_budget import Spending
from dovetail.world.events import ObjectKey
from dovetail.world.undo_log import UndoLog
from dovetail.world.world import World

Allocations = Mapping[ObjectKey, claims.AllocationResult]


class Charges:
    """What the queues pay for in one decision."""

    def __init__(
        self,
        world: World,
        accounts: Accounts,
        pricing: Pricing,
        *,
        price_cache: PricingCache,
        profiles: PodProfiles,
        undo: UndoLog,
        settled: Snapshot,
    ) -> None:
        self._world = world
        self._accounts = accounts
        self._pricing = pricing
        self._price_cache = price_cache
        self._profiles = profiles
        self._undo = undo
        self._price_cache.refresh(world, pricing)
        self._pod_costs = Overlay(settled.pod_costs)  # by pod, without its claims
        self._claim_charges = Overlay(settled.claim_charges)
        for queue, is_fixed, cost in settled.charges:
            accounts.charge(queue, cost, is_fixed=is_fixed)
        self._pending_prices: dict[str, Price] = {}
        self.unpriced: dict[str, Reason] = {}  # pending pods whose selectors cost too much

    # Pending pods

    def price_of_pending(self, pod_id: str, pod: pods.Pod, spending: Spending) -> Price:
        """The least and the most a pending pod may cost; nothing at all while it is unpriced."""
        price = self._pending_prices.get(pod_id)
        if price is None:
            price = self._pending_prices[pod_id] = self._priced(pod_id, pod, spending)
        return price

    def _priced(self, pod_id: str, pod: pods.Pod, spending: Spending) -> Price:
        try:
            self._pricing.effort = spending.effort(pod_id)
            try:
                profile = self._profiles.of(pod_id, pod)
                return self._price_cache.waiting(
                    pod_id, pod, profile, world=self._world, pricing=self._pricing
                )
            except TooExpensive as error:
                spending.refuse(pod_id, str(error))
            except Unfinished:
                self.unpriced[pod_id] = SELECTORS_LEFT
            finally:
                self._pricing.effort = UNBOUNDED
                spending.settle(pod_id, is_answered=None)
        except TooExpensive as error:
            self.unpriced[pod_id] = too_expensive(error)

        return FREE

    # Pods on nodes

    def charge_running(
        self, jobs: Iterable[Job], node_of: Callable[[str], str], settled: SettledJobs
    ) -> None:
        """Charges every pod that has a node, as `charge` would, and settles the jobs that later decisions may skip.

        Equal costs are one object in the bills, so they are counted first and charged once per queue.
        """
        world, claim_charges = self._world, self._claim_charges
        counts: Counter[tuple[str, bool, int]] = Counter()
        costs: dict[int, Amounts] = {}

        for job in jobs:
            is_fixed = not job.is_preemptible
            for pod_id, state in job.state.items():
                if state not in PLACED:
                    continue

                price = None
                if state is State.ACTIVE and pod_id not in world.assumed:
                    price = self._price_cache.of(
                        pod_id, job.pods[pod_id], world=world, pricing=self._pricing
                    )
                if price is None or any(key in claim_charges for key, _, _ in price.claims):
                    # A claim is shared, or the pod is still being bound: no bill covers that.
                    self.charge(job, pod_id, node_of(pod_id), {})
                    continue

                costs[id(price.room)] = price.room
                counts[job.queue, is_fixed, id(price.room)] += 1
                for _, _, cost in price.claims:
                    costs[id(cost)] = cost
                    counts[job.queue, is_fixed, id(cost)] += 1
                if settled.settle(job, pod_id, price):
                    continue  # the tables below those of the decision have it
                self._pod_costs[pod_id] = price.room
                for key, _, cost in price.claims:
                    claim_charges[key] = ClaimCharge(1, job.queue, is_fixed, cost)

        for (queue, is_fixed, cost_id), count in counts.items():
            total = {name: amount * count for name, amount in costs[cost_id].items()}
            self._accounts.charge(queue, total, is_fixed=is_fixed)

    def charge_left_out(self, job: Job) -> None:
        """Charges a job that is no part of the decision for what it holds, where that can be priced."""
        for pod_id, state in job.state.items():
            if state is State.ACTIVE:
                # A fault of ours in its price may be the very reason why the job is left out.
                with contextlib.suppress(Exception):
                    self.charge(job, pod_id, job.pods[pod_id].spec.node_name, {})

    def charge(self, job: Job, pod_id: str, node: str, allocations: Allocations) -> None:
        """The pod's queue pays for it from now on."""
        self._add(job, pod_id, node, allocations)
        self._undo.note(lambda: self._remove(job, pod_id, allocations))

    def uncharge(self, job: Job, pod_id: str, node: str, allocations: Allocations) -> None:
        """The pod's queue no longer pays for it."""
        self._remove(job, pod_id, allocations)
        self._undo.note(lambda: self._add(job, pod_id, node, allocations))

    def _add(self, job: Job, pod_id: str, node: str, allocations: Allocations) -> None:
        pod = job.pods[pod_id]
        is_fixed = not job.is_preemptible
        cost = self._pricing.cost_on_node(pod, node)
        self._pod_costs[pod_id] = cost
        self._accounts.charge(job.queue, cost, is_fixed=is_fixed)

        for key in self._claims_of(pod, allocations):
            charged = self._claim_charges.get(key)
            if charged is not None:
                self._claim_charges[key] = charged._replace(users=charged.users + 1)
                continue
            allocation = allocations.get(key) or self._world.allocation(key)
            price = self._pricing.cost_of_claim(key, allocation) if allocation is not None else {}
            self._accounts.charge(job.queue, price, is_fixed=is_fixed)
            self._claim_charges[key] = ClaimCharge(1, job.queue, is_fixed, price)

    def _remove(self, job: Job, pod_id: str, allocations: Allocations) -> None:
        cost = self._pod_costs.pop(pod_id)
        self._accounts.charge(job.queue, cost, is_fixed=not job.is_preemptible, sign=-1)

        for key in self._claims_of(job.pods[pod_id], allocations):
            charged = self._claim_charges.pop(key)
            if charged.users > 1:
                self._claim_charges[key] = charged._replace(users=charged.users - 1)
            else:
                self._accounts.charge(
                    charged.queue, charged.cost, is_fixed=charged.is_fixed, sign=-1
                )

    def _claims_of(self, pod: pods.Pod, allocations: Allocations) -> tuple[ObjectKey, ...]:
        used = self._world.claims_used(pod)
        if allocations.keys() <= set(used):
            return used
        return tuple(dict.fromkeys((*used, *allocations)))

    # What is charged

    def cost_of(self, job: Job, pod_ids: Collection[str]) -> Amounts:
        """What the queue would save without these running pods: a claim other pods share stays charged."""
        cost: Amounts = {}
        users: dict[ObjectKey, int] = {}
        for pod_id in pod_ids:
            amounts.add(cost, self._pod_costs.get(pod_id) or {})
            for key in self._world.claims_used(job.pods[pod_id]):
                users[key] = users.get(key, 0) + 1

        for key, count in users.items():
            charged = self._claim_charges.get(key)
            if charged is not None and charged.users <= count:
                amounts.add(cost, charged.cost)

        return cost

    def held_by(self, job: Job, pod_id: str) -> list[Amounts]:
        """What a running pod holds: its node resources, then its claims, shared ones in full."""
        charged = self._claim_charges
        keys = self._world.claims_used(job.pods[pod_id])
        claim_costs = [charged[key].cost for key in keys if key in charged]
        if pod_id not in self._pod_costs:
            return claim_costs
        return [self._pod_costs[pod_id], *claim_costs]
