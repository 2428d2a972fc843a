"""Says cheaply that a scenario cannot do: a node has at most what is free on it and what its victims hold.

GPUs, cpu and memory are counted, all pods being as small as the smallest; a yes proves nothing. What nodes have free is
kept from job to job until somebody is told that it changed. Given a stage; never tries anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts
from dovetail.world import ledger

Offer = tuple[int, int, int]  # thousandths of GPUs and of cpus, bytes of memory
NOTHING: Final[Offer] = (0, 0, 0)
MANY: Final = 1 << 30  # pods that want nothing we count


class Portion(NamedTuple):
    """Pods of a job that would yield together."""

    job: Job
    ids: tuple[str, ...]


class Room:
    """What nodes have free once those who leave are gone, and what victims hold: GPUs, cpu, memory."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ledger = ledger.Ledger()
        self._held: dict[str, Offer] = {}
        self._offers: dict[tuple[int, ...], tuple[Offer, list[amounts.Amounts]]] = {}
        self._free: dict[str, Offer] | None = None
        self._most: dict[str, Offer] | None = None
        self._rest: Iterator[Job] = iter(())  # who is not in it yet

    def free(self) -> dict[str, Offer]:
        """By node, what is free."""
        if self._free is None:
            with self._stage.later():
                self._free = {node: self._on(node) for node in self._stage.world.nodes}
        return self._free

    def growing(self) -> Iterator[Mapping[str, Offer]]:
        """By node, what would be free if those yielded who ever may: more and more of them, at last everybody."""
        if self._most is None:
            self._most = dict(self.free())
            self._rest = iter(self._stage.running_jobs())
        yield self._most
        size = len(self._most)  # whoever looks at all nodes each time may as well look at so many jobs
        while some := list(itertools.islice(self._rest, size)):
            self._add(some, self._most)
            yield self._most
            size *= 2

    def _add(self, jobs: Iterable[Job], offers: dict[str, Offer]) -> None:
        for job in jobs:
            for id_ in job.active():
                node = self._stage.node_of(id_)
                if node in offers:
                    offers[node] = _plus(offers[node], self.held(id_))

    def held(self, id_: str) -> Offer:
        """What a running pod holds."""
        known = self._held.get(id_)
        if known is None:
            costs = self._stage.held_by(self._stage.job_of(id_), id_)
            key = tuple(map(id, costs))  # what costs the same is mostly one object, which the stage keeps
            if key not in self._offers:
                cost = amounts.total(costs)
                gpus = cost.get(amounts.GPU, 0) + 1  # parts were rounded
                self._offers[key] = (gpus, cost.get(amounts.CPU, 0), cost.get(amounts.MEMORY, 0)), costs
            known = self._held[id_] = self._offers[key][0]
        return known

    def changed(self, nodes: Iterable[str]) -> None:
        """Somebody came to these nodes, or has to leave them."""
        self._most = None
        if self._free is not None:
            with self._stage.later():
                self._free.update({node: self._on(node) for node in set(nodes) if node in self._stage.world.nodes})

    def _on(self, node: str) -> Offer:
        world = self._stage.world
        free = world.free(node)
        gpus = sum(self._ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
        gpus += self._stage.tariff.gpus_of(free, world.nodes[node].metadata.labels)
        return gpus, free.milli_cpu, free.memory_bytes


class Bounds:
    """What nodes could offer the next pods of one job."""

    def __init__(self, stage: Stage, room: Room, ids: Sequence[str]) -> None:
        self._stage = stage
        self._room = room
        costs = [stage.waits_for(id_)[0] for id_ in ids]
        names = (amounts.GPU, amounts.CPU, amounts.MEMORY)
        self._least: Offer = tuple(min(one.get(name, 0) for one in costs) for name in names)  # type: ignore[assignment]
        self._main = 0 if any(one.get(amounts.GPU) for one in costs) else 1
        self._asked = [one.get(names[self._main], 0) for one in costs]
        self._known: dict[Offer, int] = {}  # by offer, how many of the pods it might hold
        self._free = room.free()
        self.slots = self._slots_in(self._free.values())
        self._total = sum(offer[self._main] for offer in self._free.values() if offer[self._main] > 0)
        self._largest = max((offer[self._main] for offer in self._free.values()), default=0)

    def _slots(self, offer: Offer) -> int:
        """How many of the smallest pods an offer might hold. Few offers differ, and many are asked about."""
        found = self._known.get(offer)
        if found is None:
            parts = [max(have, 0) // need for have, need in zip(offer, self._least, strict=True) if need > 0]
            found = self._known[offer] = min(parts, default=MANY)
        return found

    def _slots_in(self, offers: Iterable[Offer]) -> int:
        return sum(map(self._slots, offers))

    def could_ever_fit(self) -> bool:
        """Whether the pods might fit if everybody yielded who ever may."""
        return any(self._hold(offers.values()) for offers in self._room.growing())

    def _hold(self, offers: Collection[Offer]) -> bool:
        largest = max((offer[self._main] for offer in offers), default=0)
        return largest >= max(self._asked) and self._slots_in(offers) >= len(self._asked)

    def could_fit(self, count: int, victims: Iterable[str]) -> bool:
        """Whether so many of the pods might fit once these victims are gone."""
        freed: dict[str, Offer] = {}
        for id_ in victims:
            node = self._stage.node_of(id_)
            if node in self._free:
                freed[node] = _plus(freed.get(node, self._free[node]), self._room.held(id_))
        asked = self._asked[:count]
        largest = max((offer[self._main] for offer in freed.values()), default=0)
        if max(largest, self._largest) < max(asked):
            return False
        return self.slots - self._slots_in(self._free[node] for node in freed) + self._slots_in(freed.values()) >= count

    def is_ripe(self, node: str, victims: Sequence[Portion]) -> bool:
        """Whether one of the pods might fit on a node once these victims are gone from it."""
        return self._slots(self._offer(node, victims)) > 0

    def ripe_after(self, node: str, victims: Sequence[Sequence[Portion]]) -> int | None:
        """The place of the first victim without whom, and without those before, one of the pods might fit on a node."""
        self._stage.steps.spend(1 + len(victims) // 16)
        offer = self._free.get(node, NOTHING)
        for place, portions in enumerate(victims):
            for one in portions:
                for id_ in one.ids:
                    if self._stage.node_of(id_) == node:
                        offer = _plus(offer, self._room.held(id_))
            if self._slots(offer) > 0:
                return place
        return None

    def must_go(self, node: str, victims: Sequence[Sequence[Portion]]) -> list[int] | None:
        """The places of those who have to go by what is counted, if the first stay first; None if all would not do."""
        offer = self._offer(node, list(itertools.chain.from_iterable(victims)))
        if not self._slots(offer):
            return None
        going: list[int] = []
        for place, portions in enumerate(victims):
            without = offer
            for one in portions:
                for id_ in one.ids:
                    if self._stage.node_of(id_) == node:
                        without = _minus(without, self._room.held(id_))
            if self._slots(without) > 0:
                offer = without
            else:
                going.append(place)
        return going

    def slots_gained(self, node: str, victims: Sequence[Portion]) -> int:
        """How many more of the smallest pods might fit on a node once these victims are gone from it."""
        return self._slots(self._offer(node, victims)) - self._slots(self._free.get(node, NOTHING))

    def _offer(self, node: str, victims: Sequence[Portion]) -> Offer:
        self._stage.steps.spend(1 + len(victims) // 16)
        offer = self._free.get(node, NOTHING)
        for one in victims:
            for id_ in one.ids:
                if self._stage.node_of(id_) == node:
                    offer = _plus(offer, self._room.held(id_))
        return offer

    def is_free_in_total(self) -> bool:
        """Whether what is free everywhere would do, were it in one place."""
        return self._total >= sum(self._asked)

    def by_promise(self, nodes: Iterable[str]) -> list[str]:
        """Nodes with victims, those that have most free already first."""
        return sorted(nodes, key=lambda node: (-self._free.get(node, NOTHING)[self._main], node))


def _plus(one: Offer, other: Offer) -> Offer:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Offer, other: Offer) -> Offer:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def nodes_of(stage: Stage, job: Job) -> list[str]:
    """The nodes a job was given in this decision."""
    return [stage.given[id_].found.node for id_ in job.pods if id_ in stage.given]
