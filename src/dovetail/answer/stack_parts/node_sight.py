"""What the objects of a cluster show of one node's parts: agents, rivals, devices, counts, labels.

Given the objects of a cluster. Indexes them once; linear in pods, slices and nodes. Never judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dovetail.answer.stack import node_stack, platform_objects
from dovetail.answer.stack.node_stack import NodeStack
from dovetail.answer.stack_parts import agent_sets
from dovetail.answer.stack_parts.agent_sets import AgentSet
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component, ComponentPod
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools

EXPORTER: Final = "exporter"  # app.kubernetes.io/component of our exporter's pods


class Published(NamedTuple):
    """The slices of a node's GPUs."""

    gpus: int  # boards
    partitions: int  # MIG devices, those that could be made included
    pools: tuple[str, ...]
    lacking: int  # slices that a pool counts and that are not there


class NodeSight(NamedTuple):
    """What is seen of one node."""

    node: nodes.Node
    stack: NodeStack
    wanted: tuple[AgentSet, ...]  # our DaemonSets that select it
    agents: tuple[ComponentPod, ...]  # pods of our agents
    others: tuple[ComponentPod, ...]  # pods of NVIDIA's parts
    published: Published | None
    counted: Mapping[str, int]  # GPUs, parts and shares that its kubelet counts

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    def other(self, component: Component) -> ComponentPod | None:
        """NVIDIA's pod of that part."""
        return next((each for each in self.others if each.component is component), None)

    @property
    def has_driver(self) -> bool:
        """Whether anything shows that a driver is loaded."""
        is_stated = self.stack.driver_loaded.is_present
        return is_stated or bool(self.counted) or self.published is not None


class ClusterSight(NamedTuple):
    """What is seen of a cluster."""

    nodes: tuple[NodeSight, ...]  # with GPUs
    other_nodes: int
    agents: tuple[AgentSet, ...]
    exporters: tuple[ComponentPod, ...]
    classes: frozenset[str]
    has_policy: bool  # the GPU Operator's ClusterPolicy
    has_gpu_cluster: bool
    problems: tuple[str, ...]


def read(objects: object_set.ObjectSet) -> ClusterSight:
    """All that the report needs."""
    platform = platform_objects.read(objects)
    problems = list(platform.problems)
    wanted = agent_sets.agent_sets(objects, problems)
    agents, others, exporters = _component_pods(objects)
    published = _published(objects)
    sights = []
    count = 0
    for stored in objects.listed(registry.NODE.unique_name):
        node = stored.struct
        if not isinstance(node, nodes.Node):
            continue
        count += 1
        name = node.metadata.name
        stack = node_stack.of_node(stored, platform)
        if not stack.has_gpu:
            continue
        sight = NodeSight(
            node=node,
            stack=stack,
            wanted=tuple(each for each in wanted if each.selects(node)),
            agents=tuple(agents.get(name, ())),
            others=tuple(others.get(name, ())),
            published=published.get(name),
            counted=node_pools.plugin_gpus(node),
        )
        sights.append(sight)
    classes = [
        stored.struct.metadata.name for stored in objects.listed(registry.DEVICE_CLASS.unique_name)
    ]
    return ClusterSight(
        nodes=tuple(sights),
        other_nodes=count - len(sights),
        agents=wanted,
        exporters=exporters,
        classes=frozenset(classes),
        has_policy=platform.policy is not None,
        has_gpu_cluster=bool(platform.clusters),
        problems=tuple(dict.fromkeys(problems)),
    )


ByNode = dict[str, list[ComponentPod]]


def _component_pods(
    objects: object_set.ObjectSet,
) -> tuple[ByNode, ByNode, tuple[ComponentPod, ...]]:
    """Pods of our agents and of NVIDIA's parts by node, and those of our exporter."""
    agents: ByNode = {}
    others: ByNode = {}
    exporters: list[ComponentPod] = []
    for pod, stored in _live_pods(objects):
        labels = pod.metadata.labels
        component = gpu_nodes.component_of(labels)
        if component is not None:
            part = gpu_nodes.described(component, pod, stored)
            by_node = agents if agent_sets.is_agent_label(labels) else others
            by_node.setdefault(part.node, []).append(part)
        elif (labels.get(agent_sets.NAME), labels.get(agent_sets.COMPONENT)) == (
            "dovetail",
            EXPORTER,
        ):
            # The component is not one of a node; only its state is used.
            exporters.append(gpu_nodes.described(Component.GPU_LABELS, pod, stored))
    return agents, others, tuple(exporters)


def _live_pods(objects: object_set.ObjectSet) -> Iterator[tuple[pods.Pod, codec.Stored]]:
    for stored in objects.listed(registry.POD.unique_name):
        pod = stored.struct
        if isinstance(pod, pods.Pod) and pod.status.phase not in pods.TERMINAL_PHASES:
            yield pod, stored


def _published(objects: object_set.ObjectSet) -> dict[str, Published]:
    by_node: dict[str, list[slices.ResourceSlice]] = {}
    for stored in objects.listed(registry.SLICE.unique_name):
        part = stored.struct
        if not isinstance(part, slices.ResourceSlice):
            continue
        if part.spec.driver == node_pools.GPU_DRIVER and part.spec.node_name:
            by_node.setdefault(part.spec.node_name, []).append(part)
    return {node: _of_node(parts) for node, parts in by_node.items()}


def _of_node(parts: list[slices.ResourceSlice]) -> Published:
    newest: dict[str, int] = {}
    for part in parts:
        pool = part.spec.pool
        newest[pool.name] = max(pool.generation, newest.get(pool.name, pool.generation))
    current = [part for part in parts if part.spec.pool.generation == newest[part.spec.pool.name]]
    boards: set[str] = set()
    partitions = 0
    for part in current:
        for device in part.spec.devices:
            is_partition = "profile" in device.attributes
            partitions += is_partition
            boards.add(device.name.partition("-mig-")[0] if is_partition else device.name)
    expected = {part.spec.pool.name: part.spec.pool.resource_slice_count for part in current}
    lacking = sum(expected.values()) - len(current)
    return Published(len(boards), partitions, tuple(sorted(newest)), max(0, lacking))
