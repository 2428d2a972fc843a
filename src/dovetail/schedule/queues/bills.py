"""Keeps what pods cost, those that run and those that wait, from one decision to the next: most outlast many of them.

A bill holds for as long as the pod and its claims are the same objects, and nothing else that prices depend on changed.
Equal amounts are one object, so that whoever sums up may count instead. Never keeps accounts.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model import claims, pods
from dovetail.schedule.queues.amounts import Amounts
from dovetail.schedule.queues.tariff import Price, Tariff
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class Bill(NamedTuple):
    """What a pod costs on its node, and what each of its claims does."""

    pod: pods.Pod
    room: Amounts
    claims: tuple[tuple[ObjectKey, claims.ResourceClaim, Amounts], ...]


class Estimate(NamedTuple):
    """What a pod that waits may cost, and the claims that it would need devices for."""

    pod: pods.Pod
    price: Price
    claims: tuple[tuple[ObjectKey, claims.ResourceClaim], ...]


class Bills:
    """Bills by pod."""

    def __init__(self) -> None:
        self._known: dict[str, Bill] = {}
        self._waiting: dict[str, Estimate] = {}
        self._equal: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self._basis: object = None

    def bring_up(self, world: World, tariff: Tariff) -> None:
        """Forgets all bills where prices may be others, and those of pods that are gone once they are many."""
        basis = (world.nodes_version, world.classes_version, world.slices_version, tariff.basis)
        if self._basis != basis:
            self._basis = basis
            self._known.clear()
            self._waiting.clear()
            self._equal.clear()
        elif len(self._known) + len(self._waiting) > 2 * len(world.pods) + 64:
            self._known = {id_: bill for id_, bill in self._known.items() if id_ in world.running()}
            self._waiting = {id_: one for id_, one in self._waiting.items() if id_ in world.pods}

    def of(self, id_: str, pod: pods.Pod, *, world: World, tariff: Tariff) -> Bill | None:
        """The bill of a pod on a node; None where a claim of its has no devices by its status."""
        known = self._known.get(id_)
        if known is not None and known.pod is pod:
            for key, claim, _ in known.claims:
                if world.claims.get(key) is not claim:
                    break
            else:
                return known
        made = self._made(pod, world, tariff)
        if made is not None:
            self._known[id_] = made
        return made

    def waiting(self, id_: str, pod: pods.Pod, *, world: World, tariff: Tariff) -> Price:
        """The least and the most a pod that waits may cost. Not to be changed."""
        known = self._waiting.get(id_)
        if known is not None and known.pod is pod:
            for key, claim in known.claims:
                if world.claims.get(key) is not claim or world.allocation(key) is not None:
                    break
            else:
                return known.price
        price = tariff.waiting(pod)
        keys = world.claims_used(pod)
        fresh = [(key, world.claims[key]) for key in keys if key in world.claims and world.allocation(key) is None]
        if len(fresh) == len(keys) == len(pod.spec.resource_claims):  # else it depends on more than these
            self._waiting[id_] = Estimate(pod, price, tuple(fresh))
        return price

    def _made(self, pod: pods.Pod, world: World, tariff: Tariff) -> Bill | None:
        found: list[tuple[ObjectKey, claims.ResourceClaim, Amounts]] = []
        for key in world.claims_used(pod):
            claim = world.claims.get(key)
            if claim is None or claim.status.allocation is None:
                return None
            found.append((key, claim, self._one(tariff.of_claim(key, claim.status.allocation))))
        return Bill(pod, self._one(tariff.of_room(pod, pod.spec.node_name)), tuple(found))

    def _one(self, found: Amounts) -> Amounts:
        return self._equal.setdefault(tuple(found.items()), found)
