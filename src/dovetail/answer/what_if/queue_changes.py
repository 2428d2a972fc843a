"""Changes of queues: another quota, limit, weight or priority.

Given a replica; returns the edit. The numbers are checked as an API server and the queue tree check them: a queue that
would stop taking work by the change is refused. Never divides shares.
"""

from __future__ import annotations

import msgspec

from dovetail import errors
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import changes, effect, near_names
from dovetail.answer.what_if.effect import Effect
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_resources, queue_tree
from dovetail.quantity import quantity

GPU = queue_resources.GPU


def changed(replica: Replica, change: changes.SetQueue) -> Effect:
    """The queue with another number. Raises InputError."""
    key = object_set.Key(registry.QUEUE.unique_name, "", change.queue)
    stored = replica.get(key)
    if stored is None or not isinstance(stored.struct, queues.Queue):
        raise near_names.unknown("queue", change.queue, replica.world.queues)
    queue = stored.struct
    before = _shown(queue, change.field)
    spec = _spec(queue.spec, change)
    after = msgspec.structs.replace(queue, spec=spec)
    _check(replica, after)
    unit = f"{GPU} " if change.field != "priority" else ""
    text = f"queue {change.queue}: {unit}{change.field} {_shown(after, change.field)} instead of {before}"
    return Effect([effect.changed(stored, after)], text)


def _spec(spec: queues.QueueSpec, change: changes.SetQueue) -> queues.QueueSpec:
    if change.field == "priority":
        return msgspec.structs.replace(spec, priority=int(change.value))
    name = _resource_name(spec)
    share = spec.resources.get(name, queues.Share())
    match change.field:
        case "weight":
            share = msgspec.structs.replace(share, weight=int(change.value))
        case "quota":
            share = msgspec.structs.replace(share, quota=quantity.parse(change.value))
        case _:
            limit = quantity.parse(change.value) if change.value else None
            share = msgspec.structs.replace(share, limit=limit)
    if share.limit is not None and share.quota is not None and share.quota > share.limit:
        raise errors.InputError(
            f"queue {change.queue}: quota {share.quota} would be above limit {share.limit}; "
            "change both, the limit first"
        )
    return msgspec.structs.replace(spec, resources=spec.resources | {name: share})


def _resource_name(spec: queues.QueueSpec) -> str:
    """How the queue spells its GPUs: gpu, or nvidia.com/gpu."""
    wanted = queue_resources.read(GPU)
    return next((name for name in spec.resources if queue_resources.read(name) == wanted), GPU)


def _shown(queue: queues.Queue, field: str) -> str:
    if field == "priority":
        return str(queue.spec.priority)
    share = queue.spec.resources.get(_resource_name(queue.spec), queues.Share())
    value = getattr(share, field)
    return "none" if value is None else str(value)


def _check(replica: Replica, queue: queues.Queue) -> None:
    """Refuses a change that makes a queue unusable."""
    before = queue_tree.problems(replica.world.queues)
    after = queue_tree.problems({**replica.world.queues, queue.metadata.name: queue})
    for name, problem in sorted(after.items()):
        if not problem.takes_work and name not in before:
            raise errors.InputError(f"queue {name} would take no work: {problem.message}")
