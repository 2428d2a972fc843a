"""The rows of `dovetail queue`: waiting and running work, and which of it a name means. Never prints."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import codec
from dovetail.tables import listing, text
from dovetail.tables.work import start_times, work_items

HEADERS: Final = (
    "namespace",
    "name",
    "position",
    "queue",
    "gpus",
    "state",
    "age",
    "start",
    "reason",
)
WIDE_HEADERS: Final = ("pods", "priority", "latest", "nodes", "ahead", "message")
NEAREST: Final = 3  # of what is ahead, that are named
PENDING_STATES: Final = (work_items.PENDING, work_items.PARTIAL, work_items.STARTING)


def is_named(name: str, item: work_items.WorkItem) -> bool:
    """Whether a name means this work: `train`, `job/train`, its owner's."""
    names = (item.name, item.full_name, item.owner)
    return name in (*names, *(each.rpartition("/")[2] for each in names))


def listed(items: Sequence[work_items.WorkItem], now: datetime.datetime) -> listing.Listing:
    """One row for each."""
    rows = tuple(row_of(item, now) for item in items)

    def documents() -> list[listing.Tree]:
        return [codec.tree_of(item) for item in items]

    return listing.Listing(HEADERS, WIDE_HEADERS, rows, documents)


def row_of(item: work_items.WorkItem, now: datetime.datetime) -> listing.Row:
    """One row."""
    position = "" if item.position is None else str(item.position)
    gpus = f"{item.gpus:.3f}".rstrip("0").rstrip(".")
    ahead = ", ".join(item.ahead[:NEAREST])
    further = (item.position or 1) - 1 - NEAREST
    if further > 0:
        ahead += f" +{further}"
    return listing.Row(
        item.name,
        (
            item.namespace,
            item.name,
            position,
            item.queue,
            gpus,
            item.state,
            text.age(item.created, now),
            _start(item, now),
            item.reason,
        ),
        (
            f"{item.running}/{item.pods}",
            str(item.priority),
            _time(item.latest, now),
            ",".join(item.nodes),
            ahead,
            item.message,
        ),
    )


def _start(item: work_items.WorkItem, now: datetime.datetime) -> str:
    """When it started or starts; a promise is marked."""
    if item.state == work_items.RUNNING or item.start:
        return _time(item.start, now) + ("!" if item.is_promised else "")
    return "now" if item.state == work_items.STARTING else start_times.UNKNOWN


def _time(written: str, now: datetime.datetime) -> str:
    instant = timestamps.parse_or_none(written)
    return "" if instant is None else start_times.clock_time(instant, now)
