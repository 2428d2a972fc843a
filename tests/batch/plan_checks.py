"""Judges a plan by counting for itself: what it breaks, in sentences; none if it is sound.

Given a cluster and a plan that is not carried out yet. Reads facts only (pods, claims, nodes, slices as they arrived)
and counts them in its own way: neither the World's sums nor the brain's accounts.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model import gangs, plan
from dovetail.model.reasons import ReasonCode
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster

MILLI = 1000
_OWN_OBSTACLES = frozenset(
    {ReasonCode.QUEUE_LIMIT, ReasonCode.QUEUE_QUOTA, ReasonCode.NEVER}
)  # room would not help
_OWN_REASONS = (
    plan.Rule.STALE,
    plan.Rule.OVERTIME,
)  # no gang gains by these, and no rule protects from them


def faults(cluster: Cluster, done: plan.Plan) -> list[str]:
    """Everything that is wrong with a plan."""
    return [
        *overcommitted(cluster, done),
        *unfit_later(cluster, done),
        *broken_gangs(cluster, done),
        *wrong_victims(cluster, done),
        *needless(cluster, done),
        *over_limit(cluster, done),
        *unnamed(cluster, done),
    ]


class After(NamedTuple):
    """Pods by what a plan makes of them, with the node they are on or will be on."""

    stays: dict[str, str]
    starts: dict[str, str]
    nominated: dict[str, str]
    moves: dict[str, str]
    gone: dict[str, str]  # has to go and finds nothing else; the node it leaves
    leaves: dict[str, str]  # was leaving before


def after(cluster: Cluster, done: plan.Plan) -> After:
    """Who is where once the plan is carried out."""
    moves = {
        eviction.pod.uid: eviction.moves_to for eviction in done.evictions if eviction.moves_to
    }
    result = After(
        {}, {placement.pod.uid: placement.node for placement in done.placements}, {}, moves, {}, {}
    )
    result.nominated.update(
        {nomination.pod.uid: nomination.node for nomination in done.nominations}
    )
    evicted = {eviction.pod.uid for eviction in done.evictions}
    for uid, pod in cluster.world.pods.items():
        if not pod.spec.node_name:
            continue
        if pod.metadata.deletion_timestamp is not None:
            result.leaves[uid] = pod.spec.node_name
        elif uid in evicted:
            if uid not in moves:
                result.gone[uid] = pod.spec.node_name
        else:
            result.stays[uid] = pod.spec.node_name
    return result


def ask_of(cluster: Cluster, uid: str) -> Ask:
    """What a pod asks for."""
    name, index = cluster.seats[uid]
    return cluster.works[name].asks[index][1]


# What is on a node, on a device


def overcommitted(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Nodes and devices that hold more than there is, right after the plan: who leaves is still there."""
    where = after(cluster, done)
    moving = {uid: cluster.world.pods[uid].spec.node_name for uid in where.moves}
    present = where.stays | where.starts | where.gone | where.leaves | moving
    yield from _overfull(cluster, present, "now")
    allocations = [claim.status.allocation for claim in cluster.world.claims.values()]
    allocations += [part.result for placement in done.placements for part in placement.allocations]
    yield from _overused(
        cluster, [allocation for allocation in allocations if allocation is not None]
    )


