"""How lists of results are shown: the columns of the command line's tables, made from the structs.

Given the time that ages are counted from. Returns columns. Never asks a cluster.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.answer import when
from dovetail.model.queue import queue_resources
from dovetail.sdk.result_table import Columns
from dovetail.sdk.shown_answers import Why
from dovetail.tables import node_table, pod_table, queue_table, text
from dovetail.tables.answers import when_table, why_text
from dovetail.tables.gpus import gpu_table
from dovetail.tables.items.claim_items import ClaimItem
from dovetail.tables.items.device_items import DeviceItem
from dovetail.tables.items.gpu_items import GpuNodeItem
from dovetail.tables.items.node_items import NodeItem
from dovetail.tables.items.pod_items import PodItem
from dovetail.tables.items.queue_items import QueueItem
from dovetail.tables.work import gpu_usage_table, work_table
from dovetail.tables.work.work_items import WorkItem

Now = datetime.datetime

CLAIM_HEADERS: Final = ("namespace", "name", "requests", "state", "age")
DEVICE_HEADERS: Final = ("node", "device", "type", "model", "memory", "gpu", "state", "held by")
QUEUE_HEADERS: Final = (*queue_table.HEADERS[:-1], "message")  # of -o wide, instead of the age


def gpus() -> Columns[GpuNodeItem]:
    """As `dovetail get gpus`."""
    return Columns(gpu_table.HEADERS, _gpu_cells, "nodes with GPUs")


def devices() -> Columns[DeviceItem]:
    """As `dovetail get devices`, with who holds them."""
    return Columns(DEVICE_HEADERS, _device_cells, "devices")


def nodes(now: Now) -> Columns[NodeItem]:
    """As `dovetail get nodes`."""

    def cells(node: NodeItem) -> tuple[str, ...]:
        age = text.age(node.created, now)
        return (
            node.name,
            node.status,
            node.pool,
            str(node.gpus),
            node.gpu,
            node.cpu,
            node.memory,
            age,
        )

    return Columns(node_table.HEADERS, cells, "nodes")


def pods(now: Now) -> Columns[PodItem]:
    """As `dovetail get pods`."""

    def cells(pod: PodItem) -> tuple[str, ...]:
        age, claims = text.age(pod.created, now), ",".join(pod.claims)
        reason = pod_table.cut(pod.why_not)
        return (pod.namespace, pod.name, pod.status, pod.node, claims, age, reason)

    return Columns(pod_table.HEADERS, cells, "pods")


def claims(now: Now) -> Columns[ClaimItem]:
    """As `dovetail get claims`."""

    def cells(claim: ClaimItem) -> tuple[str, ...]:
        age = text.age(claim.created, now)
        return (claim.namespace, claim.name, claim.requests, claim.state, age)

    return Columns(CLAIM_HEADERS, cells, "claims")


def queues() -> Columns[QueueItem]:
    """As `dovetail get queues`, with what is wrong with them."""

    def cells(queue: QueueItem) -> tuple[str, ...]:
        shares = [each for each in queue.resources if each.name == queue_resources.GPU]
        numbers = ("", "", "", "")
        if shares:
            share = shares[0]
            limit = queue_table.UNBOUNDED if share.limit is None else _number(share.limit)
            quota = queue_table.UNBOUNDED if share.quota is None else _number(share.quota)
            numbers = (_number(share.used), quota, _number(share.fair_share), limit)
        return (
            queue_table.INDENT * queue.depth + queue.name,
            str(queue.priority),
            *numbers,
            str(queue.running),
            str(queue.pending),
            "yes" if queue.ready else "no",
            queue.message,
        )

    return Columns(QUEUE_HEADERS, cells, "queues")


def work(now: Now) -> Columns[WorkItem]:
    """As `dovetail queue`."""
    return Columns(work_table.HEADERS, lambda item: work_table.row_of(item, now).cells, "work")


def expectations(now: Now) -> Columns[when.Expectation]:
    """As `dovetail when`."""
    return Columns(when_table.HEADERS, lambda each: when_table.row_of(each, now), "work that waits")


def reasons() -> Columns[Why]:
    """As `dovetail why` without a name."""
    return Columns(why_text.LIST_HEADERS, why_text.row_of, "pods that wait")


def _gpu_cells(node: GpuNodeItem) -> tuple[str, ...]:
    memory = text.binary(node.memory_bytes) if node.memory_bytes else ""
    counts = (str(node.gpus), node.tiles, str(node.free))
    return (
        node.node,
        node.gpu,
        *counts,
        memory,
        node.offers,
        text.short_id(node.clique),
        node.rack,
    )


def _device_cells(device: DeviceItem) -> tuple[str, ...]:
    memory = text.binary(device.memory_bytes) if device.memory_bytes else ""
    gpu = text.short_id(device.gpu)
    place = (device.node, device.device, device.type, device.model)
    return (*place, memory, gpu, device.state, device.holder)


def _number(amount: float | None) -> str:
    return gpu_usage_table.gpus(amount)
