"""Sentences about what other pods, host ports and volumes keep a pod off nodes for.

Given the blocks of one cause on the nodes of one way. Names the pods and places that are in the way. Never chooses
between causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes.node_sentences import Sentence, counted, names
from dovetail.answer.why.obstacles.blocks import Block
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.obstacles.ways import Way
from dovetail.kubetypes import label_selectors, meta
from dovetail.kubetypes.core import pods
from dovetail.schedule.node.filters import pod_affinity
from dovetail.world import pod_index


def sentence(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    """What these blocks, all of one cause, amount to."""
    block = blocks[0]
    where = f"{counted(len(way.nodes), 'node')} that could take it"
    on = f"node {way.nodes[0]}" if len(way.nodes) == 1 else f"the {where}"
    match block.code:
        case CauseCode.HOST_PORT:
            return block.code, f"{block.subject} is in use on {on} ({names(way.nodes)})"
        case CauseCode.POD_AFFINITY:
            terms = _terms(obstacles.pod, is_anti=False)
            elsewhere = _in_other_namespaces(obstacles)
            return block.code, f"pod affinity: no pod with {terms} runs near {on}{elsewhere}"
        case CauseCode.POD_ANTI_AFFINITY if "keeps pods like this one away" in block.detail:
            holders = _exclusive_pods(way, obstacles)
            return CauseCode.KEPT_AWAY, (
                f"the anti-affinity of other pods ({names(holders)}) keeps it off {on}"
            )
        case CauseCode.POD_ANTI_AFFINITY:
            terms = _terms(obstacles.pod, is_anti=True)
            each = "" if len(way.nodes) == 1 else "each of "
            return block.code, f"pod anti-affinity: a pod with {terms} runs on {each}{on}"
        case CauseCode.SPREAD:
            return block.code, _spread(block, way, obstacles)
        case CauseCode.PROMISED:
            return block.code, f"{on}: kept for {block.subject}"
        case CauseCode.VOLUME_NONE if _are_taken(block, obstacles):
            return CauseCode.VOLUMES_TAKEN, (
                f"{block.subject}: every volume of its class {_class_of(block, obstacles)} is taken"
            )
        case CauseCode.VOLUME_LIMIT:
            return block.code, (
                f"{on} can attach too few volumes of {block.subject}: needs {block.need}, "
                f"at most {block.have} more{_limit(block, way, obstacles)}"
            )
        case CauseCode.VOLUME_ELSEWHERE:
            place = _place(block, obstacles)
            return block.code, (
                f"{block.subject} cannot be reached from {on}{f': {place}' if place else ''}"
            )
        case CauseCode.VOLUME_NONE:
            return (
                block.code,
                f"{block.subject}: no volume fits it on {on}{_space(block, obstacles)}",
            )
        case CauseCode.VOLUME_DRIVER:
            return (
                block.code,
                f"{on} {'does' if len(way.nodes) == 1 else 'do'} not run {block.subject}",
            )
        case _:
            return block.code, f"{block.subject} {block.detail or 'is in use'} on {on}"


def _spread(block: Block, way: Way, obstacles: NodeBlocks) -> str:
    key = block.subject.removeprefix("label ")
    all_nodes = obstacles.world.nodes
    values = {node.metadata.labels.get(key) for node in all_nodes.values()} - {None}
    if not values:
        return f"topology spread over label {key}: no node has that label"
    there = {all_nodes[name].metadata.labels.get(key) for name in way.nodes}
    rest = sorted(str(value) for value in values - there)
    text = f"topology spread over {key} by at most {block.need or 1}: one more pod in "
    text += f"{names(str(value) for value in there)} exceeds it"
    if rest:
        text += f", and {names(rest)} has no node that could take it"
    return text


# Pods


def _terms(pod: pods.Pod, *, is_anti: bool) -> str:
    affinity = pod.spec.affinity
    wishes = (
        None
        if affinity is None
        else affinity.pod_anti_affinity
        if is_anti
        else affinity.pod_affinity
    )
    if wishes is None:
        return "the labels it names"
    required = wishes.required_during_scheduling_ignored_during_execution
    texts = [f"{_selector_text(term.label_selector)} ({term.topology_key})" for term in required]
    return " or ".join(texts) if is_anti else " and ".join(texts)


def _in_other_namespaces(obstacles: NodeBlocks) -> str:
    """Where pods with the labels run, if it is in namespaces that the pod's affinity does not look in."""
    wish = pod_index.pod_affinity_of(obstacles.pod)
    if wish is None:
        return ""
    world = obstacles.world
    missed: set[str] = set()
    for term in pod_affinity.read(wish).near:
        running = [world.pods[pod_id] for pod_id in world.running()]
        alike = [pod for pod in running if label_selectors.passes(term.tests, pod.metadata.labels)]
        if any(term.is_about(pod, world.namespaces) for pod in alike):
            continue
        missed.update(pod.metadata.namespace for pod in alike)
    if not missed:
        return ""
    several = "s" if len(missed) > 1 else ""
    return (
        f"; such pods run in namespace{several} {names(sorted(missed))}, which its affinity does "
        "not name (namespaces)"
    )


