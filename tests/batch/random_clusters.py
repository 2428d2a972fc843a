"""Random clusters for the batch brain: whole, shared and parted GPUs, trees of queues, gangs that run, wait and leave.

Given a `random.Random`, a seeded one or one of Hypothesis, which then can shrink what was drawn. Whatever runs was
placed soundly by a plain first fit of its own, without regard to queues: quotas may have changed since.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from dovetail.kubetypes.resource import claims
from dovetail.model import gangs
from dovetail.world.events import Object
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster, Work
from tests.schedule import build

TOPOLOGY: Final = "place"
ZONE, RACK = "zone", "rack"
PHANTOM: Final = 64  # GPUs no node has
PRIORITIES: Final = (0, 50, 50, 100)


class Size(NamedTuple):
    """How large a cluster may get."""

    nodes: int
    works: int
    pods: int = 4  # of a gang
    ends: bool = False  # work ends by itself
    arrivals: int = 0  # seconds over which work arrives


SMALL: Final = Size(nodes=3, works=10)
MEDIUM: Final = Size(nodes=8, works=36, pods=6)
LONG: Final = Size(nodes=3, works=16, ends=True, arrivals=2000)


def cluster(rng: random.Random, size: Size = SMALL) -> Cluster:
    """A cluster with running, waiting and leaving work."""
    facts, rooms = _machines(rng, size)
    result = Cluster([*facts, simulated_cluster.topology(TOPOLOGY, ZONE, RACK)])
    gpus = max(sum(room.gpus for room in rooms), 1)
    leaves = _queues(rng, result, gpus)
    for number in range(rng.randint(size.works // 2, size.works)):
        work = _work(rng, number, size=size, leaves=leaves)
        if work.arrives:
            result.expect(work)
            continue
        result.submit(work)
        if rng.random() < 0.1:
            result.shield(work.name)
        if rng.random() < 0.8:
            _run(rng, result, work, rooms)
    result._note()
    for name in [*result.works]:
        if result.running(name) and rng.random() < 0.1:
            for pod in result.running(name):
                result.delete(pod.metadata.uid)
    result._note()
    return result


def seeded(seed: int, size: Size = SMALL) -> Cluster:
    """The same cluster for the same number."""
    return cluster(random.Random(seed), size)


def drawn(size: Size = SMALL) -> st.SearchStrategy[Cluster]:
    """Clusters Hypothesis draws, and shrinks."""
    return st.randoms(use_true_random=False).map(lambda rng: cluster(rng, size))


class Room:
    """What is left of one node while a cluster is filled."""

    def __init__(self, name: str, *, kind: str, count: int, cpu: int) -> None:
        self.name = name
        self.cpu = cpu
        self.whole = [f"gpu-{index}" for index in range(count)] if kind == "whole" else []
        self.shares = (
            {f"gpu-{index}": simulated_cluster.SHARED_GIB for index in range(count)}
            if kind == "shared"
            else {}
        )
        self.slices = set(range(simulated_cluster.PARTS)) if kind == "part" else set()
        self.gpus = 1 if kind == "part" else count

    def take(self, ask: Ask, share: str) -> list[tuple[str, str | None]] | None:
        """Devices for a pod; None if it does not fit."""
        if ask.cpu > self.cpu:
            return None
        result: list[tuple[str, str | None]] | None = []
        if ask.gpus:
            result = (
                [(self.whole.pop(0), None) for _ in range(ask.gpus)]
                if len(self.whole) >= ask.gpus
                else None
            )
        elif ask.share_gib:
            device = next(
                (name for name, left in self.shares.items() if left >= ask.share_gib), None
            )
            result = [(device, share)] if device is not None else None
            if device is not None:
                self.shares[device] -= ask.share_gib
        elif ask.part:
            starts = (
                at
                for at in range(0, simulated_cluster.PARTS, ask.part)
                if {*range(at, at + ask.part)} <= self.slices
            )
            start = next(starts, None)
            result = [(f"part-{ask.part}-{start}", None)] if start is not None else None
            if start is not None:
                self.slices -= {*range(start, start + ask.part)}
        if result is not None:
            self.cpu -= ask.cpu
        return result


def _machines(rng: random.Random, size: Size) -> tuple[list[Object], list[Room]]:
    facts: list[Object] = []
    rooms: list[Room] = []
    for index in range(rng.randint(1, size.nodes)):
        name = f"n{index}"
        kind = rng.choice((*("whole",) * 6, "shared", "part"))
        count = (
            rng.choice((1, 2, 4))
            if kind == "whole"
            else rng.choice((1, 2))
            if kind == "shared"
            else 1
        )
        cpu = rng.choice((6, 16))
        labels = {ZONE: rng.choice("ab"), RACK: rng.choice("12")}
        facts.append(build.node(name, allocatable={"cpu": str(cpu)}, labels=labels))
        facts.extend(_pool(name, kind, count))
        rooms.append(Room(name, kind=kind, count=count, cpu=cpu))
    return facts, rooms


def _pool(name: str, kind: str, count: int) -> list[Object]:
    if kind == "whole":
        return [build.gpu_slice(name, count)]
    return (
        [simulated_cluster.shared_pool(name, count)]
        if kind == "shared"
        else simulated_cluster.parted_pool(name)
    )


def _queues(rng: random.Random, result: Cluster, gpus: int) -> list[str]:
    """A tree of one or two levels; the leaves."""
    parents = [f"team-{letter}" for letter in "ab"[: rng.choice((0, 0, 1, 2))]]
    for age, name in enumerate(parents):
        result.put(
            simulated_cluster.queue(
                name, priority=rng.choice((0, 0, 1)), age=age, gpu=_shares(rng, gpus)
            )
        )
    leaves = [f"q{index}" for index in range(rng.randint(1, 4))]
    for age, name in enumerate(leaves):
        parent = rng.choice(("", *parents)) if parents else ""
        shares: dict[str, Any] = {"gpu": _shares(rng, max(gpus // 2, 1))}
        if rng.random() < 0.2:
            shares["cpu"] = (rng.choice((2, 8, None)), None, rng.choice((0, 1)))
        result.put(
            simulated_cluster.queue(
                name, parent=parent, priority=rng.choice((0, 0, 1)), age=age, **shares
            )
        )
    return leaves


def _shares(rng: random.Random, most: int) -> tuple[float | None, ...]:
    quota = rng.choice((0, rng.randint(0, most), rng.randint(0, most), None))
    limit = rng.choice((None, None, None, None, rng.randint(quota or 0, most + 2)))
    return quota, None if quota is None else limit, rng.choice((0, 1, 1, 2))


def _ask(rng: random.Random) -> Ask:
    cpu = rng.choice((1, 1, 2, 4))
    if rng.random() < 0.04:
        return Ask(cpu=cpu, gpus=PHANTOM)
    match rng.choice((*("whole",) * 8, "share", "part", "cpu")):
        case "whole":
            return Ask(cpu=cpu, gpus=rng.choice((1, 1, 1, 2, 2, 4)))
        case "share":
            return Ask(cpu=cpu, share_gib=rng.choice((6, 12)))
        case "part":
            return Ask(cpu=cpu, part=rng.choice((1, 2, 4)))
    return Ask(cpu=cpu)


def _work(rng: random.Random, number: int, *, size: Size, leaves: list[str]) -> Work:
    count = rng.choice((1, 1, rng.randint(1, size.pods)))
    same = _ask(rng)
    asks = [same if rng.random() < 0.8 else _ask(rng) for _ in range(count)]
    facts: dict[str, Any] = {
        "queue": rng.choice(leaves),
        "priority": rng.choice(PRIORITIES),
        "is_preemptible": rng.random() < 0.85,
    }
    if rng.random() < 0.15:
        facts["topology"] = _wish(rng)
    if rng.random() < 0.2:
        facts["is_recreated"] = False
        facts["may_be_lost"] = rng.random() < 0.3
    if count > 1 and rng.random() < 0.3:
        first = rng.randint(1, count - 1)
        facts["seats"] = ("a",) * first + ("b",) * (count - first)
        facts["groups"] = tuple(
            gangs.Group(
                name=name,
                min=rng.randint(1, many),
                topology=_wish(rng) if rng.random() < 0.2 else None,
            )
            for name, many in (("a", first), ("b", count - first))
        )
    return simulated_cluster.gang(
        f"j{number:02d}",
        *asks,
        least=rng.choice((count, count, rng.randint(1, count))),
        arrives=rng.choice((0, rng.randint(1, size.arrivals))) if size.arrivals else 0,
        runtime=rng.choice((60, 300, 900)) if size.ends else None,
        **facts,
    )


def _wish(rng: random.Random) -> gangs.TopologyRequest:
    level = rng.choice((ZONE, RACK))
    if rng.random() < 0.5:
        return gangs.TopologyRequest(topology=TOPOLOGY, required=level)
    return gangs.TopologyRequest(
        topology=TOPOLOGY, preferred=level, required=ZONE if rng.random() < 0.3 else None
    )


def _run(rng: random.Random, result: Cluster, work: Work, rooms: list[Room]) -> None:
    """All members by first fit, without regard to topology; none if one of them finds no place."""
    if work.gang.topology is not None or any(
        group.topology is not None for group in work.gang.groups
    ):
        return
    given: list[tuple[str, str, claims.AllocationResult | None]] = []
    kept = [(room, room.cpu, [*room.whole], dict(room.shares), set(room.slices)) for room in rooms]
    for pod in result.members(work.name):
        _, ask = work.asks[result.seats[pod.metadata.uid][1]]
        share = str(uuid.UUID(int=rng.getrandbits(96)))
        taken = next(
            (
                (room, item)
                for room in _shuffled(rng, rooms)
                if (item := room.take(ask, share)) is not None
            ),
            None,
        )
        if taken is None:
            for room, cpu, whole, shares, parts in kept:
                room.cpu, room.whole, room.shares, room.slices = cpu, whole, shares, parts
            return
        room, devices = taken
        allocation = (
            simulated_cluster.result(room.name, devices, share_gib=ask.share_gib)
            if devices
            else None
        )
        given.append((pod.metadata.uid, room.name, allocation))
    for uid, node, allocation in given:
        keys = result.world.claims_used(result.world.pods[uid])
        result.bind(uid, node, dict.fromkeys(keys, allocation) if allocation is not None else {})


def _shuffled(rng: random.Random, rooms: list[Room]) -> Iterator[Room]:
    order = [*rooms]
    rng.shuffle(order)
    return iter(order)
