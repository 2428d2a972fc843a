"""What adapters know about one node: itself, its pods, the GPU nodes beside it, the operator's objects, its stack.

Given the objects of a cluster, read once for all nodes. Never decides what a fact means for an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.answer.stack import node_stack, platform_objects
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.sources import pod_state
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods


class StackPod(NamedTuple):
    """A pod on the node, with the states of its containers."""

    pod: pods.Pod
    containers: tuple[pod_state.Container, ...]

    @property
    def id(self) -> str:
        """Namespace and name."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def is_going(self) -> bool:
        """Whether it was deleted and has not ended."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_ready(self) -> bool:
        """Running with every container ready, as NVIDIA's upgrade library judges it."""
        mains = [each for each in self.containers if each.name in _names(self.pod.spec.containers)]
        is_running = self.pod.status.phase == "Running"
        return is_running and bool(mains) and all(each.is_ready for each in mains)

    @property
    def component(self) -> gpu_nodes.Component | None:
        """The part of the GPU stack that it runs."""
        return gpu_nodes.component_of(self.pod.metadata.labels)


class NodeFacts(NamedTuple):
    """One node in its cluster."""

    node: nodes.Node
    stack: node_stack.NodeStack
    pods: tuple[StackPod, ...]  # of the node, those that ended left out
    fleet: tuple[nodes.Node, ...]  # every GPU node, this one among them
    platform: platform_objects.Platform
    applying_seconds: int = 0  # since the executor first asked to apply this target to this node

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the node."""
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the node."""
        return self.node.metadata.annotations

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet reports Ready. A node that reports no such condition counts as ready."""
        return is_ready(self.node)

    def pods_of(self, component: gpu_nodes.Component) -> tuple[StackPod, ...]:
        """Its pods of one part of the GPU stack."""
        return tuple(each for each in self.pods if each.component is component)

    def pods_labelled(self, key: str, value: str) -> tuple[StackPod, ...]:
        """Its pods with a label."""
        return tuple(each for each in self.pods if each.pod.metadata.labels.get(key) == value)


def is_ready(node: nodes.Node) -> bool:
    """Whether the kubelet of a node reports Ready, as NVIDIA's upgrade library reads it."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


class FleetFacts(NamedTuple):
    """The facts of every GPU node."""

    of_nodes: Mapping[str, NodeFacts]

    def of(self, node: str, *, applying_seconds: int = 0) -> NodeFacts | None:
        """The facts of one node; None where it is gone or has no GPU."""
        facts = self.of_nodes.get(node)
        return facts._replace(applying_seconds=applying_seconds) if facts is not None else None


def read(objects: object_set.ObjectSet) -> FleetFacts:
    """The facts of every GPU node. Linear in nodes, pods and devices."""
    platform = platform_objects.read(objects)
    stored_nodes = [
        stored
        for stored in objects.listed(registry.NODE.unique_name)
        if isinstance(stored.struct, nodes.Node)
    ]
    stacks = [node_stack.of_node(stored, platform) for stored in stored_nodes]
    by_name = {
        stack.node: (stored.struct, stack)
        for stored, stack in zip(stored_nodes, stacks, strict=True)
        if stack.has_gpu and isinstance(stored.struct, nodes.Node)
    }
    fleet = tuple(node for node, _ in by_name.values())
    on_nodes = _pods_by_node(objects)
    return FleetFacts(
        {
            name: NodeFacts(node, stack, tuple(on_nodes.get(name, ())), fleet, platform)
            for name, (node, stack) in by_name.items()
        }
    )


def _pods_by_node(objects: object_set.ObjectSet) -> dict[str, list[StackPod]]:
    by_node: dict[str, list[StackPod]] = {}
    for stored in objects.listed(registry.POD.unique_name):
        pod = stored.struct
        if isinstance(pod, pods.Pod) and pods.occupies_node(pod):
            stack_pod = StackPod(pod, pod_state.containers_of(stored))
            by_node.setdefault(pod.spec.node_name, []).append(stack_pod)
    return by_node


def _names(containers: tuple[pods.Container, ...]) -> frozenset[str]:
    return frozenset(each.name for each in containers)
