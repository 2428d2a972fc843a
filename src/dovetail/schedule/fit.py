"""Decides whether a node suits a pod, devices aside: its name, cordon, taints, labels, features and room.

Judges as kube-scheduler's NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, NodeDeclaredFeatures and
NodeResourcesFit do.
What depends only on the node's own facts is told apart from what depends on the room left. Never chooses.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.model import nodes, pods, requests, selectors
from dovetail.schedule import features

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
UNSCHEDULABLE_TAINT: Final = nodes.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class Cause(enum.Enum):
    """Why a node is out."""

    OTHER_NODE = "other-node"
    CORDONED = "cordoned"
    TAINT = "taint"
    LABELS = "labels"
    FEATURES = "features"
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
        return Misfit(Cause.LABELS)
    if feature := features.missing(spec, node):
        return Misfit(Cause.FEATURES, feature)
    return None


def room_misfits(need: requests.Resources, left: requests.Resources) -> tuple[Misfit, ...]:
    """Every resource the node has too little of."""
    return tuple(Misfit(Cause.RESOURCES, one.resource, one.need, one.have) for one in requests.shortages(need, left))


def has_labels(spec: pods.PodSpec, node: nodes.Node) -> bool:
    """Whether node selector and required node affinity hold. A term nobody can read holds nowhere."""
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    try:
        return selectors.picks_node_leniently(required, labels, node_name=node.metadata.name)
    except selectors.SelectorError:
        return False


def untolerated(taints: Iterable[nodes.Taint], tolerations: tuple[pods.Toleration, ...]) -> nodes.Taint | None:
    """The first taint that keeps the pod away. PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, tolerations):
            return taint
    return None


def tolerated(taint: nodes.Taint, tolerations: tuple[pods.Toleration, ...]) -> bool:
    """Whether any toleration covers the taint."""
    return any(selectors.tolerates(one, taint) for one in tolerations)


def taint_text(taint: nodes.Taint) -> str:
    """As kubectl writes taints."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