def unfit_later(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Nodes that would hold too much once every leaving pod is gone and every nominated pod is there."""
    where = after(cluster, done)
    present = where.stays | where.starts | where.moves | where.nominated
    yield from _overfull(cluster, present, "later")
    yield from _too_many_gpus(cluster, present)


def _overfull(cluster: Cluster, present: dict[str, str], when: str) -> Iterator[str]:
    held: collections.Counter[str] = collections.Counter()
    for uid, node in present.items():
        held[node] += ask_of(cluster, uid).cpu
    for node, cpu in held.items():
        has = cluster.world.nodes[node].status.allocatable["cpu"].milli_value() // MILLI
        if cpu > has:
            yield f"node {node} holds {cpu} of its {has} cpus {when}"


def _too_many_gpus(cluster: Cluster, present: dict[str, str]) -> Iterator[str]:
    held: collections.Counter[str] = collections.Counter()
    for uid, node in present.items():
        held[node] += price(ask_of(cluster, uid))
    for node, milli in held.items():
        has = silicon(cluster, node)
        if milli > has:
            yield f"node {node} holds {milli} of its {has} thousandths of a GPU later"


def silicon(cluster: Cluster, node: str) -> int:
    """What a node has, in thousandths of a GPU."""
    devices = [
        device
        for part in cluster.slices
        if part.spec.node_name == node
        for device in part.spec.devices
    ]
    if any(device.consumes_counters for device in devices):
        return MILLI
    return MILLI * len(devices)


def _overused(cluster: Cluster, allocations: Iterable[object]) -> Iterator[str]:
    exclusive: collections.Counter[tuple[str, str]] = collections.Counter()
    shared: collections.Counter[tuple[str, str]] = collections.Counter()
    drawn: collections.Counter[tuple[str, str]] = collections.Counter()
    known = {
        (part.spec.pool.name, device.name): device
        for part in cluster.slices
        for device in part.spec.devices
    }
    for allocation in allocations:
        for result in allocation.devices.results:  # type: ignore[attr-defined]
            key = (result.pool, result.device)
            if result.share_id is not None:
                shared[key] += result.consumed_capacity["memory"].nanos
                continue
            exclusive[key] += 1
            for use in known[key].consumes_counters:
                drawn.update((result.pool, counter) for counter in use.counters)
    yield from (
        f"device {key} is given {many} times" for key, many in exclusive.items() if many > 1
    )
    yield from (
        f"counter {key} is drawn on {many} times" for key, many in drawn.items() if many > 1
    )
    for key, nanos in shared.items():
        if key in exclusive or nanos > known[key].capacity["memory"].value.nanos:
            yield f"device {key} is shared beyond what it has"


# Gangs


def broken_gangs(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Gangs that start in part, or are left with less than they need."""
    where = after(cluster, done)
    for name, work in cluster.works.items():
        if name in cluster.ended:
            continue
        own = {pod.metadata.uid for pod in cluster.members(name)}
        had = own & (where.stays.keys() | where.gone.keys() | where.moves.keys())
        runs = own & (where.stays.keys() | where.starts.keys() | where.moves.keys())
        coming = own & where.nominated.keys()
        is_new = bool(own & where.starts.keys() or coming)
        if (
            _is_enough(cluster, work.gang, had)
            and runs
            and not _is_enough(cluster, work.gang, runs | coming)
        ):
            yield f"gang {name} is left with {len(runs)} pods, fewer than it needs"
        if is_new and not _is_enough(cluster, work.gang, runs | coming):
            yield f"gang {name} starts with {len(runs | coming)} pods, fewer than it needs"
        if own & where.starts.keys() and not _is_enough(cluster, work.gang, runs):
            yield f"gang {name} starts before the others of it can"


def _is_enough(cluster: Cluster, gang: gangs.Gang, uids: Iterable[str]) -> bool:
    work = cluster.works[gang.metadata.name]
    return simulated_cluster.is_enough(gang, [work.asks[cluster.seats[uid][1]][0] for uid in uids])


# Victims


def wrong_victims(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Evictions of pods that must stay, or without a gang that gains."""
    gaining = {nomination.gang.name for nomination in done.nominations}
    gaining |= {cluster.seats[placement.pod.uid][0] for placement in done.placements}
    for eviction in done.evictions:
        if eviction.rule in _OWN_REASONS:
            continue
        if cluster.is_fixed(eviction.gang.name):
            yield f"{eviction.pod} must not be made to yield, but is: {eviction.rule}"
        if eviction.beneficiary is None or eviction.beneficiary.name not in gaining:
            yield f"{eviction.pod} yields to {eviction.beneficiary}, who gets nothing"
        if eviction.beneficiary is not None and eviction.beneficiary.name == eviction.gang.name:
            yield f"{eviction.pod} yields to its own gang"


def needless(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Gangs whose pods lose their place and could all have stayed, everything else as it is planned.

    A pod that only moves may have been in the way of a pod that moved before: the order decides, and costs no place.
    """
    if cluster.is_keeping or _has_limits(cluster):
        return  # no sum here counts reserved room; a limit may require an eviction
    if len({eviction.beneficiary for eviction in done.evictions}) > 1:
        return  # what one of them leaves over may do for the one before, who was served first
    where = after(cluster, done)
    present = where.stays | where.starts | where.moves | where.nominated
    victims: dict[str, dict[str, str]] = {}
    for eviction in done.evictions:
        if eviction.rule not in _OWN_REASONS and not eviction.moves_to:
            uid = eviction.pod.uid
            victims.setdefault(eviction.gang.name, {})[uid] = cluster.world.pods[uid].spec.node_name
    for name, own in victims.items():
        stays = present | own
        nodes = set(own.values())
        if any(not _is_plain(cluster, node) for node in nodes):
            continue  # whether a share or a partition fits is more than a sum
        if not [*_overfull(cluster, stays, ""), *_too_many_gpus(cluster, stays)]:
            yield f"gang {name} has to yield {len(own)} pods, though they are in no other gang's way"


def _is_plain(cluster: Cluster, node: str) -> bool:
    devices = [
        device
        for part in cluster.slices
        if part.spec.node_name == node
        for device in part.spec.devices
    ]
    return not any(
        device.consumes_counters or device.allow_multiple_allocations for device in devices
    )


def _has_limits(cluster: Cluster) -> bool:
    return any(
        share.limit is not None
        for queue in cluster.world.queues.values()
        for share in queue.spec.resources.values()
    )


# Queues


def price(ask: Ask) -> int:
    """What a pod costs, in thousandths of a GPU."""
    return (
        MILLI * ask.gpus
        + MILLI * ask.share_gib // simulated_cluster.SHARED_GIB
        + MILLI * ask.part // simulated_cluster.PARTS
    )


def charged(
    cluster: Cluster, uids: Iterable[str], *, is_fixed: bool | None = None
) -> dict[str, int]:
    """What pods cost their queues and all above them."""
    result: dict[str, int] = collections.Counter()
    for uid in uids:
        name = cluster.seats[uid][0]
        gang = cluster.works[name].gang
        if is_fixed is None or cluster.is_fixed(name) == is_fixed:
            for queue in lineage(cluster, gang.queue):
                result[queue] += price(ask_of(cluster, uid))
    return result


def lineage(cluster: Cluster, queue: str) -> Iterator[str]:
    """A queue and all above it."""
    while queue:
        yield queue
        queue = cluster.world.queues[queue].spec.parent


def over_limit(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Queues that get more than their limit, or more non-preemptible work than their quota."""
    where = after(cluster, done)
    new = where.starts.keys() | where.nominated.keys()
    held = where.stays.keys() | where.moves.keys() | new
    more, total = charged(cluster, new), charged(cluster, held)
    more_fixed, fixed = charged(cluster, new, is_fixed=True), charged(cluster, held, is_fixed=True)
    for name, queue in cluster.world.queues.items():
        share = queue.spec.resources.get("gpu")
        if share is None:
            continue
        if more.get(name) and share.limit is not None and total[name] > share.limit.milli_value():
            yield f"queue {name} gets {total[name]} of its limit {share.limit.milli_value()}"
        quota = share.quota
        if quota is None or quota.nanos >= queues.UNLIMITED.nanos:
            continue
        if more_fixed.get(name) and fixed[name] > quota.milli_value():
            yield f"queue {name} gets {fixed[name]} of non-preemptible work, its quota is {quota.milli_value()}"


def unnamed(cluster: Cluster, done: plan.Plan) -> Iterator[str]:
    """Single pods that wait below their queue's quota behind work that stays, and whose refusal does not name it.

    Only where nothing else happens: a pod that starts or is evicted changes other refusals of the same plan.
    """
    if done.placements or done.evictions or done.nominations:
        return
    running = [
        uid
        for uid, pod in cluster.world.pods.items()
        if pod.spec.node_name and not _is_leaving(pod)
    ]
    held, fixed = charged(cluster, running), charged(cluster, running, is_fixed=True)
    quotas = {name: _gpu_quota(queue) for name, queue in cluster.world.queues.items()}
    for refusal in done.refusals:
        name = cluster.seats[refusal.pod.uid][0]
        work = cluster.works[name]
        own = [*lineage(cluster, work.gang.queue)]
        others = [
            other for other in quotas if other not in own and fixed.get(other, 0) > quotas[other]
        ]
        asked = price(work.asks[0][1])
        is_bounded = any(set(cluster.world.queues[item].spec.resources) != {"gpu"} for item in own)
        if (
            len(work.asks) > 1
            or not others
            or not asked
            or is_bounded
            or quotas[own[0]] == float("inf")
        ):
            continue
        if any(held.get(item, 0) + asked > quotas[item] for item in own):
            continue
        codes = {obstacle.reason.code for obstacle in refusal.obstacles}
        leaves = [
            other
            for other in others
            if not any(q.spec.parent == other for q in cluster.world.queues.values())
        ]
        if leaves and not codes & _OWN_OBSTACLES and ReasonCode.QUEUE_BEHIND not in codes:
            yield f"{name} waits below its quota behind {leaves}, and its refusal says {refusal.summary}"


def _is_leaving(pod: pods.Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _gpu_quota(queue: queues.Queue) -> float:
    share = queue.spec.resources.get("gpu")
    if share is None or (share.quota is not None and share.quota.nanos >= queues.UNLIMITED.nanos):
        return float("inf")
    return 0 if share.quota is None else share.quota.milli_value()


def waiting(cluster: Cluster) -> list[pods.Pod]:
    """Pods without a node."""
    return [pod for pod in cluster.world.pods.values() if not pod.spec.node_name]
