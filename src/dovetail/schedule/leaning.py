"""Decides what about a node itself makes a pod like it less or more: stated preferences, soft taints, images at hand.

Costs in thousandths of a GPU, as all scores; facts of the node alone, so that nodes alike stay alike. Preferences
people state weigh by their own weight and outrank packing; images at hand outrank a tight fit, never a stranded GPU.
How many other nodes hold an image is not read, unlike kube-scheduler, which spreads pods that way. Never forbids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.model import nodes, plan, pods, policy, selectors
from dovetail.schedule import fit

PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
SMALL_BYTES: Final = 23 << 20  # images of less are no reason to choose a node: ImageLocality's minThreshold
LARGE_BYTES: Final = 1000 << 20  # per container, the size from which on more makes no difference: maxContainerThreshold


def terms(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> tuple[plan.Term, ...]:
    """What the node lacks of what the pod would like, each with its cost; what it has of it costs less than nothing."""
    found = (_wishes(pod, node, weights), _soft_taints(pod, node, weights), _images(pod, node, weights))
    return tuple(term for term in found if term is not None and term.milli_gpu)


def _wishes(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    listed = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    missed = sum(one.weight for one in listed if not _is_met(one.preference, node))
    if not missed:
        return None
    sentence = f"the node misses preferences of weight {missed} that the pod states"
    return plan.Term("preferred nodes", float(weights.preference * missed), sentence)


def _is_met(term: selectors.NodeSelectorTerm, node: nodes.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return True  # no test, nothing to miss; a required term without tests picks nothing instead
    wanted = selectors.NodeSelector(node_selector_terms=(term,))
    try:
        return selectors.picks_node(wanted, node.metadata.labels, node_name=node.metadata.name)
    except selectors.SelectorError:
        return False


def _soft_taints(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    kept = [one for one in pod.spec.tolerations if one.effect in ("", PREFER_NO_SCHEDULE)]
    taints = [one for one in node.spec.taints if one.effect == PREFER_NO_SCHEDULE]
    count = sum(not fit.tolerated(one, tuple(kept)) for one in taints)
    if not count:
        return None
    sentence = f"the node asks to be avoided by {count} taints that the pod does not tolerate"
    return plan.Term("soft taints", float(weights.soft_taint * count), sentence)


def _images(pod: pods.Pod, node: nodes.Node, weights: policy.Weights) -> plan.Term | None:
    if not node.status.images:
        return None
    wanted = list(images_of(pod))
    held = {name: image.size_bytes for image in node.status.images for name in image.names}
    at_hand = sum(held.get(name, 0) for name in wanted)
    if at_hand <= SMALL_BYTES:
        return None
    most = LARGE_BYTES * len(wanted)
    saved = round(weights.image * (min(at_hand, most) - SMALL_BYTES) / (most - SMALL_BYTES), 3)
    return plan.Term("images", -saved, f"{at_hand >> 20} MiB of the pod's images are on the node already")


def images_of(pod: pods.Pod) -> Iterator[str]:
    """The images of a pod's containers, each as nodes report it."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield normalized(container.image)


def normalized(name: str) -> str:
    """With the tag that is meant where none is written."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
