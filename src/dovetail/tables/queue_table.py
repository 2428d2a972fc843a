"""The table `dovetail get queues`: the tree of queues with the numbers of the last decision.

Queues outside the tree are listed last, at the top level, with the reason. Never prints.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_access, queue_resources, queue_tree
from dovetail.quantity import quantity
from dovetail.tables import listing
from dovetail.tables.items import queue_items

HEADERS: Final = (
    "queue",
    "priority",
    "gpus",
    "quota",
    "fair",
    "limit",
    "running",
    "pending",
    "ready",
    "age",
)
WIDE_HEADERS: Final = ("dominant", "others", "namespaces", "aliases", "message")
INDENT: Final = "  "
UNBOUNDED: Final = "all"


def rows(query: listing.Query) -> listing.Listing:
    """One row per queue, children below their parents."""
    stored = {
        record.struct.metadata.name: record
        for record in query.objects.listed(registry.QUEUE.unique_name)
    }
    by_name = queue_items.queues_of(query.objects)
    problems = queue_tree.problems(by_name)
    table_rows = []
    shown: list[codec.Stored] = []
    for name, depth in queue_items.in_tree_order(by_name, problems):
        if not query.wants(stored[name]):
            continue
        row = _row(stored[name], by_name[name], problems.get(name), depth=depth, query=query)
        table_rows.append(row)
        shown.append(stored[name])
    return listing.Listing(
        HEADERS, WIDE_HEADERS, tuple(table_rows), lambda: [each.tree for each in shown]
    )


def _row(
    stored: codec.Stored,
    queue: queues.Queue,
    problem: queue_tree.Problem | None,
    *,
    depth: int,
    query: listing.Query,
) -> listing.Row:
    name, spec, status = queue.metadata.name, queue.spec, queue.status
    gpu_names = [name for name in spec.resources if name in queue_resources.GPU_SPELLINGS]
    share = spec.resources[gpu_names[0]] if gpu_names else None
    gpu_status = status.resources.get(queue_resources.GPU, queues.ShareStatus())
    return listing.Row(
        f"queue.dovetail.dev/{name}",
        (
            INDENT * depth + name,
            str(spec.priority),
            _gpus(gpu_status.charged),
            "" if share is None else _bound(share.quota, "0"),
            _gpus(gpu_status.fair_share),
            "" if share is None else _bound(share.limit, UNBOUNDED),
            str(status.running),
            str(status.pending),
            _ready(problem),
            query.age(stored),
        ),
        (
            status.dominant_share,
            ",".join(_others(queue)),
            _namespaces(queue),
            ",".join(spec.aliases),
            queue_items.message_of(queue, problem),
        ),
    )


def _ready(problem: queue_tree.Problem | None) -> str:
    if problem is None:
        return "yes"
    return f"{'yes' if problem.takes_work else 'no'} ({problem.reason})"


def _bound(value: quantity.Quantity | None, otherwise: str) -> str:
    if value is None:
        return otherwise
    return UNBOUNDED if value >= queues.UNLIMITED else _gpus(str(value))


def _gpus(written: str) -> str:
    """GPUs as people count them: 6.5, not 6500m."""
    if not written or not quantity.is_quantity(written):
        return written
    thousandths = quantity.parse(written).milli_value()
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")


def _others(queue: queues.Queue) -> list[str]:
    """Use and fair share of every resource but all GPUs together: `cpu 4/16`."""
    resources = queue.spec.resources.keys() | queue.status.resources.keys()
    words = []
    for resource in sorted(resources - queue_resources.GPU_SPELLINGS):
        status = queue.status.resources.get(resource, queues.ShareStatus())
        words.append(f"{resource} {status.charged or '-'}/{status.fair_share or '-'}")
    return words


def _namespaces(queue: queues.Queue) -> str:
    selector = queue.spec.namespace_selector
    if selector is None:
        return "none"
    return queue_access.selector_text(selector) or "every"


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """All of them, unless fields select some: what is wrong with a queue depends on the others."""
    return (object_set.Read(registry.QUEUE, fields=query.fields),)


TABLE = listing.Table(
    name="queues",
    aliases=("queue",),
    listing=rows,
    reads=_reads,
    next_step="get pods -A",
    definition=registry.QUEUE,
)
