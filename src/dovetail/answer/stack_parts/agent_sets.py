"""Which DaemonSets of ours ask for an agent on which nodes, and in which mode.

Given the objects of a cluster. An agent's mode, partitioning and metrics are read from its arguments, as the chart
writes them. Never looks at a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.kubetypes import codec, gpu_stack_kinds, object_set
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.workloads import daemon_sets
from dovetail.schedule.node import node_fit

DRA: Final = "dra"
DEVICE_PLUGIN: Final = "device-plugin"
NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
# Taints that the DaemonSet controller makes its pods tolerate, whatever the template says.
ALWAYS_TOLERATED: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)


class AgentSet(NamedTuple):
    """A DaemonSet of node agents."""

    id: str  # namespace/name
    mode: str
    mig: str
    replicas: int
    has_metrics: bool
    selector: Mapping[str, str]
    tolerations: tuple[pods.Toleration, ...]

    def selects(self, node: nodes.Node) -> bool:
        """Whether the labels of a node are those that the set asks for."""
        return self.selector.items() <= node.metadata.labels.items()

    def kept_off_by(self, node: nodes.Node) -> str:
        """The taint that keeps its pods off a node; empty where there is none."""
        taints = [taint for taint in node.spec.taints if taint.key not in ALWAYS_TOLERATED]
        taint = node_fit.untolerated(taints, self.tolerations)
        return "" if taint is None else node_fit.taint_text(taint)


def agent_sets(objects: object_set.ObjectSet, problems: list[str]) -> tuple[AgentSet, ...]:
    """The DaemonSets of our node agents, by name."""
    return tuple(_agent_set(each) for each in daemon_sets_of(objects, problems) if is_agent(each))


def daemon_sets_of(
    objects: object_set.ObjectSet, problems: list[str]
) -> Iterator[daemon_sets.DaemonSet]:
    """All DaemonSets that can be read."""
    for stored in objects.listed(gpu_stack_kinds.DAEMON_SET.unique_name):
        struct: object = stored.struct
        if isinstance(struct, daemon_sets.DaemonSet):
            yield struct
            continue
        try:
            yield codec.decode_struct(daemon_sets.DaemonSet, stored.document)
        except errors.InputError as error:
            problems.append(f"DaemonSet {stored.struct.metadata.name}: {error}")


def is_agent(daemon_set: daemon_sets.DaemonSet) -> bool:
    """Whether it runs our node agent."""
    return is_agent_label(daemon_set.spec.template.metadata.labels)


def is_agent_label(labels: Mapping[str, str]) -> bool:
    """Whether pods with these labels are our node agent."""
    return (labels.get(NAME), labels.get(COMPONENT)) == gpu_nodes.OUR_AGENT


def _agent_set(daemon_set: daemon_sets.DaemonSet) -> AgentSet:
    template = daemon_set.spec.template.spec
    arguments = _arguments(word for each in template.containers for word in each.args)
    replicas = arguments.get("replicas", "1")
    return AgentSet(
        id=f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}",
        mode=arguments.get("mode", DRA),
        mig=arguments.get("mig", "dynamic"),
        replicas=int(replicas) if replicas.isdecimal() else 1,
        has_metrics="metrics" in arguments,
        selector=template.node_selector,
        tolerations=template.tolerations,
    )


def _arguments(words: Iterable[str]) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {name: value for name, _, value in pairs}
