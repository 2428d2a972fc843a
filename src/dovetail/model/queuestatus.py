"""Decides what a queue's status says: whether it is in order, and the numbers of the last decision.

Given the queue, its problem if it has one, and numbers if there are any; answers a status. A time stands in a condition
from when it last turned. Never writes it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.model import meta, queueresources, queues, queuetree

READY: Final = "Ready"
MAX_MESSAGE: Final = 32_768  # of a condition: metav1.Condition
PASSING: Final = ("usage", "usage_time")  # differ with every look at the clock


def told(
    queue: queues.Queue, problem: queuetree.Problem | None, numbers: queues.QueueStatus | None, *, now: str
) -> queues.QueueStatus:
    """The status to show. Without numbers those shown before stay, and so do conditions of others."""
    before = queue.status
    shown = before if numbers is None else numbers
    others = tuple(one for one in before.conditions if one.type != READY)
    return msgspec.structs.replace(
        shown,
        observed_generation=queue.metadata.generation,
        conditions=(*others, _ready(queue, problem, now)),
        resources={_name(name): share for name, share in sorted(shown.resources.items())},
        usage={_name(name): used for name, used in sorted(shown.usage.items())},
        usage_counted={_name(name): used for name, used in sorted(shown.usage_counted.items())},
    )


def is_news(before: queues.QueueStatus, after: queues.QueueStatus) -> bool:
    """Whether more differs than what differs by time alone."""
    still = {name: getattr(before, name) for name in PASSING}
    return msgspec.structs.replace(after, **still) != before


def is_turned(before: queues.QueueStatus, after: queues.QueueStatus) -> bool:
    """Whether the queue's own state differs: what its owner should not wait for."""
    return (before.observed_generation, before.conditions) != (after.observed_generation, after.conditions)


def _ready(queue: queues.Queue, problem: queuetree.Problem | None, now: str) -> meta.Condition:
    made = queuetree.readiness(queue, problem)
    before = next((one for one in queue.status.conditions if one.type == READY), None)
    since = before.last_transition_time if before is not None and before.status == made.status else now
    return msgspec.structs.replace(made, last_transition_time=since, message=made.message[:MAX_MESSAGE])


def _name(resource: str) -> str:
    """GPUs are always shown under one name, so that a column can show them."""
    return queueresources.GPU if resource in queueresources.GPU_SPELLINGS else resource
