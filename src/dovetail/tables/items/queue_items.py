"""The tree of queues as rows: what `dovetail get queues` shows, as structs with numbers. Never prints.

Numbers are those of the last decision, which the scheduler writes into the status of each queue: GPUs may be fractions,
memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_resources, queue_status, queue_tree
from dovetail.quantity import quantity
from dovetail.tables import text


class QueueResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a queue is due of one resource and uses of it."""

    name: str
    used: float | None  # null: the scheduler has not written it yet
    quota: float | None  # null: as much as it needs
    fair_share: float | None
    limit: float | None  # null: all that is free
    weight: int
    waiting: float | None


class QueueItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue. `ready` says whether it takes work."""

    name: str
    parent: str
    depth: int
    priority: int
    ready: bool
    message: str
    running: int
    pending: int
    resources: tuple[QueueResource, ...]
    is_leaf: bool = True


def items_of(objects: object_set.ObjectSet) -> tuple[QueueItem, ...]:
    """All queues, children below their parents."""
    by_name = queues_of(objects)
    problems = queue_tree.problems(by_name)
    parents = {queue.spec.parent for queue in by_name.values()}
    return tuple(
        _item(by_name[name], problems.get(name), depth=depth, is_leaf=name not in parents)
        for name, depth in in_tree_order(by_name, problems)
    )


def queues_of(objects: object_set.ObjectSet) -> dict[str, queues.Queue]:
    """All queues by name."""
    structs = [stored.struct for stored in objects.listed(registry.QUEUE.unique_name)]
    found = [struct for struct in structs if isinstance(struct, queues.Queue)]
    return {queue.metadata.name: queue for queue in found}


def in_tree_order(
    by_name: Mapping[str, queues.Queue], problems: Mapping[str, queue_tree.Problem]
) -> Iterator[tuple[str, int]]:
    """Names with their depth, parents before children; queues outside the tree come last, at the top."""
    outside = {name for name, problem in problems.items() if problem.is_fatal}
    inside = {name: queue for name, queue in by_name.items() if name not in outside}
    children = queue_tree.children(inside)

    def ordered(parent: str) -> list[str]:
        return sorted(children.get(parent, ()), key=text.natural, reverse=True)

    stack = [(name, 0) for name in ordered("")]
    while stack:
        name, depth = stack.pop()
        yield name, depth
        stack += [(child, depth + 1) for child in ordered(name)]

    for name in sorted(outside, key=text.natural):
        yield name, 0


def message_of(queue: queues.Queue, problem: queue_tree.Problem | None) -> str:
    """What is wrong with a queue, or what its condition says."""
    if problem is not None:
        return problem.message
    conditions = queue.status.conditions
    ready = (condition for condition in conditions if condition.type == queue_status.READY)
    return next((condition.message for condition in ready), "")


def _item(
    queue: queues.Queue, problem: queue_tree.Problem | None, *, depth: int, is_leaf: bool
) -> QueueItem:
    return QueueItem(
        name=queue.metadata.name,
        parent=queue.spec.parent,
        depth=depth,
        priority=queue.spec.priority,
        ready=problem is None or problem.takes_work,
        message=message_of(queue, problem),
        running=queue.status.running,
        pending=queue.status.pending,
        resources=tuple(_resources(queue)),
        is_leaf=is_leaf,
    )


def _resources(queue: queues.Queue) -> Iterator[QueueResource]:
    """GPUs first, by either spelling; then the others by name."""
    shares: dict[str, queues.Share] = {}
    for name, share in queue.spec.resources.items():
        shares.setdefault(_usual(name), share)
    names = shares.keys() | {_usual(name) for name in queue.status.resources}
    for name in sorted(names, key=lambda each: (each != queue_resources.GPU, each)):
        share = shares.get(name, queues.Share())
        status = queue.status.resources.get(name, queues.ShareStatus())
        used, requested = _number(status.charged), _number(status.requested)
        waiting = None if used is None or requested is None else max(0.0, requested - used)
        yield QueueResource(
            name=name,
            used=used,
            quota=0.0 if share.quota is None else _bound(share.quota),
            fair_share=_number(status.fair_share),
            limit=_bound(share.limit),
            weight=share.weight,
            waiting=waiting,
        )


def _usual(name: str) -> str:
    return queue_resources.GPU if name in queue_resources.GPU_SPELLINGS else name


def _bound(value: quantity.Quantity | None) -> float | None:
    if value is None or value >= queues.UNLIMITED:
        return None
    return value.milli_value() / 1000


def _number(written: str) -> float | None:
    if not written or not quantity.is_quantity(written):
        return None
    return quantity.parse(written).milli_value() / 1000
