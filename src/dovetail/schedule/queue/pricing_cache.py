"""Keeps what pods cost, running and pending ones, from one decision to the next: most outlast many decisions.

A bill holds as long as the pod and its claims are the same objects, and nothing else that prices depend on changed.
Equal amounts are one object, so that sums can be counted instead. Never keeps accounts.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.schedule.node import equivalence
from dovetail.schedule.node.pod_profiles import PodProfile
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.pricing import Price, Pricing
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class PodPrice(NamedTuple):
    """What a pod costs on its node, and what each of its claims does."""

    pod: pods.Pod
    room: Amounts
    claims: tuple[tuple[ObjectKey, claims.ResourceClaim, Amounts], ...]


class Estimate(NamedTuple):
    """What a pending pod may cost, and the claims it needs devices for."""

    pod: pods.Pod
    price: Price
    claims: tuple[tuple[ObjectKey, claims.ResourceClaim], ...]


class PricingCache:
    """Bills by pod."""

    def __init__(self) -> None:
        self._price_cache: dict[str, PodPrice] = {}
        self._estimates: dict[str, Estimate] = {}
        self._equal: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self.basis: object = None  # what all prices depend on besides pods and claims
        self._capacity: Amounts | None = None
        self._by_kind: dict[int, tuple[equivalence.Key, Price]] = {}  # by identity of the kind

    def capacity(self, world: World, pricing: Pricing) -> Amounts:
        """The capacity of the cluster, added up again where prices may have changed. Must not be modified."""
        self.refresh(world, pricing)
        if self._capacity is None:
            self._capacity = pricing.capacity()
        return self._capacity

    def refresh(self, world: World, pricing: Pricing) -> None:
        """Forgets all bills where prices may have changed, and those of deleted pods once they are many."""
        basis = (world.nodes_version, world.classes_version, world.slices_version, pricing.basis)
        if self.basis != basis:
            self.basis = basis
            self._capacity = None
            self._price_cache.clear()
            self._estimates.clear()
            self._equal.clear()
            self._by_kind.clear()
        elif (
            len(self._price_cache) + len(self._estimates) + len(self._by_kind)
            > 2 * len(world.pods) + 64
        ):
            self._by_kind.clear()
            running = world.running()
            self._price_cache = {
                pod_id: price for pod_id, price in self._price_cache.items() if pod_id in running
            }
            self._estimates = {
                pod_id: estimate
                for pod_id, estimate in self._estimates.items()
                if pod_id in world.pods
            }

    def of(self, pod_id: str, pod: pods.Pod, *, world: World, pricing: Pricing) -> PodPrice | None:
        """The bill of a pod on a node; None where one of its claims has no devices by its status."""
        price = self._price_cache.get(pod_id)
        if price is not None and price.pod is pod:
            for key, claim, _ in price.claims:
                if world.claims.get(key) is not claim:
                    break
            else:
                return price

        price = self._new_bill(pod, world, pricing)
        if price is not None:
            self._price_cache[pod_id] = price
        return price

    def waiting(
        self,
        pod_id: str,
        pod: pods.Pod,
        profile: PodProfile | None,
        *,
        world: World,
        pricing: Pricing,
    ) -> Price:
        """The least and the most a pending pod may cost; the same for all pods of a kind. Must not be modified."""
        if profile is not None:
            known = self._by_kind.get(id(profile.kind))
            if known is None:
                # The key keeps the kind alive, so that no other object gets its id.
                known = self._by_kind[id(profile.kind)] = (profile.kind, pricing.waiting(pod))
            return known[1]

        estimate = self._estimates.get(pod_id)
        if estimate is not None and estimate.pod is pod:
            for key, claim in estimate.claims:
                if world.claims.get(key) is not claim or world.allocation(key) is not None:
                    break
            else:
                return estimate.price

        price = pricing.waiting(pod)
        keys = world.claims_used(pod)
        unallocated = [
            (key, world.claims[key])
            for key in keys
            if key in world.claims and world.allocation(key) is None
        ]
        # Kept only where the price depends on these claims alone: none is missing, none has devices.
        if len(unallocated) == len(keys) == len(pod.spec.resource_claims):
            self._estimates[pod_id] = Estimate(pod, price, tuple(unallocated))
        return price

    def _new_bill(self, pod: pods.Pod, world: World, pricing: Pricing) -> PodPrice | None:
        claim_costs: list[tuple[ObjectKey, claims.ResourceClaim, Amounts]] = []
        for key in world.claims_used(pod):
            claim = world.claims.get(key)
            if claim is None or claim.status.allocation is None:
                return None
            cost = pricing.cost_of_claim(key, claim.status.allocation)
            claim_costs.append((key, claim, self._shared(cost)))
        room = self._shared(pricing.cost_on_node(pod, pod.spec.node_name))
        return PodPrice(pod, room, tuple(claim_costs))

    def _shared(self, cost: Amounts) -> Amounts:
        """The one object for equal amounts."""
        return self._equal.setdefault(tuple(cost.items()), cost)
