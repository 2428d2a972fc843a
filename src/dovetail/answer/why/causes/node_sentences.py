"""Sentences about what nodes are and what is left of them: cordons, taints, labels, cpu, GPUs of device plugins.

Given the blocks of one cause on the nodes of one way. Numbers and names first. Never chooses between causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.answer.why import near_values
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.obstacles.blocks import Block
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks, requirement_text
from dovetail.answer.why.obstacles.ways import Way
from dovetail.kubetypes.core import nodes
from dovetail.model import pod_requests
from dovetail.schedule.node import extended_resources, node_fit

SHOWN: Final = 3  # names in one place
MOST_LABELS: Final = 80  # characters of labels in a sentence
MIG_STATE_LABEL: Final = "nvidia.com/mig.config.state"
MIG_STRATEGY_LABEL: Final = "nvidia.com/mig.strategy"
UPGRADE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
MIG_RESOURCE: Final = "nvidia.com/mig-"
UNFINISHED: Final = frozenset({"failed", "pending", "rebooting"})  # states of the MIG manager
Sentence = tuple[CauseCode, str]


def sentence(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    """What these blocks, all of one cause, amount to."""
    code = blocks[0].code
    match code:
        case CauseCode.BUSY:
            return _busy(blocks, way, obstacles)
        case CauseCode.TOO_LARGE:
            return code, _too_large(blocks, obstacles)
        case CauseCode.RESOURCE_UNKNOWN | CauseCode.NOT_ADVERTISED:
            return _not_offered(blocks, way, obstacles)
        case CauseCode.TAINT:
            return _taint(blocks, way, obstacles)
        case CauseCode.NODE_LABELS:
            return _labels(blocks, way, obstacles)
        case CauseCode.CORDONED:
            return code, _cordoned(blocks, way, obstacles)
        case CauseCode.NOT_READY:
            taints = " and ".join(dict.fromkeys(block.subject for block in blocks))
            return code, (
                f"{counted(len(way.nodes), 'node')} that could take it {_be(way)} not ready: "
                f"taint {taints} ({names(way.nodes)})"
            )
        case CauseCode.TAKEN_OUT:
            taints = " and ".join(dict.fromkeys(block.subject for block in blocks))
            return code, (
                f"{counted(len(way.nodes), 'node')} that could take it ({names(way.nodes)}) "
                f"{_be(way)} taken out of service by taint {taints}, which it does not tolerate"
            )
        case CauseCode.NODE_NAME:
            return code, f"spec.nodeName is {blocks[0].subject}"
        case CauseCode.NODE_FEATURES:
            return code, (
                f"{counted(len(way.nodes), 'node')} {_lack(way)} feature {blocks[0].subject}, "
                "which the pod uses; a newer kubelet declares it"
            )
        case CauseCode.IMAGE_REQUIREMENTS:
            return code, (
                f"{counted(len(way.nodes), 'node')} that could take it "
                f"{'has' if len(way.nodes) == 1 else 'have'} a driver that {blocks[0].subject} of its "
                f"container rules out: {blocks[0].detail} ({names(way.nodes)}); see which driver would do: "
                "dovetail stack check --to driver=VERSION"
            )
        case CauseCode.POOL:
            return code, (
                f"{counted(len(way.nodes), 'node')} that could take it "
                f"{'belongs' if len(way.nodes) == 1 else 'belong'} to another scheduler "
                f"({names(way.nodes)})"
            )
        case CauseCode.CLAIM_ELSEWHERE:
            where = f"node {blocks[0].detail}" if blocks[0].detail else "another node"
            return code, (
                f"claim {blocks[0].subject} has its devices on {where}, which the pod may not use"
            )
        case _:
            return code, f"{blocks[0].subject}: {blocks[0].detail}"


# Room


def _busy(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    block = _scarcest(blocks)
    resource = block.subject
    free_by_node = {name: _free(obstacles, name, resource) for name in way.nodes}
    most, total = max(free_by_node.values()), sum(free_by_node.values())
    need = amount(resource, block.need)
    where = f"{counted(len(way.nodes), 'node')} that could take it{chosen_by(obstacles)}"
    if resource == pod_requests.PODS:
        places = max(obstacles.world.offered(name).pods for name in way.nodes)
        return CauseCode.BUSY, (
            f"no place for another pod: the {where} take at most {places} pods each, all in use"
        )
    if total >= block.need > most and len(way.nodes) > 1:
        return CauseCode.FRAGMENTED, (
            f"needs {need} {resource} on one node; {rounded(resource, total)} are free on the "
            f"{where}, but at most {rounded(resource, most)} on any of them"
        )
    best = max(sorted(free_by_node), key=lambda name: free_by_node[name])
    on = f" on the {where}"
    if len(way.nodes) == 1:
        on = f" on node {best}, the only one that could take it"
    rest = [other.subject for other in blocks if other is not block]
    also = f"; {' and '.join(rest)} short as well" if rest else ""
    free = rounded(resource, most)
    text = f"needs {need} {resource}; at most {free} free{on}{also}{ahead(way, obstacles)}"
    return CauseCode.BUSY, text


def ahead(way: Way, obstacles: NodeBlocks) -> str:
    """The pods that start first and take room on these nodes."""
    nodes_of_way = frozenset(way.nodes)
    first = sorted(
        f"{item.pod.metadata.namespace}/{item.pod.metadata.name}"
        for item in obstacles.world.assumed.values()
        if item.node in nodes_of_way
    )
    if not first:
        return ""
    more = f" and {len(first) - 1} more" if len(first) > 1 else ""
    return f"; {first[0]}{more} {'is' if len(first) == 1 else 'are'} ahead of it"


def chosen_by(obstacles: NodeBlocks) -> str:
    """The labels that the pod's author chose these nodes by, in brackets."""
    spec = obstacles.pod.spec
    texts = [f"{key}={value}" for key, value in sorted(spec.node_selector.items())]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms[:1] if required is not None else ():
        texts += [requirement_text(test) for test in (*term.match_expressions, *term.match_fields)]
    text = ", ".join(texts)
    return f" ({text})" if text and len(text) <= MOST_LABELS else ""


