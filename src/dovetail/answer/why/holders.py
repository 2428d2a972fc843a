"""The pods that hold what a pod waits for: on the nodes that would take it, most useful first.

Given the blocks of the nearest way. A pod is the more useful the sooner it ends by its stated runtime and the more of
what is missing it holds. Never says that a pod should end.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.answer.why.causes.node_sentences import amount
from dovetail.answer.why.obstacles.blocks import Layer, Step
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.obstacles.ways import Way
from dovetail.answer.why.why_answer import Holder
from dovetail.kubetypes.core import pods
from dovetail.model import gangs, pod_requests
from dovetail.model.queue import queue_access
from dovetail.quantity import durations
from dovetail.schedule import pod_order

SHOWN: Final = 10
_NEVER: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)


class Holders(NamedTuple):
    """The holders to show, and how many more there are."""

    shown: tuple[Holder, ...]
    more: int


class _Held(NamedTuple):
    pod: pods.Pod
    pod_id: str
    node: str
    amount: int
    text: str


def holders_of(way: Way, obstacles: NodeBlocks) -> Holders:
    """Who holds what is missing on the nodes of the way."""
    held = list(_held(way, obstacles))
    ranked = sorted(held, key=lambda item: _rank(obstacles, item))
    access = queue_access.QueueAccess(obstacles.world.queues, obstacles.world.namespaces)
    shown = tuple(_holder(obstacles, item, access) for item in ranked[:SHOWN])
    return Holders(shown, len(ranked) - len(shown))


def _rank(obstacles: NodeBlocks, held: _Held) -> tuple[datetime.datetime, int, str, str]:
    """Those that end first; of equals those that hold most."""
    metadata = held.pod.metadata
    return _until(obstacles, held) or _NEVER, -held.amount, metadata.namespace, metadata.name


def _held(way: Way, obstacles: NodeBlocks) -> Iterator[_Held]:
    blocks = [block for block in way.blocks if block.layer is Layer.OTHERS]
    resources = [block.subject for block in blocks if block.step is Step.ROOM]
    wants_devices = any(block.step is Step.DEVICES for block in blocks)
    if not resources and not wants_devices:
        return
    world, nodes = obstacles.world, frozenset(way.nodes)
    pools = _pools(obstacles, nodes) if wants_devices else frozenset()
    occupancies = [(pod_id, *occupancy) for pod_id, occupancy in world.running().items()]
    occupancies += [(pod_id, item.node, item.request) for pod_id, item in world.assumed.items()]
    for pod_id, node, request in occupancies:
        if node not in nodes:
            continue
        pod = world.pods[pod_id]
        texts, total = [], 0
        for resource in resources:
            taken = _taken(request, resource)
            if taken > 0:
                texts.append(f"{amount(resource, taken)} {resource}")
                total += taken
        if wants_devices:
            devices = _devices(obstacles, pod, pools)
            if devices:
                texts.append(devices)
                total += 1
        if texts:
            yield _Held(pod, pod_id, node, total, ", ".join(texts))


def _pools(obstacles: NodeBlocks, nodes: frozenset[str]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (pool.driver, pool.name) for name in nodes for pool in obstacles.evaluator.view(name).pools
    )


def _devices(obstacles: NodeBlocks, pod: pods.Pod, pools: frozenset[tuple[str, str]]) -> str:
    """The devices that the claims of a pod hold in these pools, as text."""
    names: list[str] = []
    for key in obstacles.world.claims_used(pod):
        allocation = obstacles.world.allocation(key)
        if allocation is None:
            continue
        for result in allocation.devices.results:
            if (result.driver, result.pool) in pools and not result.admin_access:
                names.append(result.device)
    if not names:
        return ""
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{len(names)} {'device' if len(names) == 1 else 'devices'} ({shown})"


def _taken(request: pod_requests.Resources, resource: str) -> int:
    known = {
        pod_requests.CPU: request.milli_cpu,
        pod_requests.MEMORY: request.memory_bytes,
        pod_requests.EPHEMERAL_STORAGE: request.ephemeral_bytes,
        pod_requests.PODS: request.pods,
    }
    return known[resource] if resource in known else request.scalar(resource)


def _holder(obstacles: NodeBlocks, held: _Held, access: queue_access.QueueAccess) -> Holder:
    metadata, spec = held.pod.metadata, held.pod.spec
    return Holder(
        pod=f"{metadata.namespace}/{metadata.name}",
        holds=f"{held.text} on node {held.node}",
        node=held.node,
        queue=_queue(obstacles, held, access),
        priority=spec.priority or 0,
        since=_since(held.pod),
        until=_until(obstacles, held),
    )


def _gang(obstacles: NodeBlocks, held: _Held) -> gangs.Gang:
    member = obstacles.world.gangs.of(held.pod_id) or gangs.lone_membership(held.pod)
    return obstacles.world.gangs.definition(member.gang)


def _queue(obstacles: NodeBlocks, held: _Held, access: queue_access.QueueAccess) -> str:
    """The queue that its work is charged to; empty where there is none."""
    if not obstacles.world.queues:
        return ""
    gang = _gang(obstacles, held)
    resolved = access.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
    return resolved.queue or ""


def _until(obstacles: NodeBlocks, held: _Held) -> datetime.datetime | None:
    """When it ends by its stated runtime."""
    started = _since(held.pod)
    if started is None:
        return None
    gang = _gang(obstacles, held)
    stated = [gang.expected_runtime, gang.max_runtime, held.pod.spec.active_deadline_seconds]
    seconds = next((value for value in stated if value is not None), None)
    return None if seconds is None else durations.later(started, seconds)


def _since(pod: pods.Pod) -> datetime.datetime | None:
    if not pod.spec.node_name:
        return None
    started = pod_order.instant(pod.status.start_time)
    return None if started is pod_order.NEVER else started
