"""On which nodes a DaemonSet runs: node selector, required affinity, and taints that its pods do not tolerate.

Given a DaemonSet and nodes; says per node whether a pod should start there and whether one may stay. Builds the pod
for a node. As upstream: pods tolerate cordons, pressure and lost nodes, and are bound to their node by a field
affinity.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.schedule.node import node_fit
from dovetail.sim.controllers import owner_references, pod_states, pod_templates, tree_fields
from dovetail.sim.controllers.apps import controller_revisions

Tree = dict[str, Any]

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
GENERATION_LABEL: Final = "pod-template-generation"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# Taints that daemon pods tolerate: pkg/controller/daemon/util.
TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
NETWORK_UNAVAILABLE: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Fit(NamedTuple):
    """What a node is to a DaemonSet."""

    should_run: bool
    may_stay: bool


class Placement:
    """The placement rules of one DaemonSet, read once for all nodes."""

    def __init__(self, owner: Tree) -> None:
        spec = tree_fields.mapping(owner["spec"]["template"], "spec")
        self._node_name = spec.get("nodeName") or ""
        self._node_selector = tree_fields.mapping(spec, "nodeSelector")
        affinity = tree_fields.mapping(spec, "affinity", "nodeAffinity")
        required = affinity.get(REQUIRED)
        self._required = (
            None if required is None else msgspec.convert(required, node_selectors.NodeSelector)
        )
        self._tolerations = msgspec.convert(_tolerations(spec), tuple[pods.Toleration, ...])

    def fit(self, node: Tree) -> Fit:
        """Whether a pod should start on the node, and whether a pod that runs there may stay."""
        name = node["metadata"]["name"]
        if self._node_name not in ("", name) or not self._has_labels(node):
            return Fit(False, False)
        taints = tree_fields.entries(node, "spec", "taints")
        structs = msgspec.convert(taints, tuple[nodes.Taint, ...])
        if node_fit.untolerated(structs, self._tolerations) is None:
            return Fit(True, True)
        evicting = [taint for taint in structs if taint.effect == node_fit.NO_EXECUTE]
        return Fit(False, node_fit.untolerated(evicting, self._tolerations) is None)

    def _has_labels(self, node: Tree) -> bool:
        labels = owner_references.labels_of(node)
        if not self._node_selector.items() <= labels.items():
            return False
        if self._required is None:
            return True
        name = node["metadata"]["name"]
        try:
            return node_selectors.picks_node_leniently(self._required, labels, node_name=name)
        except node_selectors.SelectorError:
            return False


def pod_for(owner: Tree, node_name: str, hash_text: str) -> Tree:
    """The pod that a DaemonSet runs on a node."""
    pod = pod_templates.pod_from_template(owner["spec"]["template"], owner)
    labels = pod["metadata"]["labels"] | {controller_revisions.POD_LABEL: hash_text}
    generation = owner_references.annotations_of(owner).get(TEMPLATE_GENERATION)
    if generation is not None:
        labels[GENERATION_LABEL] = generation
    spec = pod["spec"]
    changes = {
        "affinity": _bound_to(spec.get("affinity"), node_name),
        "tolerations": _tolerations(spec),
    }
    return pod | {"metadata": pod["metadata"] | {"labels": labels}, "spec": spec | changes}


def target_of(pod: Tree) -> str:
    """The node a daemon pod runs on or is meant for; empty if it does not say."""
    if pod_states.node_of(pod):
        return pod_states.node_of(pod)
    affinity = tree_fields.mapping(pod["spec"], "affinity", "nodeAffinity")
    for term in tree_fields.entries(affinity, REQUIRED, "nodeSelectorTerms"):
        for requirement in tree_fields.entries(term, "matchFields"):
            values = tree_fields.entries(requirement, "values")
            is_name = requirement.get("key") == node_selectors.FIELD_NODE_NAME
            if is_name and requirement.get("operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def _bound_to(affinity: Tree | None, node_name: str) -> Tree:
    """The affinity with the node's name in place of the required terms."""
    requirement = {
        "key": node_selectors.FIELD_NODE_NAME,
        "operator": "In",
        "values": [node_name],
    }
    terms = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    others = dict(affinity or {})
    others["nodeAffinity"] = tree_fields.mapping(others, "nodeAffinity") | {REQUIRED: terms}
    return others


def _tolerations(spec: Tree) -> list[Tree]:
    """The tolerations of the template, and those every daemon pod has."""
    tolerations = tree_fields.entries(spec, "tolerations")
    taints = [*TOLERATED, NETWORK_UNAVAILABLE] if spec.get("hostNetwork") else TOLERATED
    for key, effect in taints:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return tolerations
