"""Answers how much more work fits: of one shape or of the observed mix, by level, by GPU type, by queue.

Given a replica, and a shape where one is asked about. Every number is what the engine placed on the replica. Never
changes the cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from dovetail.answer.capacity import blockers, fragmentation, headroom, levels, shapes
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes.custom import queues
from dovetail.model import workload_annotations
from dovetail.quantity import quantity
from dovetail.world.world import World

_QUEUE_LABELS: Final = (
    workload_annotations.QUEUE,
    workload_annotations.KUEUE_QUEUE,
    workload_annotations.KAI_QUEUE,
)
_NONE: Final = quantity.parse("0")


class ShapeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many more pods of one shape start."""

    shape: str
    now: int
    after_moving: int | None  # None: not asked
    if_lower_yields: int | None
    is_bounded: bool  # at least so many: the number of copies tried was the limit
    by_type: dict[str, int]  # now, by GPU type
    levels: tuple[levels.LevelCapacity, ...]
    moved: int = 0  # pods that move for `after_moving`
    evicted: int = 0  # pods that end for `if_lower_yields`
    waits: str = ""  # why not one more


class QueueCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a queue uses of one resource, what waits in it, and what it may still use, as quantities."""

    queue: str
    resource: str
    used: str
    waiting: str
    fair_share: str
    left: str  # up to its limit and what the cluster has
    quota: str = ""  # empty: nothing is sure
    limit: str = ""  # empty: all that is free


class Capacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    shapes: tuple[ShapeCapacity, ...]
    queues: tuple[QueueCapacity, ...] = ()
    fragmentation: fragmentation.Fragmentation | None = None
    blockers: blockers.Blockers | None = None


def of_shape(replica: Replica, shape: shapes.Shape, *, moves: bool = True) -> ShapeCapacity:
    """How many more of one shape start: now and, with `moves`, where other work moves or yields.

    A shape that names a queue is bound by quotas and limits; any other by what the nodes hold.
    """
    names_queue = any(key in shape.pod.metadata.labels for key in _QUEUE_LABELS)
    edits = [] if names_queue else headroom.without_queues(replica)
    with replica.edited(edits):
        return _of_shape(replica, shape, moves=moves)


def _of_shape(replica: Replica, shape: shapes.Shape, *, moves: bool) -> ShapeCapacity:
    fit = headroom.free_room(replica, shape)
    moving = yielding = None
    if moves:
        moving = headroom.by_moving(replica, shape, fit)
        yielding = headroom.by_yielding(replica, shape, fit, moving=moving)
        # What starts by moving work starts as well where work may also end.
        yielding = yielding._replace(total=max(yielding.total, moving.total))
    return ShapeCapacity(
        shape=shape.name,
        now=fit.total,
        after_moving=moving.total if moving is not None else None,
        if_lower_yields=yielding.total if yielding is not None else None,
        is_bounded=fit.is_bounded,
        by_type=_by_type(replica.world, fit),
        levels=levels.largest(replica.world, fit.by_node),
        moved=len(moving.evictions) if moving is not None else 0,
        evicted=sum(not each.moves_to for each in yielding.evictions) if yielding else 0,
        waits=fit.waits,
    )


def by_queue(replica: Replica) -> tuple[QueueCapacity, ...]:
    """Every resource of every queue, with the numbers that the engine decides with."""
    numbers = replica.decide().queues
    rows: list[QueueCapacity] = []
    for name, status in sorted(numbers.items()):
        queue = replica.world.queues.get(name)
        shares = queue.spec.resources if queue is not None else {}
        rows += [
            _queue_capacity(name, resource, share, shares.get(resource, queues.Share()))
            for resource, share in sorted(status.resources.items())
        ]
    return tuple(rows)


def _queue_capacity(
    queue: str, resource: str, status: queues.ShareStatus, share: queues.Share
) -> QueueCapacity:
    used = _amount(status.charged)
    most = _amount(status.allocatable) if status.allocatable else used
    if share.limit is not None:
        most = min(most, share.limit)
    return QueueCapacity(
        queue=queue,
        resource=resource,
        used=str(used),
        waiting=str(_amount(status.requested).sub(used)),
        fair_share=str(_amount(status.fair_share)),
        left=str(max(most.sub(used), _NONE)),
        quota=str(share.quota) if share.quota is not None else "",
        limit=str(share.limit) if share.limit is not None else "",
    )


def _amount(text: str) -> quantity.Quantity:
    return quantity.parse(text) if text else _NONE


def _by_type(world: World, fit: headroom.Fit) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node, copies in fit.by_node.items():
        counts[fragmentation.type_of(world, node) or "no GPU"] += copies
    return dict(sorted(counts.items()))
