"""Rules out eviction scenarios cheaply: a node can offer at most what is free plus what its victims hold.

Counts GPUs, cpu and memory, with every pod taken as small as the smallest of its gang. The bound is optimistic: a
no is certain, a yes proves nothing. Free capacity is kept from job to job until `changed` names nodes. Given a
transaction; never tries a scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from dovetail.schedule.evict.claim_groups import VictimGroup
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts
from dovetail.world.devices import gpu_ledger

Offer = tuple[int, int, int]  # thousandths of GPUs and of cpus, bytes of memory
NOTHING: Final[Offer] = (0, 0, 0)
MANY: Final = 1 << 30  # slots for pods that request nothing we count


class NodeOffers:
    """What nodes have free once leaving pods are gone, and what running pods hold: GPUs, cpu, memory."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._ledger = gpu_ledger.Ledger()
        self._held: dict[str, Offer] = {}  # by pod
        self._offers: dict[tuple[int, ...], tuple[Offer, list[amounts.Amounts]]] = {}
        self._free: dict[str, Offer] | None = None
        self._without_victims: dict[str, Offer] | None = None  # free, plus jobs counted so far
        self._uncounted: Iterator[Job] = iter(())  # jobs that are not in it yet

    def free(self) -> dict[str, Offer]:
        """By node, what is free."""
        if self._free is None:
            with self._transaction.after_evictions():
                self._free = {node: self._on(node) for node in self._transaction.world.nodes}
        return self._free

    def growing(self) -> Iterator[Mapping[str, Offer]]:
        """By node, what evictions would free: with more and more jobs evicted, in the end all that may be.

        The caller looks at every node each time, so each round adds at least as many jobs as there are nodes, and twice
        as many as the round before.
        """
        if self._without_victims is None:
            self._without_victims = dict(self.free())
            self._uncounted = iter(self._transaction.running_jobs())
        yield self._without_victims

        size = len(self._without_victims)
        while batch := list(itertools.islice(self._uncounted, size)):
            self._add(batch, self._without_victims)
            yield self._without_victims
            size *= 2

    def _add(self, jobs: Iterable[Job], offers: dict[str, Offer]) -> None:
        for job in jobs:
            for pod_id in job.active():
                node = self._transaction.node_of(pod_id)
                if node in offers:
                    offers[node] = _plus(offers[node], self.held(pod_id))

    def held(self, pod_id: str) -> Offer:
        """What a running pod holds."""
        offer = self._held.get(pod_id)
        if offer is None:
            offer = self._held[pod_id] = self._held_amounts(pod_id)
        return offer

    def _held_amounts(self, pod_id: str) -> Offer:
        costs = self._transaction.charges.held_by(self._transaction.job_of(pod_id), pod_id)
        # Equal costs are mostly one object. The entry keeps the list, so that no id is used again.
        key = tuple(map(id, costs))
        if key not in self._offers:
            total = amounts.total(costs)
            gpus = total.get(amounts.GPU, 0) + 1  # parts of a GPU were rounded
            offer = (gpus, total.get(amounts.CPU, 0), total.get(amounts.MEMORY, 0))
            self._offers[key] = (offer, costs)
        return self._offers[key][0]

    def changed(self, nodes: Iterable[str]) -> None:
        """Pods were placed on these nodes, or evicted from them."""
        self._without_victims = None
        if self._free is None:
            return
        known_nodes = self._transaction.world.nodes
        with self._transaction.after_evictions():
            for node in set(nodes):
                if node in known_nodes:
                    self._free[node] = self._on(node)

    def _on(self, node: str) -> Offer:
        world = self._transaction.world
        free = world.free(node)
        gpus = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
        gpus += self._transaction.pricing.gpus_of(free, world.nodes[node].metadata.labels)
        return gpus, free.milli_cpu, free.memory_bytes


