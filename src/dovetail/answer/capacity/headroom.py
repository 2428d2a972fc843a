"""How many more copies of a shape start, node by node: now, after consolidation, and if lower work yielded.

Now: so many copies are put on the replica that some wait; what the engine placed is what fits. For the other two the
plans are carried out turn by turn, with evictions allowed by the scheduler's own rules, until no further copy starts.
Counts pods that wait already as absent: the question is what the cluster holds, not who is next. Bounded by the number
of copies and turns, never by time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.answer import simulate
from dovetail.answer.capacity import conserved_gpus, gpu_room, shapes
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import object_set, registry
from dovetail.model import gangs, plan, pod_requests, policy
from dovetail.world.devices import gpu_ledger
from dovetail.world.events import Object
from dovetail.world.world import World

FIRST_COPIES: Final = 64
GROWTH: Final = 4
MOST_COPIES: Final = 65_536
MOST_TURNS: Final = 64  # decisions in which copies start by moving or ending other work
_POD: Final = registry.POD.unique_name
_QUEUE: Final = registry.QUEUE.unique_name


class Fit(NamedTuple):
    """Copies that start in free room."""

    by_node: Mapping[str, int]  # copies
    milli_gpu_by_node: Mapping[str, int]  # what these copies take
    is_bounded: bool = False  # more might fit: the number of copies was the limit
    waits: str = ""  # why the first copy that waits does

    @property
    def total(self) -> int:
        """On all nodes together."""
        return sum(self.by_node.values())

    @property
    def uses(self) -> list[conserved_gpus.Use]:
        """What the copies take, node by node."""
        return [
            conserved_gpus.Use(copies, self.milli_gpu_by_node.get(node, 0))
            for node, copies in self.by_node.items()
        ]


class Yielded(NamedTuple):
    """Copies that start where other work moves or ends, with that work."""

    total: int
    evictions: tuple[plan.Eviction, ...] = ()


def free_room(replica: Replica, shape: shapes.Shape) -> Fit:
    """How many copies start now without touching other work."""
    rules = _rules(replica.policy, (policy.Step.ALLOCATE,))
    with replica.edited(without_waiting(replica)):
        count = FIRST_COPIES
        while True:
            copies = shapes.copies(shape, count, replica.now)
            with replica.edited(copies.edits):
                decided = replica.decide(copies.ids, policy_=rules)
                fit = _fit(replica.world, decided, copies.ids)
            if fit.total < count or count >= MOST_COPIES:
                return fit._replace(is_bounded=fit.total == count)
            count = _next_count(replica.world, fit, count)


def _next_count(world: World, fit: Fit, count: int) -> int:
    """How many copies to try after all of so many started: one more than free GPUs can hold, as far as that is known.

    Each number is tried from the beginning, so a first guess that is right is worth most of the work.
    """
    taken = sum(fit.milli_gpu_by_node.values())
    grown = count * GROWTH
    if not taken:
        return grown
    free = sum(gpu_room.free_milli_gpu(world, node) for node in world.nodes)
    enough = free * fit.total // taken + 1
    return min(enough, MOST_COPIES) if enough > count else grown


def by_moving(replica: Replica, shape: shapes.Shape, fit: Fit) -> Yielded:
    """How many start when the scheduler may move work that its owner starts again elsewhere."""
    if fit.total == conserved_gpus.most_copies(replica.world, fit.uses):
        return Yielded(fit.total)
    steps = (policy.Step.ALLOCATE, policy.Step.CONSOLIDATE)
    return _carried_out(replica, shape, fit, steps)


def by_yielding(
    replica: Replica, shape: shapes.Shape, fit: Fit, *, moving: Yielded | None = None
) -> Yielded:
    """How many start when all work yields that the scheduler may evict for such a pod.

    `moving` is what starts where work may only move; that is all where none can yield.
    """
    if moving is not None and conserved_gpus.can_none_yield(replica.world, shape.pod):
        return moving
    steps = (
        policy.Step.ALLOCATE,
        policy.Step.CONSOLIDATE,
        policy.Step.RECLAIM,
        policy.Step.PREEMPT,
    )
    return _carried_out(replica, shape, fit, steps)


def without_waiting(replica: Replica) -> list[Edit]:
    """Edits that take the pending pods away."""
    return [
        Edit(object_set.Key(_POD, pod.metadata.namespace, pod.metadata.name), None)
        for pod in replica.world.pending()
    ]


def without_queues(replica: Replica) -> list[Edit]:
    """Edits that take the queues away: what is asked then is what fits, not who has the right to it."""
    return [Edit(object_set.Key(_QUEUE, "", name), None) for name in replica.world.queues]


def _carried_out(
    replica: Replica, shape: shapes.Shape, fit: Fit, steps: Sequence[policy.Step]
) -> Yielded:
    """Submits more copies than fit, and more again while all of them start."""
    if not replica.world.running():
        return Yielded(fit.total)  # there is no work to move or to end
    rules = _rules(replica.policy, tuple(steps))
    with replica.edited(without_waiting(replica)):
        facts = replica.facts()
    simulation = simulate.Simulation(facts, rules, replica.now, seconds=unending)
    evictions: list[plan.Eviction] = []
    submitted = 0
    more = max(fit.total, 0) + 1
    for _ in range(MOST_TURNS):
        copies = shapes.copies(shape, submitted + more, replica.now)
        added = [edit.stored.struct for edit in copies.edits if edit.stored is not None]
        per_copy = len(added) // len(copies.ids)
        simulation.submit(*_as_facts(added[submitted * per_copy :]))
        submitted += more
        while simulation.turn() and simulation.turns < MOST_TURNS:
            evictions += simulation.plan.evictions
        started = sum(pod_id in simulation.world.running() for pod_id in copies.ids)
        if started < submitted or submitted >= MOST_COPIES or simulation.turns >= MOST_TURNS:
            break
        more = submitted
    return Yielded(max(started, fit.total), tuple(evictions))


def _as_facts(structs: Sequence[object]) -> list[Object]:
    kinds = tuple(kind.struct for kind in registry.WORLD)
    return [struct for struct in structs if isinstance(struct, kinds)]


def _rules(rules: policy.Policy, steps: tuple[policy.Step, ...]) -> policy.Policy:
    """The policy with these steps only, about pods of every scheduler, without promises to others."""
    batch = msgspec.structs.replace(rules.batch, promises=0)
    return msgspec.structs.replace(rules, steps=steps, batch=batch, scheduler_names=())


def unending(_gang: gangs.Gang, _by_queue: int | None) -> int | None:
    """The runtime of all work in a simulation in which nothing ends by itself."""
    return None


def _fit(world: World, decided: plan.Plan, ids: Sequence[str]) -> Fit:
    copies = frozenset(ids)
    by_node: Counter[str] = Counter()
    milli_gpu: Counter[str] = Counter()
    ledger = gpu_ledger.Ledger()
    for placement in decided.placements:
        if placement.pod.uid not in copies:
            continue
        by_node[placement.node] += 1
        milli_gpu[placement.node] += cost_of(world, placement, ledger)
    refusals = (refusal for refusal in decided.refusals if refusal.pod.uid in copies)
    refusal = next(refusals, None)
    return Fit(dict(by_node), dict(milli_gpu), waits=refusal.summary if refusal else "")


def cost_of(world: World, placement: plan.Placement, ledger: gpu_ledger.Ledger) -> int:
    """What a placement takes, in thousandths of GPUs: devices of claims, and a device plugin's resources."""
    results = [allocation.result for allocation in placement.allocations]
    if placement.made is not None:
        results.append(placement.made.result)
    cost = sum(
        ledger.result_cost(result, world.devices_in((result.driver, result.pool)))
        for allocation in results
        for result in allocation.devices.results
    )
    node = world.nodes[placement.node]
    offered = world.offered(placement.node)
    pod = world.pods[placement.pod.uid]
    for name, count in pod_requests.pod_request(pod).scalars:
        if offered.scalar(name) > 0:
            cost += gpu_ledger.plugin_cost(name, count, node.metadata.labels)
    return cost
