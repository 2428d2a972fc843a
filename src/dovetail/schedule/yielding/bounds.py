"""Says cheaply that a scenario cannot do: a node has at most what is free on it and what its victims hold.

Only GPUs are counted, or cpu where no GPU is asked for; a yes proves nothing. Given a stage and the pods to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts
from dovetail.world import ledger


class Bounds:
    """What nodes could offer the next pods of one job."""

    def __init__(self, stage: Stage, job: Job, ids: Sequence[str]) -> None:
        self._stage = stage
        self._ledger = ledger.Ledger()
        asked = [stage.tariff.waiting(job.pods[id_])[0] for id_ in ids]
        is_gpu = any(one.get(amounts.GPU) for one in asked)
        self._name = amounts.GPU if is_gpu else amounts.CPU
        self._asked = [one.get(self._name, 0) for one in asked]
        with stage.later():
            self._free = {node: self._free_on(node) for node in stage.world.nodes}
        self._held: dict[str, int] = {}

    def _free_on(self, node: str) -> int:
        world = self._stage.world
        if self._name == amounts.CPU:
            return world.free(node).milli_cpu
        found = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
        return found + self._stage.tariff.gpus_of(world.free(node), world.nodes[node].metadata.labels)

    def _holds(self, id_: str) -> int:
        known = self._held.get(id_)
        if known is None:
            job = self._stage.job_of(id_)
            known = self._held[id_] = self._stage.cost_of(job, (id_,)).get(self._name, 0)
        return known

    def could_fit(self, count: int, victims: Iterable[str]) -> bool:
        """Whether so many of the pods might fit once these victims are gone."""
        asked = self._asked[:count]
        smallest, largest = min(asked), max(asked)
        if smallest <= 0:
            return True
        offers = dict(self._free)
        for id_ in victims:
            node = self._stage.node_of(id_)
            if node in offers:
                offers[node] += self._holds(id_)
        if max(offers.values(), default=0) < largest or sum(offers.values()) < sum(asked):
            return False
        return sum(offer // smallest for offer in offers.values() if offer > 0) >= len(asked)

    def is_free_in_total(self) -> bool:
        """Whether what is free everywhere would do, were it in one place."""
        return sum(offer for offer in self._free.values() if offer > 0) >= sum(self._asked)

    def nodes_by_promise(self, nodes: Iterable[str]) -> list[str]:
        """Nodes with victims, those that would offer most first."""
        offers = {node: self._free.get(node, 0) for node in nodes}
        return sorted(offers, key=lambda node: (-offers[node], node))

    def fewest(self, nodes: Sequence[str], count: int) -> int:
        """How many of these nodes it takes at least to hold what is asked."""
        return max(min(count, len(nodes)), 1)