class ScenarioBounds:
    """What nodes could offer the next pods of one job."""

    def __init__(
        self, transaction: Transaction, offers: NodeOffers, pod_ids: Sequence[str]
    ) -> None:
        self._stage = transaction
        self._offers = offers
        costs = [transaction.price_of_pending(pod_id)[0] for pod_id in pod_ids]
        self._smallest: Offer = (
            min(cost.get(amounts.GPU, 0) for cost in costs),
            min(cost.get(amounts.CPU, 0) for cost in costs),
            min(cost.get(amounts.MEMORY, 0) for cost in costs),
        )
        needs_gpus = any(cost.get(amounts.GPU) for cost in costs)
        # The resource that decides: its place in an offer, and its name.
        self._main, main_name = (0, amounts.GPU) if needs_gpus else (1, amounts.CPU)
        self._requests = [cost.get(main_name, 0) for cost in costs]
        self._slots_by_offer: dict[Offer, int] = {}
        self._free = offers.free()
        self.slots = self._slots_in(self._free.values())

        free_amounts = [offer[self._main] for offer in self._free.values()]
        self._total_free = sum(amount for amount in free_amounts if amount > 0)
        self._largest_free = max(free_amounts, default=0)

    def _slots(self, offer: Offer) -> int:
        """How many of the smallest pods an offer might hold. Cached: few offers differ, and many are looked up."""
        slots = self._slots_by_offer.get(offer)
        if slots is None:
            pairs = zip(offer, self._smallest, strict=True)
            per_resource = [max(have, 0) // need for have, need in pairs if need > 0]
            slots = self._slots_by_offer[offer] = min(per_resource, default=MANY)
        return slots

    def _slots_in(self, offers: Iterable[Offer]) -> int:
        return sum(map(self._slots, offers))

    def could_ever_fit(self) -> bool:
        """Whether the pods might fit if every job were evicted that may be."""
        return any(self._could_hold(offers.values()) for offers in self._offers.growing())

    def _could_hold(self, offers: Collection[Offer]) -> bool:
        largest = max((offer[self._main] for offer in offers), default=0)
        if largest < max(self._requests):
            return False
        return self._slots_in(offers) >= len(self._requests)

    def could_fit(self, count: int, victims: Iterable[str]) -> bool:
        """Whether the first `count` pods might fit once these victims are gone."""
        freed = self._freed(victims)
        largest = max((offer[self._main] for offer in freed.values()), default=0)
        if max(largest, self._largest_free) < max(self._requests[:count]):
            return False
        return self._slots_with(freed) >= count

    def slots_without(self, victims: Iterable[str]) -> int:
        """How many of the smallest pods might fit once these victims are gone."""
        return self._slots_with(self._freed(victims))

    def _freed(self, victims: Iterable[str]) -> dict[str, Offer]:
        """By node of these victims, what is free there without them."""
        freed: dict[str, Offer] = {}
        for pod_id in victims:
            node = self._stage.node_of(pod_id)
            if node in self._free:
                offer = freed.get(node, self._free[node])
                freed[node] = _plus(offer, self._offers.held(pod_id))
        return freed

    def _slots_with(self, freed: Mapping[str, Offer]) -> int:
        # Only the nodes of the victims changed: replace their slots in the sum instead of adding up all nodes.
        before = self._slots_in(self._free[node] for node in freed)
        return self.slots - before + self._slots_in(freed.values())

    def gains_after(self, victims: Iterable[VictimGroup]) -> NodeGains:
        """What one more node could add to what these victims free."""
        pod_ids = [pod_id for victim in victims for pod_id in victim.pod_ids]
        chosen_nodes = {self._stage.node_of(pod_id) for pod_id in pod_ids}
        return NodeGains(self, chosen_nodes, self.slots_without(pod_ids))

    def slots_of(self, offer: Offer) -> int:
        """How many of the smallest pods an offer might hold."""
        return self._slots(offer)

    def free_on(self, node: str) -> Offer:
        """What is free on a node."""
        return self._free.get(node, NOTHING)

    def held_on(self, node: str, victim: VictimGroup) -> Iterator[Offer]:
        """What each pod of a victim holds on a node. Counts as a step."""
        self._stage.steps.spend(1)
        return self._held_on(node, (victim,))

    def ripe_after(self, node: str, victims: Sequence[Sequence[VictimGroup]]) -> int | None:
        """The index of the victim with whose eviction, after all before it, one of the pods might fit on a node."""
        self._stage.steps.spend(1 + len(victims) // 16)
        offer = self._free.get(node, NOTHING)
        for index, groups in enumerate(victims):
            for freed in self._held_on(node, groups):
                offer = _plus(offer, freed)
            if self._slots(offer) > 0:
                return index
        return None

    def must_go(self, node: str, victims: Sequence[Sequence[VictimGroup]]) -> list[int] | None:
        """The indexes of the victims that have to go by these counts, where the first ones stay if they can.

        None if the pod would not fit even without all of them.
        """
        offer = self._offer_without(node, list(itertools.chain.from_iterable(victims)))
        if not self._slots(offer):
            return None

        going: list[int] = []
        for index, groups in enumerate(victims):
            remaining = offer
            for restored in self._held_on(node, groups):
                remaining = _minus(remaining, restored)
            if self._slots(remaining) > 0:
                offer = remaining
            else:
                going.append(index)
        return going

    def slots_gained(self, node: str, victims: Sequence[VictimGroup]) -> int:
        """How many more of the smallest pods might fit on a node once these victims are gone from it."""
        free_slots = self._slots(self._free.get(node, NOTHING))
        return self._slots(self._offer_without(node, victims)) - free_slots

    def _offer_without(self, node: str, victims: Sequence[VictimGroup]) -> Offer:
        self._stage.steps.spend(1 + len(victims) // 16)
        offer = self._free.get(node, NOTHING)
        for freed in self._held_on(node, victims):
            offer = _plus(offer, freed)
        return offer

    def _held_on(self, node: str, victims: Iterable[VictimGroup]) -> Iterator[Offer]:
        """What each pod of these victims holds on a node."""
        node_of, amounts_of = self._stage.node_of, self._offers.held
        for victim in victims:
            for pod_id in victim.pod_ids:
                if node_of(pod_id) == node:
                    yield amounts_of(pod_id)

    def is_free_in_total(self, *, slack: int = 1) -> bool:
        """Whether the free capacity of all nodes, so many times, would do if it were on one node."""
        return self._total_free * slack >= sum(self._requests)

    def by_promise(self, nodes: Iterable[str]) -> list[str]:
        """Nodes with victims, those with the most free capacity first."""
        return sorted(nodes, key=lambda node: (-self._free.get(node, NOTHING)[self._main], node))


class NodeGains:
    """What every node would add if victims left it one by one, on top of victims that were chosen before.

    Certain where it says that a node does not add enough: counts are kept as victims come, instead of adding up all
    victims of a node again for each of them.
    """

    def __init__(self, bounds: ScenarioBounds, chosen_nodes: Collection[str], slots: int) -> None:
        self._bounds = bounds
        self._slots = slots  # once the victims chosen before are gone
        self._offers: dict[str, Offer] = {}  # by node, without its victims so far
        # Where the count of one node says too little: victims were chosen there before, or leave other nodes as well.
        self._uncounted = set(chosen_nodes)

    def add(self, node: str, victim: VictimGroup, *, is_spread: bool) -> None:
        """One more victim of a node; `is_spread` where it leaves other nodes as well."""
        offer = self._offers.get(node)
        if offer is None:
            offer = self._bounds.free_on(node)
        for freed in self._bounds.held_on(node, victim):
            offer = _plus(offer, freed)
        self._offers[node] = offer
        if is_spread:
            self._uncounted.add(node)

    def is_ripe(self, node: str) -> bool:
        """Whether one of the pods might fit on a node without its victims so far."""
        return self._bounds.slots_of(self._offers[node]) > 0

    def might_reach(self, count: int, node: str) -> bool:
        """Whether so many pods might fit without the victims chosen before and those of the node so far."""
        if node in self._uncounted:
            return True
        bounds = self._bounds
        gained = bounds.slots_of(self._offers[node]) - bounds.slots_of(bounds.free_on(node))
        return self._slots + gained >= count


def _plus(offer: Offer, more: Offer) -> Offer:
    return offer[0] + more[0], offer[1] + more[1], offer[2] + more[2]


def _minus(offer: Offer, less: Offer) -> Offer:
    return offer[0] - less[0], offer[1] - less[1], offer[2] - less[2]


def nodes_of(transaction: Transaction, job: Job) -> list[str]:
    """The nodes a job was given in this decision."""
    return [
        transaction.placements[pod_id].choice.node
        for pod_id in job.pods
        if pod_id in transaction.placements
    ]
