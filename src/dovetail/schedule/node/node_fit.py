"""Decides whether a pod fits a node, devices aside: its name, cordon, taints, labels, features and free resources.

The filters NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, NodeDeclaredFeatures and NodeResourcesFit of
kube-scheduler. What depends on the node object alone is apart from what depends on free resources. Never selects.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import gpu_annotations, pod_requests
from dovetail.schedule.node import missing_labels

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
UNSCHEDULABLE_TAINT: Final = nodes.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
RESTART_ALL: Final = "RestartAllContainers"  # the action of a restart rule


class Cause(enum.Enum):
    """Why a node is out."""

    OTHER_NODE = "other-node"
    CORDONED = "cordoned"
    TAINT = "taint"
    LABELS = "labels"
    FEATURES = "features"
    GPU_CHOICE = "gpu-choice"
    RESOURCES = "resources"
    CLAIM = "claim"
    DEVICES = "devices"
    UNDECIDED = "undecided"


class Misfit(NamedTuple):
    """One thing that rules a node out. Equal misfits on many nodes are counted together."""

    cause: Cause
    what: str = ""
    need: int = 0
    have: int = 0
    why: str = ""


def node_misfit(pod: pods.Pod, node: nodes.Node) -> Misfit | None:
    """The first fact about the node that rules it out for the pod; None if it may be used."""
    spec = pod.spec
    if spec.node_name and spec.node_name != node.metadata.name:
        return Misfit(Cause.OTHER_NODE, spec.node_name)
    if node.spec.unschedulable and not tolerated(UNSCHEDULABLE_TAINT, spec.tolerations):
        return Misfit(Cause.CORDONED)
    if taint := untolerated(node.spec.taints, spec.tolerations):
        return Misfit(Cause.TAINT, taint_text(taint))
    if not has_labels(spec, node):
        missing = missing_labels.missing_labels(spec, node)
        return Misfit(Cause.LABELS, missing.text, missing.asked, missing.met)
    if feature := missing_feature(spec, node):
        return Misfit(Cause.FEATURES, feature)
    return gpu_misfit(pod, node)


def gpu_misfit(pod: pods.Pod, node: nodes.Node) -> Misfit | None:
    """Whether the GPUs that a device plugin of the node counts are ruled out by an annotation of the pod.

    Where devices serve the request, the selectors of their claim decide (extended_resources).
    """
    choice = gpu_annotations.choice_of(pod)
    if choice == gpu_annotations.ANY_GPU or not _has_gpus_for(pod, node):
        return None
    mismatch = gpu_annotations.plugin_mismatch(choice, node.metadata.labels)
    if mismatch is None:
        return None
    return Misfit(Cause.GPU_CHOICE, f"annotation {mismatch.key}", why=mismatch.why)


def room_misfits(need: pod_requests.Resources, free: pod_requests.Resources) -> tuple[Misfit, ...]:
    """Every resource the node has too little of."""
    return tuple(
        Misfit(Cause.RESOURCES, shortage.resource, shortage.need, shortage.have)
        for shortage in pod_requests.shortages(need, free)
    )


def has_labels(spec: pods.PodSpec, node: nodes.Node) -> bool:
    """Whether node selector and required node affinity hold. An unreadable term holds nowhere."""
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    try:
        return node_selectors.picks_node_leniently(required, labels, node_name=node.metadata.name)
    except node_selectors.SelectorError:
        return False


def untolerated(
    taints: Iterable[nodes.Taint], tolerations: tuple[pods.Toleration, ...]
) -> nodes.Taint | None:
    """The first taint that keeps the pod away. PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, tolerations):
            return taint
    return None


def tolerated(taint: nodes.Taint, tolerations: tuple[pods.Toleration, ...]) -> bool:
    """Whether any toleration covers the taint."""
    return any(node_selectors.tolerates(toleration, taint) for toleration in tolerations)


def taint_text(taint: nodes.Taint) -> str:
    """As kubectl writes taints."""
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


def needed_features(spec: pods.PodSpec) -> tuple[str, ...]:
    """The features that a pod needs its node to declare, by name; only those that scheduling depends on."""
    if (
        not spec.host_network
        and not spec.init_containers
        and not any(map(_says_more, spec.containers))
    ):
        return ()  # as for most pods
    return tuple(name for name, is_needed in FEATURES.items() if is_needed(spec))


def missing_feature(spec: pods.PodSpec, node: nodes.Node) -> str | None:
    """The first feature the node does not declare."""
    return next(
        (name for name in needed_features(spec) if name not in node.status.declared_features), None
    )


def _has_gpus_for(pod: pods.Pod, node: nodes.Node) -> bool:
    """Whether a device plugin of the node offers GPUs that the pod requests."""
    offered = node.status.allocatable
    requested = pod_requests.pod_request(pod).scalars
    gpus = [name for name, _ in requested if gpu_annotations.is_gpu(name)]
    return any(name in offered and offered[name].nanos > 0 for name in gpus)


def _says_more(container: pods.Container) -> bool:
    return bool(container.restart_policy_rules or container.volume_mounts)


def _restarts_all(spec: pods.PodSpec) -> bool:
    return any(
        rule.action == RESTART_ALL
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


def _maps_users_on_host_network(spec: pods.PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


def _sets_bind_options(spec: pods.PodSpec) -> bool:
    return any(
        mount.bind_mount_options
        for container in (*spec.containers, *spec.init_containers)
        for mount in container.volume_mounts
    )


FEATURES: Final[
    dict[str, Callable[[pods.PodSpec], bool]]
] = {  # nodedeclaredfeatures of component-helpers 0.37
    "RestartAllContainersOnContainerExits": _restarts_all,
    "UserNamespacesHostNetworkSupport": _maps_users_on_host_network,
    "VolumeBindMountOptions": _sets_bind_options,
}