def _selector_text(selector: meta.LabelSelector | None) -> str:
    if selector is None:
        return "no labels"
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    parts += [
        f"{item.key} {item.operator} [{', '.join(item.values)}]"
        if item.values
        else f"{item.key} {item.operator}"
        for item in selector.match_expressions
    ]
    return ", ".join(parts) or "any labels"


def _exclusive_pods(way: Way, obstacles: NodeBlocks) -> Iterator[str]:
    """The pods on these nodes whose anti-affinity is about the pod."""
    nodes, world = frozenset(way.nodes), obstacles.world
    for pod_id, (node, _) in world.running().items():
        if node not in nodes:
            continue
        pod = world.pods[pod_id]
        wish = pod_index.pod_affinity_of(pod)
        if wish is not None and any(
            term.is_about(obstacles.pod, world.namespaces) for term in pod_affinity.read(wish).away
        ):
            yield f"{pod.metadata.namespace}/{pod.metadata.name}"


# Volumes


def _claim_name(block: Block) -> str:
    return block.subject.removeprefix("volume claim ")


def _class_of(block: Block, obstacles: NodeBlocks) -> str:
    key = (obstacles.pod.metadata.namespace, _claim_name(block))
    claim = obstacles.world.storage.claims.get(key)
    return "" if claim is None else claim.storage_class


def _are_taken(block: Block, obstacles: NodeBlocks) -> bool:
    """Whether there are volumes of the claim's class, all of them bound."""
    class_name = _class_of(block, obstacles)
    volumes = [v for v in obstacles.world.storage.volumes.values() if v.storage_class == class_name]
    return bool(volumes) and not list(obstacles.world.storage.free_of(class_name))


def _space(block: Block, obstacles: NodeBlocks) -> str:
    """How much the claim asks for, and the most that its driver has left in one place."""
    storage = obstacles.world.storage
    claim = storage.claims.get((obstacles.pod.metadata.namespace, _claim_name(block)))
    sizes = [each.largest for each in storage.capacities_of(_class_of(block, obstacles))]
    left = [size for size in sizes if size is not None]
    if claim is None or claim.size is None or not left:
        return ""
    return (
        f"; it asks for {claim.size}, and class {claim.storage_class} has at most {max(left)} left"
    )


def _limit(block: Block, way: Way, obstacles: NodeBlocks) -> str:
    driver = block.subject.removeprefix("CSI driver ")
    csi_node = obstacles.world.storage.nodes.get(way.nodes[0])
    drivers = csi_node.spec.drivers if csi_node is not None else ()
    for entry in drivers:
        if entry.name == driver and entry.allocatable is not None:
            return f" of {entry.allocatable.count}"
    return ""


def _place(block: Block, obstacles: NodeBlocks) -> str:
    """Where the volume is: by its own labels or affinity, else what the filter says."""
    storage = obstacles.world.storage
    claim = storage.claims.get((obstacles.pod.metadata.namespace, _claim_name(block)))
    volume = storage.volumes.get(claim.spec.volume_name) if claim is not None else None
    if volume is not None and volume.spec.node_affinity is not None:
        required = volume.spec.node_affinity.required
        terms = required.node_selector_terms if required is not None else ()
        texts = [
            f"{test.key} {', '.join(test.values)}"
            for term in terms
            for test in term.match_expressions
        ]
        if texts:
            return f"volume {volume.metadata.name} is in {' or '.join(texts)}"
    return block.detail