def _scarcest(blocks: Sequence[Block]) -> Block:
    """Extended resources first: they are what the node is for."""
    return min(blocks, key=lambda block: (not pod_requests.is_extended(block.subject), block.step))


def _too_large(blocks: Sequence[Block], obstacles: NodeBlocks) -> str:
    parts = []
    for block in blocks:
        most = obstacles.most_offered(block.subject)
        text = f"asks for {amount(block.subject, block.need)} {block.subject}; "
        text += f"no node has more than {rounded(block.subject, max(most, block.have))}"
        if most > block.have and most >= block.need:
            text = (
                f"asks for {amount(block.subject, block.need)} {block.subject}; the nodes that "
                f"could take it otherwise have {rounded(block.subject, block.have)}"
            )
        parts.append(text)
    return "; ".join(parts)


def _not_offered(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    resource = blocks[0].subject
    if resource.startswith(MIG_RESOURCE) and (mig := _mig(resource, way, obstacles)) is not None:
        return mig
    if blocks[0].code is CauseCode.NOT_ADVERTISED:
        held = obstacles.world.nodes[way.nodes[0]].status.capacity.get(resource)
        if held is not None and held.value() > 0:
            return CauseCode.NOT_ADVERTISED, (
                f"{counted(len(way.nodes), 'node')} ({names(way.nodes)}) {_have(way)} {held} "
                f"{resource}, but {blocks[0].have} allocatable: the device plugin reports them unusable"
            )
        return CauseCode.NOT_ADVERTISED, (
            f"{counted(len(way.nodes), 'node')} ({names(way.nodes)}) {_have(way)} GPUs, but "
            f"{'advertises' if len(way.nodes) == 1 else 'advertise'} no {resource}: driver or "
            "device plugin is missing there"
        )
    if obstacles.is_advertised(resource):
        offering = [n for n in obstacles.world.nodes if _offered(obstacles, n, resource) > 0]
        return CauseCode.RESOURCE_UNKNOWN, (
            f"the nodes it may use offer no {resource}; "
            f"{counted(len(offering), 'node')} elsewhere do ({names(offering)})"
        )
    near = similar_resource(resource, obstacles)
    if near is not None:
        return CauseCode.RESOURCE_UNKNOWN, (
            f"no node offers {resource}; nodes offer {near}: did you mean that?"
        )
    return CauseCode.NOT_ADVERTISED, (
        f"no node advertises {resource}: its device plugin or driver does not run on any of "
        f"{counted(len(obstacles.world.nodes), 'node')}"
    )


def _mig(resource: str, way: Way, obstacles: NodeBlocks) -> Sentence | None:
    """Why no node offers a MIG profile, where labels of nodes say so."""
    labels = [obstacles.world.nodes[name].metadata.labels for name in way.nodes]
    states = sorted({item.get(MIG_STATE_LABEL, "") for item in labels} & UNFINISHED)
    if states:
        return CauseCode.MIG_STATE, (
            f"{counted(len(way.nodes), 'node')} ({names(way.nodes)}) {_lack(way)} {resource}: "
            f"their MIG configuration is {states[0]} ({MIG_STATE_LABEL}={states[0]})"
        )
    if obstacles.is_advertised(resource):
        return None
    profiles = sorted(name for name in _scalars(obstacles) if name.startswith(MIG_RESOURCE))
    if profiles:
        text = f"no node offers {resource}; MIG profiles there are: {names(profiles)}"
        return CauseCode.MIG_PROFILE, text
    if any(item.get(MIG_STRATEGY_LABEL) == "single" for item in labels):
        return CauseCode.MIG_PROFILE, (
            f"no node offers {resource}: nodes with the single MIG strategy offer their slices as "
            "nvidia.com/gpu"
        )
    return None


def similar_resource(resource: str, obstacles: NodeBlocks) -> str | None:
    """A resource that nodes offer, or devices serve, and that was probably meant: of that name, kind or vendor."""
    is_of_class = resource.startswith(extended_resources.CLASS_PREFIX)
    served = {
        name
        for name in extended_resources.classes_by_resource(obstacles.world.classes)
        if is_of_class or not name.startswith(extended_resources.CLASS_PREFIX)
    }
    offered = _scalars(obstacles) | served
    near = near_values.nearest(resource, offered)
    if near is not None:
        return near
    vendor, _, kind = resource.rpartition("/")
    same_kind = [name for name in sorted(offered) if name.rpartition("/")[2] == kind]
    same_vendor = [name for name in sorted(offered) if vendor and name.startswith(f"{vendor}/")]
    return next(iter((*same_kind, *same_vendor)), None)


def _scalars(obstacles: NodeBlocks) -> set[str]:
    world = obstacles.world
    return {
        name for node in world.nodes for name, amount in world.offered(node).scalars if amount > 0
    }


def _offered(obstacles: NodeBlocks, node: str, resource: str) -> int:
    return obstacles.world.offered(node).scalar(resource)


def _free(obstacles: NodeBlocks, node: str, resource: str) -> int:
    free = obstacles.world.free(node)
    known = {
        pod_requests.CPU: free.milli_cpu,
        pod_requests.MEMORY: free.memory_bytes,
        pod_requests.EPHEMERAL_STORAGE: free.ephemeral_bytes,
        pod_requests.PODS: free.pods,
    }
    return max(known[resource] if resource in known else free.scalar(resource), 0)


# What nodes are


def _taint(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    taints = " and ".join(dict.fromkeys(block.subject for block in blocks))
    keys = {block.subject.partition(":")[0].partition("=")[0] for block in blocks}
    nearly = [
        toleration_text(toleration)
        for toleration in obstacles.pod.spec.tolerations
        if toleration.key in keys
    ]
    where = f"{counted(len(way.nodes), 'node')} ({names(way.nodes)})"
    if way.is_reserved:
        return CauseCode.RESERVED, (
            f"its own nodes are full; {where} {_be(way)} free, but kept for others by taint {taints}"
        )
    text = f"{where} that could take it {_have(way)} taint {taints}, which it does not tolerate"
    if nearly:
        text += f"; it tolerates {' and '.join(nearly)}"
    return CauseCode.TAINT, text


def toleration_text(toleration: object) -> str:
    """A toleration as kubectl writes taints."""
    key = getattr(toleration, "key", "") or "everything"
    value = getattr(toleration, "value", "")
    effect = getattr(toleration, "effect", "")
    text = f"{key}={value}" if value else key
    return f"{text}:{effect}" if effect else text


def _labels(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    texts = list(dict.fromkeys(block.subject for block in blocks))
    parts = [_label(text, way, obstacles) for text in texts[:2]]
    return CauseCode.NODE_LABELS, "; ".join(parts)


def _label(text: str, way: Way, obstacles: NodeBlocks) -> str:
    key, asked = label_of(text)
    all_nodes = obstacles.world.nodes
    if key == "metadata.name":
        near = near_values.nearest(asked[0] if asked else "", all_nodes)
        return f"no node is called {', '.join(asked)}" + (f"; did you mean {near}?" if near else "")
    values = Counter(
        node.metadata.labels[key] for node in all_nodes.values() if key in node.metadata.labels
    )
    if not values:
        near_key = near_values.nearest(
            key, {k for n in all_nodes.values() for k in n.metadata.labels}
        )
        if near_key is None:
            return f"asks for {text}; no node has label {key}"
        count = sum(near_key in node.metadata.labels for node in all_nodes.values())
        return (
            f"asks for {text}; no node has label {key}: "
            f"did you mean {near_key} ({counted(count, 'node')})?"
        )
    for value in asked:
        near = near_values.nearest(value, values) if value not in values else None
        if near is not None:
            return (
                f"asks for {text}; no node has that: did you mean {near} "
                f"({counted(values[near], 'node')})?"
            )
    there = Counter(all_nodes[name].metadata.labels.get(key, "no such label") for name in way.nodes)
    listed = ", ".join(value for value, _ in sorted(there.items(), key=_by_count)[:SHOWN])
    if len(way.nodes) == 1:
        return f"asks for {text}; node {way.nodes[0]}, which could take it otherwise, has {listed}"
    return f"asks for {text}; the {len(way.nodes)} nodes that could take it otherwise have {listed}"


def label_of(text: str) -> tuple[str, list[str]]:
    """The key and the values of a condition on labels, from its text."""
    if " " not in text:
        key, _, value = text.partition("=")
        return key, [value]
    key, _, rest = text.partition(" ")
    operator, _, values = rest.partition(" ")
    if operator != "In":
        return key, []
    return key, [value.strip() for value in values.strip("[]").split(",")]


def is_near(block: Block, obstacles: NodeBlocks) -> bool:
    """Whether a condition on labels nearly names a label or a value that exists."""
    key, asked = label_of(block.subject)
    values = {
        node.metadata.labels[key]
        for node in obstacles.world.nodes.values()
        if key in node.metadata.labels
    }
    if not values:
        keys = {k for node in obstacles.world.nodes.values() for k in node.metadata.labels}
        return near_values.nearest(key, keys) is not None
    missing = [value for value in asked if value not in values]
    return bool(missing) and any(near_values.nearest(value, values) for value in missing)


def _cordoned(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> str:
    where = f"{counted(len(way.nodes), 'node')} that could take it ({names(way.nodes)})"
    taints = [block.subject for block in blocks if block.subject]
    if taints:
        return f"{where} {_be(way)} about to be removed: taint {taints[0]}"
    return f"{where} {_be(way)} cordoned{_cordoned_by(obstacles.world.nodes[way.nodes[0]])}"


def _cordoned_by(node: nodes.Node) -> str:
    """Who cordoned a node, where its labels or annotations say so."""
    state = node.metadata.labels.get(UPGRADE_LABEL)
    if state and state != "upgrade-done":
        return f" for the upgrade of its driver ({UPGRADE_LABEL}={state})"
    taint = next(
        (
            taint
            for taint in node.spec.taints
            if taint.key != node_fit.UNSCHEDULABLE_TAINT.key
            and taint.effect == node_fit.NO_SCHEDULE
        ),
        None,
    )
    return f" and tainted {node_fit.taint_text(taint)}" if taint is not None else ""


# Words


def amount(resource: str, value: int) -> str:
    """An amount as an operator writes it."""
    return pod_requests.amount_text(resource, value)


def rounded(resource: str, value: int) -> str:
    """An amount that was counted: CPUs with decimals, of bytes the largest unit with one decimal, rounded down."""
    if resource == pod_requests.CPU:
        return f"{value / 1000:g}"
    if resource not in (pod_requests.MEMORY, pod_requests.EPHEMERAL_STORAGE):
        return amount(resource, value)
    for unit, suffix in ((2**30, "Gi"), (2**20, "Mi")):
        if value >= unit and value % unit:
            return f"{value * 10 // unit / 10:g}{suffix}"
    return amount(resource, value)


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names(listed: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    ordered = sorted(listed)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(ordered[:SHOWN]) + more


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _be(way: Way) -> str:
    return "is" if len(way.nodes) == 1 else "are"


def _have(way: Way) -> str:
    return "has" if len(way.nodes) == 1 else "have"


def _lack(way: Way) -> str:
    return "lacks" if len(way.nodes) == 1 else "lack"
