"""Says cheaply that a scenario cannot do: a node has at most what is free on it and what its victims hold.

Only GPUs are counted, or cpu where no GPU is asked for; a yes proves nothing. What nodes have free is kept from job to
job until somebody is told that it changed. Given a stage; never tries anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts
from dovetail.world import ledger


class Portion(NamedTuple):
    """Pods of a job that would yield together."""

    job: Job
    ids: tuple[str, ...]


class Room:
    """What nodes have free once those who leave are gone, and what victims hold."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ledger = ledger.Ledger()
        self._held: dict[tuple[str, str], int] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._most: dict[str, dict[str, int]] = {}

    def free(self, name: str) -> dict[str, int]:
        """By node, what is free of a resource."""
        if name not in self._free:
            with self._stage.later():
                self._free[name] = {node: self._on(node, name) for node in self._stage.world.nodes}
        return self._free[name]

    def most(self, name: str) -> dict[str, int]:
        """By node, what would be free if everybody yielded who ever may."""
        if name not in self._most:
            offers = dict(self.free(name))
            for job in self._stage.running_jobs():
                for id_ in job.active():
                    node = self._stage.node_of(id_)
                    offers[node] = offers.get(node, 0) + self.held(id_, name)
            self._most[name] = offers
        return self._most[name]

    def held(self, id_: str, name: str) -> int:
        """What a running pod holds of a resource."""
        known = self._held.get((id_, name))
        if known is None:
            job = self._stage.job_of(id_)
            known = self._held[id_, name] = self._stage.most_of(job, id_).get(name, 0) + 1  # parts were rounded
        return known

    def changed(self, nodes: Iterable[str]) -> None:
        """Somebody came to these nodes, or has to leave them."""
        touched = [node for node in set(nodes) if node in self._stage.world.nodes]
        self._most.clear()
        with self._stage.later():
            for name, known in self._free.items():
                known.update({node: self._on(node, name) for node in touched})

    def _on(self, node: str, name: str) -> int:
        world = self._stage.world
        if name == amounts.CPU:
            return world.free(node).milli_cpu
        found = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
        return found + self._stage.tariff.gpus_of(world.free(node), world.nodes[node].metadata.labels)


class Bounds:
    """What nodes could offer the next pods of one job."""

    def __init__(self, stage: Stage, room: Room, ids: Sequence[str]) -> None:
        self._stage = stage
        self._room = room
        asked = [stage.waits_for(id_)[0] for id_ in ids]
        self._name = amounts.GPU if any(one.get(amounts.GPU) for one in asked) else amounts.CPU
        self._asked = [one.get(self._name, 0) for one in asked]
        self._smallest = min(self._asked)
        self._free = room.free(self._name)
        self.slots = self._slots_in(self._free.values())
        self._total = sum(offer for offer in self._free.values() if offer > 0)
        self._largest = max(self._free.values(), default=0)

    def _slots_in(self, offers: Iterable[int]) -> int:
        return sum(offer // self._smallest for offer in offers if offer > 0) if self._smallest > 0 else 0

    def could_ever_fit(self) -> bool:
        """Whether the pods might fit if everybody yielded who ever may."""
        offers = self._room.most(self._name).values()
        if self._smallest <= 0:
            return True
        return max(offers, default=0) >= max(self._asked) and self._slots_in(offers) >= len(self._asked)

    def could_fit(self, count: int, victims: Iterable[str]) -> bool:
        """Whether so many of the pods might fit once these victims are gone."""
        if self._smallest <= 0:
            return True
        freed: dict[str, int] = {}
        for id_ in victims:
            node = self._stage.node_of(id_)
            if node in self._free:
                freed[node] = freed.get(node, 0) + self._room.held(id_, self._name)
        asked = self._asked[:count]
        largest = max((self._free[node] + more for node, more in freed.items()), default=0)
        if max(largest, self._largest) < max(asked) or self._total + sum(freed.values()) < sum(asked):
            return False
        before = self._slots_in(self._free[node] for node in freed)
        return self.slots - before + self._slots_in(self._free[n] + more for n, more in freed.items()) >= count

    def is_ripe(self, node: str, victims: Iterable[Portion]) -> bool:
        """Whether one of the pods might fit on a node once these victims are gone from it."""
        return self._smallest <= 0 or self._offer(node, victims) >= self._smallest

    def slots_gained(self, node: str, victims: Iterable[Portion]) -> int:
        """How many more of the smallest pods might fit on a node once these victims are gone from it."""
        if self._smallest <= 0:
            return 0
        return self._offer(node, victims) // self._smallest - max(self._free.get(node, 0), 0) // self._smallest

    def _offer(self, node: str, victims: Iterable[Portion]) -> int:
        offer = self._free.get(node, 0)
        for one in victims:
            for id_ in one.ids:
                if self._stage.node_of(id_) == node:
                    offer += self._room.held(id_, self._name)
        return offer

    def is_free_in_total(self) -> bool:
        """Whether what is free everywhere would do, were it in one place."""
        return self._total >= sum(self._asked)

    def by_promise(self, nodes: Iterable[str]) -> list[str]:
        """Nodes with victims, those that have most free already first."""
        return sorted(nodes, key=lambda node: (-self._free.get(node, 0), node))


def nodes_of(stage: Stage, job: Job) -> list[str]:
    """The nodes a job was given in this decision."""
    return [stage.given[id_].found.node for id_ in job.pods if id_ in stage.given]
