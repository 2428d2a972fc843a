"""The inventory of a cluster's GPU stack: every node, every workload with GPUs, the objects that set them up.

Given the objects of a cluster and rows about images. Every unknown is counted and named. Never judges what fits.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from dovetail.answer.stack import gpu_work, node_stack, platform_objects
from dovetail.answer.stack.compatibility_rows import Rows
from dovetail.answer.stack.gpu_work import GpuWorkload
from dovetail.answer.stack.node_stack import NodeStack
from dovetail.answer.stack.stack_facts import Fact, fact, unknown
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import gpu_operator

# What an inventory reads: those every cluster serves, and those it may lack.
NEEDED: Final = (registry.NODE, registry.POD)
FURTHER: Final = (
    registry.SLICE,
    registry.CLAIM,
    registry.TEMPLATE,
    *gpu_stack_kinds.ALL,
)


class OperatorObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that the GPU Operator acts on."""

    kind: str
    name: str
    driver: Fact
    state: Fact


class UnknownFact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that nothing states, how often, and why."""

    fact: str
    count: int
    of: str  # nodes | workloads | cluster
    why: str
    example: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The stack of a whole cluster."""

    kubernetes: Fact  # the API server
    operator: Fact
    objects: tuple[OperatorObject, ...]
    nodes: tuple[NodeStack, ...]
    workloads: tuple[GpuWorkload, ...]
    unknown: tuple[UnknownFact, ...]
    problems: tuple[str, ...]


def read(objects: object_set.ObjectSet, rows: Rows, *, server_version: str = "") -> Inventory:
    """The inventory. Linear in nodes, pods and devices."""
    return _of(objects, gpu_work.workloads(objects, rows), server_version)


def of_nodes(objects: object_set.ObjectSet, *, server_version: str = "") -> Inventory:
    """The inventory without workloads, for which no rows are needed."""
    return _of(objects, (), server_version)


def _of(
    objects: object_set.ObjectSet, work: tuple[GpuWorkload, ...], server_version: str
) -> Inventory:
    platform = platform_objects.read(objects)
    stacks = tuple(
        node_stack.of_node(stored, platform)
        for stored in objects.listed(registry.NODE.name)
        if isinstance(stored.struct, nodes.Node)
    )
    kubernetes = (
        fact(server_version.removeprefix("v"), "version of the API server")
        if server_version
        else unknown("the files do not say which version the API server had")
    )
    return Inventory(
        kubernetes=kubernetes,
        operator=platform.operator,
        objects=tuple(_objects(platform)),
        nodes=stacks,
        workloads=work,
        unknown=_unknown(kubernetes, platform.operator, stacks, work),
        problems=platform.problems,
    )


def _objects(platform: platform_objects.Platform) -> list[OperatorObject]:
    listed = []
    for policy in platform.policies:
        driver = policy.spec.driver
        listed.append(
            _object(gpu_stack_kinds.CLUSTER_POLICY, policy.metadata.name, driver.version, policy)
        )
    for each in platform.drivers:
        listed.append(
            _object(gpu_stack_kinds.NVIDIA_DRIVER, each.metadata.name, each.spec.version, each)
        )
    for cluster in platform.clusters:
        listed.append(_object(gpu_stack_kinds.GPU_CLUSTER, cluster.metadata.name, "", cluster))
    return listed


def _object(
    kind: registry.Kind,
    name: str,
    driver: str,
    struct: gpu_operator.ClusterPolicy | gpu_operator.NVIDIADriver | gpu_operator.GPUCluster,
) -> OperatorObject:
    state = struct.status.state
    return OperatorObject(
        kind=kind.name,
        name=name,
        driver=fact(driver, "spec") if driver else unknown("its spec names no driver version"),
        state=fact(state, "status.state") if state else unknown("it has no status.state"),
    )


def _unknown(
    kubernetes: Fact,
    operator: Fact,
    stacks: tuple[NodeStack, ...],
    work: tuple[GpuWorkload, ...],
) -> tuple[UnknownFact, ...]:
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}

    def count(name: str, of: str, value: Fact, example: str) -> None:
        if value.is_known:
            return
        key = (name, of, value.unknown)
        counts[key] += 1
        examples.setdefault(key, example)

    count("kubernetes", "cluster", kubernetes, "")
    count("operator", "cluster", operator, "")
    for stack in stacks:
        for name, value in stack.facts().items():
            count(name.replace("_", " "), "nodes", value, stack.node)
    for each in work:
        example = f"{each.namespace}/{each.id}: {each.need.image}"
        count("cuda", "workloads", each.need.cuda, example)
    return tuple(
        UnknownFact(fact=name, count=number, of=of, why=why, example=examples[name, of, why])
        for (name, of, why), number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
