"""What a user writes. mypy reads it; nothing runs it."""

from __future__ import annotations

from typing import reveal_type

from dovetail.sdk import Changes, Cluster, NotFound, Table, Why, WorkItem

cluster = Cluster.load("snapshot")
reveal_type(cluster.gpus()[0].free)
reveal_type(cluster.devices()[0].holder)
reveal_type(cluster.nodes().filter(gpu="x")[0].labels)
reveal_type(cluster.pods()[0].claims)
reveal_type(cluster.claims()[1:])
reveal_type(cluster.queues()[0].resources[0].quota)
reveal_type(cluster.work().sorted_by("gpus")[0].position)
reveal_type(cluster.usage(by=["queue", "node"])[0].free)
reveal_type(cluster.when()[0].start)
reveal_type(cluster.why("x").cause)
reveal_type(cluster.why_waiting()[0].fixes[0].title)
reveal_type(cluster.what_if(Changes().add("4xh100")).after.cost_per_hour)
reveal_type(cluster.what_if(set={"queue/x.quota": 8}, work=[{"kind": "Pod"}]).sentence)
reveal_type(cluster.capacity(gpus=8).shapes[0].now)
reveal_type(cluster.refresh().now)


def longest(table: Table[WorkItem]) -> WorkItem:
    return max(table, key=lambda item: item.pods)


def cause_of(name: str) -> Why | None:
    try:
        return cluster.why(name)
    except NotFound:
        return None
