"""Reports the parts of the GPU stack: what runs on which node with GPUs, what is missing and why, and the next step.

Given the objects of a cluster. Parts of a node are the driver, the agent, its devices, labels, metrics, MPS and the
container runtime. Gaps that nodes have in common are reported once. Never changes a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.stack.stack_facts import Fact
from dovetail.answer.stack_parts import agent_sets, node_gaps, node_sight
from dovetail.answer.stack_parts.node_sight import ClusterSight, NodeSight
from dovetail.answer.stack_parts.part_answer import (
    ClusterGap,
    Gap,
    NodeParts,
    Part,
    PartReport,
    State,
)
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component, ComponentPod
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.model import node_pools

# What the report reads: kinds every cluster serves, and those it may lack.
NEEDED: Final = (registry.NODE, registry.POD)
FURTHER: Final = (registry.SLICE, registry.DEVICE_CLASS, *gpu_stack_kinds.ALL)
PARTS: Final = ("driver", "agent", "devices", "labels", "metrics", "mps", "runtime")
OURS: Final = "dovetail"


def report(objects: object_set.ObjectSet) -> PartReport:
    """The report. Linear in nodes, pods and slices."""
    seen = node_sight.read(objects)
    nodes = tuple(_node(sight, has_policy=seen.has_policy) for sight in seen.nodes)
    return PartReport(
        nodes=nodes,
        other_nodes=seen.other_nodes,
        cluster=tuple(_cluster_parts(seen)),
        gaps=(*_cluster_gaps(seen), *_grouped(nodes)),
        problems=seen.problems,
    )


def _node(sight: NodeSight, *, has_policy: bool) -> NodeParts:
    gaps = tuple(node_gaps.of_node(sight, has_policy=has_policy))
    broken = {gap.part for gap in gaps}
    parts = []
    for part in _parts(sight):
        is_broken = part.name in broken and part.state is State.READY
        state = State.NOT_READY if is_broken else part.state
        parts.append(Part(name=part.name, state=state, seen=part.seen))
    return NodeParts(node=sight.name, served_by=_served_by(sight), parts=tuple(parts), gaps=gaps)


def _served_by(sight: NodeSight) -> str:
    if node_gaps.is_ours(sight):
        return OURS
    for component in (Component.DRA_DRIVER, Component.DEVICE_PLUGIN):
        if sight.other(component) is not None:
            return f"NVIDIA's {component}"
    if sight.published is not None:
        return "a DRA driver"
    return "a device plugin" if sight.counted else ""


def _parts(sight: NodeSight) -> Iterator[Part]:
    loaded = sight.stack.driver_loaded
    driver = State.READY if sight.has_driver else State.MISSING
    yield Part(name="driver", state=driver, seen=loaded.value)
    yield _agent(sight)
    yield _devices(sight)
    has_labels = node_pools.PRODUCT in sight.node.metadata.labels
    yield Part(name="labels", state=State.READY if has_labels else State.MISSING)
    yield _metrics(sight)
    yield _mps(sight)
    yield _stated("runtime", sight.stack.runtime)


def _agent(sight: NodeSight) -> Part:
    if not node_gaps.is_ours(sight):
        return Part(name="agent", state=State.OFF)
    mode = node_gaps.mode_of(sight)
    if not sight.agents:
        return Part(name="agent", state=State.MISSING, seen=mode)
    is_ready = all(pod.is_ready for pod in sight.agents)
    return Part(name="agent", state=State.READY if is_ready else State.NOT_READY, seen=mode)


def _devices(sight: NodeSight) -> Part:
    if sight.published is not None:
        published = sight.published
        seen = f"{published.gpus} GPUs"
        if published.partitions:
            seen += f", {published.partitions} partitions"
        return Part(name="devices", state=State.READY, seen=seen)
    if sight.counted:
        counts = [f"{number} {name}" for name, number in sorted(sight.counted.items())]
        return Part(name="devices", state=State.READY, seen=", ".join(counts))
    return Part(name="devices", state=State.MISSING)


def _metrics(sight: NodeSight) -> Part:
    has_metrics = any(each.has_metrics for each in sight.wanted)
    if not has_metrics:
        return Part(name="metrics", state=State.OFF)
    is_ready = bool(sight.agents) and all(pod.is_ready for pod in sight.agents)
    return Part(name="metrics", state=State.READY if is_ready else State.NOT_READY)


def _mps(sight: NodeSight) -> Part:
    """The agent starts MPS daemons for claims that ask for them; a device plugin of ours shares by time slices."""
    if sight.agents and node_gaps.mode_of(sight) == agent_sets.DRA:
        return Part(name="mps", state=State.READY, seen="by claim")
    sharing = node_pools.pool_of(sight.node).sharing
    if sharing:
        return Part(name="mps", state=State.OFF, seen=sharing)
    return Part(name="mps", state=State.OFF)


def _stated(name: str, fact: Fact) -> Part:
    return Part(name=name, state=State.READY if fact.is_present else State.UNKNOWN, seen=fact.value)


def _cluster_parts(seen: ClusterSight) -> Iterator[Part]:
    sets = ", ".join(f"{each.id} ({each.mode})" for each in seen.agents)
    yield Part(name="agents", state=State.READY if sets else State.OFF, seen=sets)
    classes = ", ".join(name for name in sorted(seen.classes) if name.endswith(_CLASS_SUFFIX))
    yield Part(name="device classes", state=State.READY if classes else State.OFF, seen=classes)
    yield _exporter(seen.exporters)


_CLASS_SUFFIX: Final = "nvidia.com"


def _exporter(pods: tuple[ComponentPod, ...]) -> Part:
    if not pods:
        return Part(name="exporter", state=State.OFF)
    is_ready = any(pod.is_ready for pod in pods)
    return Part(
        name="exporter", state=State.READY if is_ready else State.NOT_READY, seen=pods[0].id
    )


def _cluster_gaps(seen: ClusterSight) -> Iterator[ClusterGap]:
    serves_claims = any(each.mode == agent_sets.DRA for each in seen.agents)
    if serves_claims and node_pools.GPU_DRIVER not in seen.classes:
        yield ClusterGap(
            code="no-device-class",
            part="device classes",
            what=f"no DeviceClass {node_pools.GPU_DRIVER}: claims cannot name GPUs by it",
            next="set nodeAgent.deviceClasses=true, or create the class",
            nodes=(),
        )
    if seen.has_policy and seen.has_gpu_cluster:
        yield ClusterGap(
            code="two-operands",
            part="devices",
            what="ClusterPolicy and GPUCluster both exist: the GPU Operator reconciles neither",
            next="delete one of the two",
            nodes=(),
        )
    exporter = _exporter(seen.exporters)
    if exporter.state is State.NOT_READY:
        namespace, _, name = exporter.seen.partition("/")
        yield ClusterGap(
            code="exporter-not-ready",
            part="exporter",
            what=f"the exporter is not ready: {seen.exporters[0].problem}",
            next=f"kubectl -n {namespace} logs {name}",
            nodes=(),
        )


def _grouped(nodes: tuple[NodeParts, ...]) -> Iterator[ClusterGap]:
    """Gaps by what they say, those of most nodes first; the next step is that of the first node."""
    by_cause: dict[tuple[str, str, str], list[tuple[str, Gap]]] = {}
    for each in nodes:
        for gap in each.gaps:
            cause = (gap.code, gap.part, _without_names(gap.what))
            by_cause.setdefault(cause, []).append((each.node, gap))
    ordered = sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0]))
    for (code, part, _), members in ordered:
        first = members[0][1]
        names = tuple(sorted(name for name, _ in members))
        yield ClusterGap(code=code, part=part, what=first.what, next=first.next, nodes=names)


def _without_names(what: str) -> str:
    """Without the names of pods, which differ from node to node."""
    return " ".join(word for word in what.split() if "/" not in word)
