"""Keeps what nodes have free in the world as it is just now, in GPUs and cpu, and says cheaply that pods cannot fit.

Follows the world's journal, so that only nodes that changed are looked at again. An upper bound: a yes proves nothing.
Given a stage; never places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts
from dovetail.world import ledger


class Roominess:
    """What is free on every node."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ledger = ledger.Ledger()
        self._free: dict[str, tuple[int, int]] = {}
        self._read = -1  # position in the world's journal

    def free(self, nodes: Collection[str]) -> tuple[int, int]:
        """Thousandths of GPUs and of cpus that are free on these nodes together."""
        self._refresh()
        found = [self._on(node) for node in nodes]
        return sum(gpus for gpus, _ in found), sum(cpus for _, cpus in found)

    def could_hold(self, nodes: Collection[str], ids: Sequence[str]) -> bool:
        """Whether these pods might fit on these nodes, now or once those who leave are gone."""
        asked = [self._stage.waits_for(id_)[0] for id_ in ids]
        place = 0 if any(one.get(amounts.GPU) for one in asked) else 1
        sizes = [one.get(amounts.CPU if place else amounts.GPU, 0) for one in asked]
        smallest = min(sizes)
        if smallest <= 0:
            return True
        return self._holds(nodes, sizes, place) or self._holds_later(nodes, sizes, place)

    def _holds(self, nodes: Collection[str], sizes: Sequence[int], place: int) -> bool:
        self._refresh()
        smallest, slots = min(sizes), 0
        for node in nodes:
            offer = self._on(node)[place]
            if offer > 0:
                slots += offer // smallest
            if slots >= len(sizes):
                return True
        return False

    def _holds_later(self, nodes: Collection[str], sizes: Sequence[int], place: int) -> bool:
        stage = self._stage
        if stage.is_later or not stage.frees_later:
            return False
        with stage.later():
            return self._holds(nodes, sizes, place)

    def _refresh(self) -> None:
        journal = self._stage.world.journal
        noted = journal.since(self._read)
        self._read = journal.end
        if noted is None:
            self._free.clear()
            return
        for node in noted:
            self._free.pop(node, None)

    def _on(self, node: str) -> tuple[int, int]:
        known = self._free.get(node)
        if known is None:
            world = self._stage.world
            free = world.free(node)
            gpus = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
            gpus += self._stage.tariff.gpus_of(free, world.nodes[node].metadata.labels)
            known = self._free[node] = (gpus, free.milli_cpu)
        return known
