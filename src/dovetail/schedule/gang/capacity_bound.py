"""Keeps how many GPUs and cpus nodes have free in the World as it stands, and rules out cheaply that pods fit.

Follows the World's journal, so that only nodes that changed are counted again. The bound is optimistic: a no is
certain, a yes proves nothing. Given a transaction; never places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts
from dovetail.world.devices import gpu_ledger


class FreeCapacity:
    """What is free on every node."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._ledger = gpu_ledger.Ledger()
        self._free: dict[str, tuple[int, int]] = {}  # by node, thousandths of GPUs and of cpus
        self._journal_position = -1

    def free(self, nodes: Collection[str]) -> tuple[int, int]:
        """Thousandths of GPUs and of cpus that are free on these nodes together."""
        self._refresh()
        offers = [self._on(node) for node in nodes]
        return sum(gpus for gpus, _ in offers), sum(cpus for _, cpus in offers)

    def could_hold(self, nodes: Collection[str], pod_ids: Sequence[str]) -> bool:
        """Whether these pods might fit on these nodes, now or once leaving pods are gone."""
        costs = [self._transaction.price_of_pending(pod_id)[0] for pod_id in pod_ids]
        index, name = 1, amounts.CPU
        if any(cost.get(amounts.GPU) for cost in costs):
            index, name = 0, amounts.GPU
        smallest = min(cost.get(name, 0) for cost in costs)
        if smallest <= 0:
            return True

        if self._has_slots(nodes, index, smallest, len(pod_ids)):
            return True
        transaction = self._transaction
        if transaction.is_after_evictions or not transaction.has_leaving_capacity:
            return False
        with transaction.after_evictions():
            return self._has_slots(nodes, index, smallest, len(pod_ids))

    def _has_slots(self, nodes: Collection[str], index: int, size: int, count: int) -> bool:
        """Whether these nodes have room for so many pods of the smallest size."""
        self._refresh()
        slots = 0
        for node in nodes:
            free = self._on(node)[index]
            if free > 0:
                slots += free // size
            if slots >= count:
                return True
        return False

    def _refresh(self) -> None:
        journal = self._transaction.world.node_changes
        changed_nodes = journal.since(self._journal_position)
        self._journal_position = journal.end
        if changed_nodes is None:
            self._free.clear()
            return
        for node in changed_nodes:
            self._free.pop(node, None)

    def _on(self, node: str) -> tuple[int, int]:
        offer = self._free.get(node)
        if offer is None:
            world = self._transaction.world
            free = world.free(node)
            gpus = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
            gpus += self._transaction.pricing.gpus_of(free, world.nodes[node].metadata.labels)
            offer = self._free[node] = (gpus, free.milli_cpu)
        return offer
