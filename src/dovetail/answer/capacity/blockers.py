"""Which work stands in the way of a gang, and what making room costs: the engine's own search, with the gang first.

The gang is put on a replica with the highest priority that may be preempted for, and without queues: the question is
whose work is in the way, not who has the right to it. What the engine then moves or ends is the answer. Carries nothing
out.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.answer import simulate
from dovetail.answer.capacity import headroom, shapes
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes.core import pods
from dovetail.model import gangs, plan, policy, workload_annotations
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

HIGHEST: Final = 1_999_999_999  # work of this priority is still preemptible itself
GANG: Final = "asked"
MOST_TURNS: Final = 16
SECONDS_PER_HOUR: Final = 3600


class Blocker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Work that moves or ends so that the gang fits."""

    gang: str  # namespace/source/name
    pods: int
    gpus: float
    moves: bool  # its owner starts it again on a node that is kept for it
    nodes: tuple[str, ...]
    gpu_hours_lost: float  # since its start, or since its last checkpoint


class Blockers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What has to give way, and whether the gang starts then."""

    size: int
    level: str
    starts: bool
    work: tuple[Blocker, ...]
    why: str = ""  # why it does not start even so

    @property
    def gpu_hours_lost(self) -> float:
        """Of all work together."""
        return sum(blocker.gpu_hours_lost for blocker in self.work)


def blockers(replica: Replica, shape: shapes.Shape, size: int, level: str = "") -> Blockers:
    """What stands in the way of a gang of so many copies, within one domain of the level where one is given."""
    pod = msgspec.structs.replace(
        shape.pod, spec=msgspec.structs.replace(shape.pod.spec, priority=HIGHEST)
    )
    if level:
        annotations = pod.metadata.annotations | {workload_annotations.TOPOLOGY_REQUIRED: level}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        pod = msgspec.structs.replace(pod, metadata=metadata)
    copies = shapes.copies(shape._replace(pod=pod), size, replica.now, gang=GANG)

    rules = _rules(replica.policy)
    edits = [*headroom.without_waiting(replica), *headroom.without_queues(replica), *copies.edits]
    with replica.edited(edits):
        facts = replica.facts()
    before = replica.world
    simulation = simulate.Simulation(facts, rules, replica.now, seconds=headroom.unending)
    while simulation.turn() and simulation.turns < MOST_TURNS:
        pass
    started = sum(pod_id in simulation.world.running() for pod_id in copies.ids)
    refusals = [each for each in simulation.plan.refusals if each.pod.uid in frozenset(copies.ids)]
    return Blockers(
        size=size,
        level=level,
        starts=started == size,
        work=_work(before, simulation.evicted, replica.now),
        why="" if started == size or not refusals else refusals[0].summary,
    )


def _rules(rules: policy.Policy) -> policy.Policy:
    steps = (policy.Step.ALLOCATE, policy.Step.CONSOLIDATE, policy.Step.PREEMPT)
    batch = msgspec.structs.replace(rules.batch, promises=0)
    return msgspec.structs.replace(rules, steps=steps, batch=batch, scheduler_names=())


def _work(
    world: World, evictions: Iterable[plan.Eviction], now: datetime.datetime
) -> tuple[Blocker, ...]:
    """Evictions by gang, the most expensive first."""
    by_gang: dict[plan.GangRef, list[plan.Eviction]] = {}
    for eviction in evictions:
        if eviction.pod.uid in world.running():
            by_gang.setdefault(eviction.gang, []).append(eviction)
    work = [_blocker(world, gang, evicted, now) for gang, evicted in by_gang.items()]
    return tuple(sorted(work, key=lambda blocker: (-blocker.gpu_hours_lost, blocker.gang)))


def _blocker(
    world: World, gang: plan.GangRef, evicted: list[plan.Eviction], now: datetime.datetime
) -> Blocker:
    ledger = gpu_ledger.Ledger()
    gpus = hours = 0.0
    for eviction in evicted:
        pod = world.pods[eviction.pod.uid]
        held = _milli_gpu(world, pod, ledger) / gpu_ledger.WHOLE
        gpus += held
        hours += held * _seconds_at_risk(world, pod, now) / SECONDS_PER_HOUR
    return Blocker(
        gang=str(gang),
        pods=len(evicted),
        gpus=round(gpus, 3),
        moves=all(eviction.moves_to for eviction in evicted),
        nodes=tuple(sorted({world.pods[each.pod.uid].spec.node_name for each in evicted})),
        gpu_hours_lost=round(hours, 2),
    )


def _milli_gpu(world: World, pod: pods.Pod, ledger: gpu_ledger.Ledger) -> int:
    """What a running pod holds."""
    cost = 0
    for key in world.claims_used(pod):
        allocation = world.allocation(key)
        for result in allocation.devices.results if allocation is not None else ():
            cost += ledger.result_cost(result, world.devices_in((result.driver, result.pool)))
    node = world.nodes.get(pod.spec.node_name)
    labels = node.metadata.labels if node is not None else {}
    _, taken = world.running()[pod.metadata.uid]
    for name, count in taken.scalars:
        cost += gpu_ledger.plugin_cost(name, count, labels)
    return cost


def _seconds_at_risk(world: World, pod: pods.Pod, now: datetime.datetime) -> float:
    """Since the start of the pod or the last checkpoint of its gang, whichever is later; 0 where neither is known."""
    member = world.gangs.of(pod.metadata.uid)
    checkpoint = None
    if member is not None:
        gang = world.gangs.definition(member.gang)
        checkpoint = gangs.checkpoint_of(gang, [pod])
    times = [timestamps.parse_or_none(text) for text in (pod.status.start_time, checkpoint) if text]
    known = [time for time in times if time is not None]
    return max((now - max(known)).total_seconds(), 0.0) if known else 0.0
