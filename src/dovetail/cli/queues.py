"""The rows of `dovetail get queues` and `get topologies`: the tree of queues with the numbers decided with.

Given what the user asked for, returns a `Listing`. Queues that hang nowhere stand at the top and say why. Never prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.cli import rows, text
from dovetail.model import objects, quantity, queueresources, queues, queuestatus, queuetree, queueuse, topologies
from dovetail.sim import cluster as clusters

HEADERS: Final = ("queue", "priority", "gpus", "quota", "fair", "limit", "running", "pending", "ready", "age")
WIDE_HEADERS: Final = ("dominant", "others", "namespaces", "aliases", "message")
INDENT: Final = "  "
UNBOUNDED: Final = "all"


def queue_rows(asked: rows.Asked) -> rows.Listing:
    """One row per queue, children below their parents."""
    stored = {one.struct.metadata.name: one for one in clusters.listed(asked.cluster, "Queue")}
    known = {name: one.struct for name, one in stored.items() if isinstance(one.struct, queues.Queue)}
    problems = queuetree.problems(known)
    shown = [(name, depth) for name, depth in _in_tree_order(known, problems) if asked.wants(stored[name])]
    made = [_row(stored[name], known[name], problems.get(name), depth=depth, asked=asked) for name, depth in shown]
    return rows.Listing(HEADERS, WIDE_HEADERS, tuple(made), tuple(stored[name].tree for name, _ in shown))


def topology_rows(asked: rows.Asked) -> rows.Listing:
    """One row per topology, its levels from the widest to the narrowest."""
    made, documents = [], []
    for stored in clusters.listed(asked.cluster, "Topology"):
        found = stored.struct
        if not isinstance(found, topologies.Topology) or not asked.wants(stored):
            continue
        levels = " > ".join(one.alias or one.node_label for one in found.spec.levels)
        labels = ",".join(one.node_label for one in found.spec.levels)
        name = found.metadata.name
        made.append(rows.Row(f"topology.dovetail.dev/{name}", (name, levels, asked.age(stored)), (labels,)))
        documents.append(stored.tree)
    return rows.Listing(("topology", "levels", "age"), ("labels",), tuple(made), tuple(documents))


def _in_tree_order(
    known: Mapping[str, queues.Queue], problems: Mapping[str, queuetree.Problem]
) -> Iterator[tuple[str, int]]:
    """Names with their depth, parents before children; what hangs nowhere comes last, at the top."""
    lost = sorted((name for name, one in problems.items() if one.is_fatal), key=text.natural)
    below = queuetree.children({name: one for name, one in known.items() if name not in set(lost)})
    waiting = [(name, 0) for name in sorted(below.get("", ()), key=text.natural, reverse=True)]
    while waiting:
        name, depth = waiting.pop()
        yield name, depth
        waiting += [(one, depth + 1) for one in sorted(below.get(name, ()), key=text.natural, reverse=True)]
    yield from ((name, 0) for name in lost)


def _row(
    stored: objects.Stored,
    queue: queues.Queue,
    problem: queuetree.Problem | None,
    *,
    depth: int,
    asked: rows.Asked,
) -> rows.Row:
    name, spec, status = queue.metadata.name, queue.spec, queue.status
    share = next((one for key, one in spec.resources.items() if key in queueresources.GPU_SPELLINGS), None)
    told = status.resources.get(queueresources.GPU, queues.ShareStatus())
    return rows.Row(
        f"queue.dovetail.dev/{name}",
        (
            INDENT * depth + name,
            str(spec.priority),
            _gpus(told.charged),
            "" if share is None else _bound(share.quota, "0"),
            _gpus(told.fair_share),
            "" if share is None else _bound(share.limit, UNBOUNDED),
            str(status.running),
            str(status.pending),
            "yes" if problem is None else f"{'yes' if problem.takes_work else 'no'} ({problem.reason})",
            asked.age(stored),
        ),
        (
            status.dominant_share,
            ",".join(_others(queue)),
            _namespaces(queue),
            ",".join(spec.aliases),
            _message(queue, problem),
        ),
    )


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
    """What it holds and is due of everything but all GPUs together: `cpu 4/16`."""
    names = (queue.spec.resources.keys() | queue.status.resources.keys()) - queueresources.GPU_SPELLINGS
    found = []
    for name in sorted(names):
        told = queue.status.resources.get(name, queues.ShareStatus())
        found.append(f"{name} {told.charged or '-'}/{told.fair_share or '-'}")
    return found


def _namespaces(queue: queues.Queue) -> str:
    selector = queue.spec.namespace_selector
    if selector is None:
        return "none"
    return queueuse.written(selector) or "every"


def _message(queue: queues.Queue, problem: queuetree.Problem | None) -> str:
    said = next((one.message for one in queue.status.conditions if one.type == queuestatus.READY), "")
    return problem.message if problem is not None else said
