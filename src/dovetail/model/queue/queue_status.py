"""Computes the status of a queue: its Ready condition, and the numbers of the last decision.

Given the queue, its problem if it has one, and the numbers if there are any. The time in a condition is the time of its
last transition. Never writes the status.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_resources, queue_tree

READY: Final = "Ready"
MAX_MESSAGE: Final = 32_768  # of a condition: metav1.Condition
PASSING: Final = ("usage", "usage_time")  # these change with time alone


def status_for(
    queue: queues.Queue,
    problem: queue_tree.Problem | None,
    numbers: queues.QueueStatus | None,
    *,
    now: str,
) -> queues.QueueStatus:
    """The status to write. Without numbers the earlier ones stay; conditions of other writers always stay."""
    before = queue.status
    shown = before if numbers is None else numbers
    foreign = [condition for condition in before.conditions if condition.type != READY]
    return msgspec.structs.replace(
        shown,
        observed_generation=queue.metadata.generation,
        conditions=(*foreign, _ready(queue, problem, now)),
        resources={_name(name): share for name, share in sorted(shown.resources.items())},
        usage={_name(name): used for name, used in sorted(shown.usage.items())},
        usage_counted={_name(name): used for name, used in sorted(shown.usage_counted.items())},
    )


def has_news(before: queues.QueueStatus, after: queues.QueueStatus) -> bool:
    """Whether more differs than the fields that change with time alone."""
    passing = {name: getattr(before, name) for name in PASSING}
    return msgspec.structs.replace(after, **passing) != before


def has_new_condition(before: queues.QueueStatus, after: queues.QueueStatus) -> bool:
    """Whether the queue's own state differs: a change its owner should see at once."""
    return (before.observed_generation, before.conditions) != (
        after.observed_generation,
        after.conditions,
    )


def _ready(queue: queues.Queue, problem: queue_tree.Problem | None, now: str) -> meta.Condition:
    condition = queue_tree.readiness(queue, problem)
    conditions = queue.status.conditions
    before = next((earlier for earlier in conditions if earlier.type == READY), None)
    is_unchanged = before is not None and before.status == condition.status
    since = before.last_transition_time if before is not None and is_unchanged else now
    return msgspec.structs.replace(
        condition, last_transition_time=since, message=condition.message[:MAX_MESSAGE]
    )


def _name(resource: str) -> str:
    """GPUs are always shown under one name, so that a column can show them."""
    return queue_resources.GPU if resource in queue_resources.GPU_SPELLINGS else resource
