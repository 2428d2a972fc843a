"""The tables of `dovetail stack`: nodes with the same stack in one row, workloads, objects, and what is not known.

Given an inventory. Never looks at an object, never prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from dovetail.answer.stack.gpu_work import GpuWorkload
from dovetail.answer.stack.image_needs import ImageNeed
from dovetail.answer.stack.node_stack import NodeStack
from dovetail.answer.stack.stack_facts import Fact
from dovetail.answer.stack.stack_inventory import Inventory, UnknownFact
from dovetail.tables import text

NODE_HEADERS = (
    "pool",
    "nodes",
    "gpu",
    "driver",
    "desired",
    "template",
    "cuda",
    "toolkit",
    "runtime",
    "kubelet",
    "kernel",
    "mig",
    "dra driver",
)
WORK_HEADERS = ("namespace", "workload", "container", "pods", "cuda", "known by", "image")
IMAGE_HEADERS = ("image", "cuda", "known by", "pods", "workloads")


def lines(inventory: Inventory, *, is_wide: bool) -> list[str]:
    """The whole inventory; wide: every node and every workload by itself."""
    parts = [
        _summary(inventory),
        _nodes(inventory.nodes, is_wide=is_wide),
        _objects(inventory),
        _work(inventory.workloads) if is_wide else _images(inventory.workloads),
        _unknown(inventory),
        _differences(inventory.nodes),
        [f"not read: {problem}" for problem in inventory.problems],
    ]
    result: list[str] = []
    for part in filter(None, parts):
        result += [*part, ""]
    return result[:-1]


def groups(nodes: Iterable[NodeStack]) -> list[list[NodeStack]]:
    """Nodes of one pool whose facts have the same values."""

    def order(stack: NodeStack) -> tuple[object, ...]:
        return (not stack.has_gpu, *stack.signature())

    ordered = sorted(nodes, key=order)
    return [list(members) for _, members in groupby(ordered, key=order)]


def node_names(members: Sequence[NodeStack]) -> str:
    """How a row names its nodes: one by its name, several by their number and the first."""
    if len(members) == 1:
        return members[0].node
    return f"{len(members)} ({members[0].node}, ...)"


def gpus_of(stack: NodeStack) -> str:
    """The GPUs of a node: how many of which product."""
    return f"{stack.gpus} x {stack.gpu}" if stack.gpus and stack.gpu.is_present else str(stack.gpu)


def _summary(inventory: Inventory) -> list[str]:
    with_gpus = [stack for stack in inventory.nodes if stack.has_gpu]
    return [
        f"kubernetes {inventory.kubernetes}, GPU operator {inventory.operator};"
        f" {len(inventory.nodes)} nodes, {len(with_gpus)} with GPUs;"
        f" {len(inventory.workloads)} workloads use GPUs"
    ]


def _nodes(nodes: Sequence[NodeStack], *, is_wide: bool) -> list[str]:
    if not nodes:
        return ["no nodes"]
    members = [[stack] for stack in nodes] if is_wide else groups(nodes)
    rows = [_node_row(each) for each in members]
    return text.table(NODE_HEADERS, rows)


def _node_row(members: Sequence[NodeStack]) -> list[str]:
    first = members[0]
    return [
        first.pool,
        node_names(members),
        gpus_of(first),
        _marked(first.driver_loaded),
        str(first.driver_desired),
        str(first.driver_template),
        str(first.cuda),
        str(first.toolkit),
        str(first.runtime),
        str(first.kubelet),
        str(first.kernel),
        str(first.mig),
        str(first.dra_driver),
    ]


def _marked(value: Fact) -> str:
    """A value with a mark where another source differs; the reason is below the table."""
    return f"{value} (!)" if value.differs else str(value)


def _objects(inventory: Inventory) -> list[str]:
    rows = [[each.kind, each.name, str(each.driver), str(each.state)] for each in inventory.objects]
    return text.table(("object", "name", "driver", "state"), rows) if rows else []


def _work(workloads: Sequence[GpuWorkload]) -> list[str]:
    if not workloads:
        return ["no work uses GPUs"]
    rows = [
        [
            each.namespace,
            each.id,
            each.container,
            str(each.pods),
            str(each.need.cuda),
            each.need.cuda.source or each.need.cuda.unknown,
            each.need.image,
        ]
        for each in workloads
    ]
    return text.table(WORK_HEADERS, rows)


def _images(workloads: Sequence[GpuWorkload]) -> list[str]:
    """One row per image and need, most pods first."""
    if not workloads:
        return ["no work uses GPUs"]
    by_need: dict[ImageNeed, list[GpuWorkload]] = {}
    for each in workloads:
        by_need.setdefault(each.need, []).append(each)
    rows = []
    for need, members in sorted(by_need.items(), key=_most_pods):
        first = f"{members[0].namespace}/{members[0].id}"
        named = first if len(members) == 1 else f"{len(members)} ({first}, ...)"
        pods = sum(each.pods for each in members)
        known_by = need.cuda.source or need.cuda.unknown
        rows.append([need.image, str(need.cuda), known_by, str(pods), named])
    return text.table(IMAGE_HEADERS, rows)


def _most_pods(item: tuple[ImageNeed, list[GpuWorkload]]) -> tuple[int, str]:
    need, members = item
    return -sum(each.pods for each in members), need.image


def _unknown(inventory: Inventory) -> list[str]:
    rows = [[each.fact, _of(each), each.why, each.example] for each in inventory.unknown]
    return text.table(("unknown", "of", "why", "such as"), rows) if rows else []


def _of(each: UnknownFact) -> str:
    return f"the {each.of}" if each.of == "cluster" else f"{each.count} {each.of}"


def _differences(nodes: Sequence[NodeStack]) -> list[str]:
    return [
        f"(!) node {stack.node}: driver {stack.driver_loaded}, {stack.driver_loaded.differs}"
        for stack in nodes
        if stack.driver_loaded.differs
    ]
