"""Scores a node by the pod's preferences: preferred node affinity, PreferNoSchedule taints, images on the node.

Costs in thousandths of a GPU, as all scores; facts of the node alone, so that nodes alike stay alike. Stated
preferences count by their weight and outrank packing; images on the node outrank a tight fit, never a stranded GPU.
How many other nodes hold an image is not read, unlike kube-scheduler, which spreads pods that way. Never forbids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import plan, policy
from dovetail.schedule.node import node_fit

PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
SMALL_BYTES: Final = (
    23 << 20
)  # images of less are no reason to choose a node: ImageLocality's minThreshold
LARGE_BYTES: Final = (
    1000 << 20
)  # per container, the size from which on more makes no difference: maxContainerThreshold


def terms(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> tuple[plan.Term, ...]:
    """What the node lacks of what the pod would like, each with its cost; what it has of it costs less than nothing."""
    preference_terms = (
        _wishes(pod, node, weights),
        _soft_taints(pod, node, weights),
        _images(pod, node, weights),
    )
    return tuple(term for term in preference_terms if term is not None and term.milli_gpu)


def _wishes(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    listed = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    missed = sum(
        preferred.weight for preferred in listed if not _is_met(preferred.preference, node)
    )
    if not missed:
        return None
    sentence = f"the node misses preferences of weight {missed} that the pod states"
    return plan.Term("preferred nodes", float(weights.preference * missed), sentence)


def _is_met(term: node_selectors.NodeSelectorTerm, node: nodes.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return True  # no test, nothing to miss; a required term without tests picks nothing instead
    selector = node_selectors.NodeSelector(node_selector_terms=(term,))
    try:
        return node_selectors.picks_node(
            selector, node.metadata.labels, node_name=node.metadata.name
        )
    except node_selectors.SelectorError:
        return False


def _soft_taints(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    tolerations = [
        toleration
        for toleration in pod.spec.tolerations
        if toleration.effect in ("", PREFER_NO_SCHEDULE)
    ]
    taints = [taint for taint in node.spec.taints if taint.effect == PREFER_NO_SCHEDULE]
    count = sum(not node_fit.tolerated(taint, tuple(tolerations)) for taint in taints)
    if not count:
        return None
    sentence = f"the node asks to be avoided by {count} taints that the pod does not tolerate"
    return plan.Term("soft taints", float(weights.soft_taint * count), sentence)


def _images(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    if not node.status.images:
        return None
    image_names = list(images_of(pod))
    bytes_by_image = {
        name: image.size_bytes for image in node.status.images for name in image.names
    }
    at_hand = sum(bytes_by_image.get(name, 0) for name in image_names)
    if at_hand <= SMALL_BYTES:
        return None
    most = LARGE_BYTES * len(image_names)
    saved = round(weights.image * (min(at_hand, most) - SMALL_BYTES) / (most - SMALL_BYTES), 3)
    return plan.Term(
        "images", -saved, f"{at_hand >> 20} MiB of the pod's images are on the node already"
    )


def images_of(pod: pods.Pod) -> Iterator[str]:
    """The images of a pod's containers, each as nodes report it."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield normalized(container.image)


def normalized(name: str) -> str:
    """With the tag that is meant where none is written."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
