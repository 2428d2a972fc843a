"""GPU nodes as labels and pods of the GPU stack describe them: hardware, driver, toolkit, device plugin, DRA driver.

Given the replica. A node has a GPU if node-feature-discovery, the operator, gpu-feature-discovery or a cloud says so by
label, or if its kubelet ever counted one. Components are known by the labels of their pods, as their charts write
them, never by a pod's name. Never judges a chain of components (see gpu_stack).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence.sources import pod_state, quoting
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes, pods

PRESENT: Final = "nvidia.com/gpu.present"
DEPLOY: Final = "nvidia.com/gpu.deploy."
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
_FEATURES: Final = "feature.node.kubernetes.io/"
PCI_LABELS: Final = (  # by vendor, or by class and vendor as the operator configures it
    _FEATURES + "pci-10de.present",
    _FEATURES + "pci-0302_10de.present",
    _FEATURES + "pci-0300_10de.present",
)
_CLOUD_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
)
NVIDIA: Final = "nvidia.com/"


class Component(StrEnum):
    """A part of the GPU stack that runs as a pod on every GPU node, in the order in which they need each other."""

    FEATURE_DISCOVERY = "node-feature-discovery"
    DRIVER = "driver"
    TOOLKIT = "container toolkit"
    DEVICE_PLUGIN = "device plugin"
    DRA_DRIVER = "DRA driver"
    GPU_LABELS = "gpu-feature-discovery"
    MIG_MANAGER = "MIG manager"


# Labels of each component's pods: key, and value or the beginning of it.
_POD_LABELS: Final = (
    (Component.FEATURE_DISCOVERY, "app.kubernetes.io/name", "node-feature-discovery"),
    (Component.FEATURE_DISCOVERY, "app", "nfd-"),
    (Component.DRIVER, "app", "nvidia-driver-daemonset"),
    (Component.DRIVER, "app.kubernetes.io/component", "nvidia-driver"),
    (Component.DRIVER, "k8s-app", "nvidia-driver-installer"),
    (Component.TOOLKIT, "app", "nvidia-container-toolkit"),
    (Component.DEVICE_PLUGIN, "app", "nvidia-device-plugin"),
    (Component.DEVICE_PLUGIN, "name", "nvidia-device-plugin"),
    (Component.DEVICE_PLUGIN, "app.kubernetes.io/name", "nvidia-device-plugin"),
    (Component.DEVICE_PLUGIN, "k8s-app", "nvidia-gpu-device-plugin"),
    (Component.DRA_DRIVER, "app.kubernetes.io/name", "nvidia-dra-driver"),
    (Component.DRA_DRIVER, "app.kubernetes.io/name", "dra-driver-nvidia-gpu"),
    (Component.DRA_DRIVER, "app", "nvidia-dra-driver"),
    (Component.DRA_DRIVER, "nvidia-dra-driver-gpu-component", "kubelet-plugin"),
    (Component.GPU_LABELS, "app", "gpu-feature-discovery"),
    (Component.GPU_LABELS, "app.kubernetes.io/name", "gpu-feature-discovery"),
    (Component.MIG_MANAGER, "app", "nvidia-mig-manager"),
)
OUR_AGENT: Final = ("dovetail", "node-agent")  # app.kubernetes.io/name and component


class ComponentPod(NamedTuple):
    """A pod of the GPU stack."""

    component: Component
    id: str
    node: str
    is_ready: bool
    problem: (
        str  # such as "CrashLoopBackOff, 12 restarts: driver is in use"; empty where there is none
    )

    @property
    def line(self) -> str:
        """As evidence."""
        state = self.problem or ("ready" if self.is_ready else "not ready")
        return quoting.line(
            f"Pod {self.id} ({self.component}) on node {self.node or '?'}", None, state
        )


def all_nodes(replica: Replica) -> Iterator[nodes.Node]:
    """Every node."""
    for stored in replica.listed(registry.NODE.unique_name):
        if isinstance(stored.struct, nodes.Node):
            yield stored.struct


def has_gpu(node: nodes.Node) -> bool:
    """Whether anything says that the node has an NVIDIA GPU."""
    labels = node.metadata.labels
    if any(labels.get(name) == "true" for name in (PRESENT, *PCI_LABELS)):
        return True
    if "nvidia.com/gpu.product" in labels or any(name in labels for name in _CLOUD_LABELS):
        return True
    return any(name.startswith(NVIDIA) for name in node.status.capacity)


def is_labelled(node: nodes.Node) -> bool:
    """Whether node-feature-discovery wrote labels onto the node."""
    return any(name.startswith(_FEATURES) for name in node.metadata.labels)


def component_pods(replica: Replica) -> dict[tuple[Component, str], ComponentPod]:
    """The pods of the GPU stack by component and node; of two on a node the one that is not ready."""
    by_place: dict[tuple[Component, str], ComponentPod] = {}
    for stored in replica.listed(registry.POD.unique_name):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        component = component_of(pod.metadata.labels)
        if component is not None:
            part = described(component, pod, stored)
            place = (component, part.node)
            known = by_place.get(place)
            if known is None or (known.is_ready and not part.is_ready):
                by_place[place] = part
    return by_place


def component_of(labels: dict[str, str]) -> Component | None:
    """The component whose pods carry these labels."""
    name, part = labels.get("app.kubernetes.io/name"), labels.get("app.kubernetes.io/component")
    if (name, part) == OUR_AGENT:
        return Component.DRA_DRIVER
    for component, key, value in _POD_LABELS:
        if labels.get(key, "").startswith(value):
            return component
    return None


def described(component: Component, pod: pods.Pod, stored: codec.Stored) -> ComponentPod:
    """A pod of the GPU stack, with what keeps it from being ready."""
    conditions = {each.type: each.status for each in pod.status.conditions}
    is_ready = pod.status.phase == "Running" and conditions.get("Ready", "True") == "True"
    return ComponentPod(
        component,
        f"{pod.metadata.namespace}/{pod.metadata.name}",
        pod.spec.node_name or _wanted_node(pod),
        is_ready,
        "" if is_ready else _problem(pod, stored),
    )


def _wanted_node(pod: pods.Pod) -> str:
    """The node a pod of a DaemonSet is meant for: its affinity names it before the pod is bound."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return ""
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    for term in required.node_selector_terms if required is not None else ():
        for requirement in term.match_fields:
            if requirement.key == "metadata.name" and len(requirement.values) == 1:
                return requirement.values[0]
    return ""


def _problem(pod: pods.Pod, stored: codec.Stored) -> str:
    for container in pod_state.containers_of(stored):
        if container.is_ready or container.state == "running" or container.reason == "Completed":
            continue
        reason = container.reason or "not started"
        if container.reason == "PodInitializing":
            continue  # an init container before it says more
        restarts = (
            f", {quoting.counted(container.restarts, 'restart')}" if container.restarts else ""
        )
        message = (
            container.last_message if container.reason == "CrashLoopBackOff" else container.message
        )
        said = f": {quoting.words(message, 80)}" if message else ""
        return f"{quoting.words(reason, 60)}{restarts}{said}"
    if not pod.spec.node_name:
        return "it is not scheduled"
    return f"it is {pod.status.phase or 'Pending'} and not ready"
