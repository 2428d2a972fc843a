"""The funnels: how many nodes, and how many devices, are left after each rule, in the order of the filters.

Given the blocks of every node. A node leaves at the first rule that keeps the pod off it. Devices are counted per
request over the nodes that their node's own rules leave. Never decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.allocate.ask import device_requests
from dovetail.allocate.index import selector_matches
from dovetail.allocate.index.candidates import offering, tainted, with_room
from dovetail.allocate.index.pool_index import pool_index_of
from dovetail.answer.why import selector_conjuncts
from dovetail.answer.why.causes.node_sentences import amount, rounded
from dovetail.answer.why.obstacles.blocks import Block, Step
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.why_answer import FunnelStep
from dovetail.kubetypes.core import pods
from dovetail.world.views.node_view import PoolView

NODES: Final = "nodes"
DEVICES: Final = "devices"
MOST_OPTIONS: Final = 8  # requests, and alternatives of requests
MOST_CONDITIONS: Final = 12  # of one selector, each a step
_STEPS: Final = {
    Step.OWNED: "belong to this scheduler",
    Step.NAME: "have the name it names",
    Step.CORDON: "are not cordoned",
    Step.TAINT: "have taints that it tolerates",
    Step.LABELS: "have the labels it asks for",
    Step.FEATURES: "have the features it needs",
    Step.GPU_CHOICE: "have GPUs that its annotations allow",
    Step.DRIVER: "have a driver that its image requires",
    Step.CLAIMS: "reach the devices of its claims",
    Step.ROOM: "have room for it",
    Step.DEVICES: "have the devices it needs",
    Step.PORTS: "have its host ports free",
    Step.VOLUMES: "reach its volumes",
    Step.SPREAD: "keep its topology spread",
    Step.AFFINITY: "suit its pod affinity",
    Step.KEPT: "are not kept for others",
}
# Every API server adds these tolerations to every pod.
_TOLERATED_BY_DEFAULT: Final = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
_STATIC: Final = frozenset(
    {
        Step.OWNED,
        Step.NAME,
        Step.CORDON,
        Step.TAINT,
        Step.LABELS,
        Step.FEATURES,
        Step.GPU_CHOICE,
        Step.DRIVER,
    }
)


def of_nodes(obstacles: NodeBlocks) -> tuple[FunnelStep, ...]:
    """Nodes left after each rule that the pod has or that removes some. Room is one step per resource."""
    by_node = obstacles.by_node()
    firsts = Counter(_place(blocks[0]) for blocks in by_node.values() if blocks)
    left = len(by_node)
    steps = [FunnelStep(of=NODES, step="all", left=left)]
    for place in sorted({*firsts, *((step, "") for step in _asked(obstacles.pod))}):
        removed = firsts[place]
        left -= removed
        step, resource = place
        name = f"have {resource} left" if resource else _STEPS[step]
        detail = _detail(place, obstacles) if removed else ""
        steps.append(FunnelStep(of=NODES, step=name, left=left, removed=removed, detail=detail))
    return tuple(steps)


def _place(block: Block) -> tuple[Step, str]:
    return block.step, block.subject if block.step is Step.ROOM else ""


def _asked(pod: pods.Pod) -> Iterator[Step]:
    """Rules that the pod states, whether or not they remove a node."""
    spec = pod.spec
    if any(toleration.key not in _TOLERATED_BY_DEFAULT for toleration in spec.tolerations):
        yield Step.TAINT
    if spec.node_selector or (spec.affinity and spec.affinity.node_affinity):
        yield Step.LABELS
    if spec.resource_claims:
        yield Step.DEVICES


def _detail(place: tuple[Step, str], obstacles: NodeBlocks) -> str:
    """What removed nodes at this step, most frequent first."""
    blocks = [b[0] for b in obstacles.by_node().values() if b and _place(b[0]) == place]
    if place[0] is Step.ROOM:
        need, most = blocks[0].need, max(block.have for block in blocks)
        return f"needs {amount(place[1], need)}, at most {rounded(place[1], most)}"
    subjects = Counter(obstacles.named(block.subject) for block in blocks if block.subject)
    shown = subjects.most_common(2)
    more = f" and {len(subjects) - 2} more" if len(subjects) > 2 else ""
    return ", ".join(f"{subject} ({count})" for subject, count in shown) + more


def of_devices(obstacles: NodeBlocks) -> tuple[FunnelStep, ...]:
    """Devices left after each rule of each request, over the nodes that suit otherwise."""
    steps: list[FunnelStep] = []
    for served, names in _nodes_by_served(obstacles).items():
        wanted = obstacles.devices.claims_for(served)
        if not wanted:
            continue
        try:
            requests = device_requests.flattened(wanted, obstacles.world.classes)
        except device_requests.InvalidRequest:
            return ()
        pools = [pool for name in names for pool in obstacles.evaluator.view(name).pools]
        options = [option for request in requests for option in request.options]
        for option in options[:MOST_OPTIONS]:
            steps += _of_option(obstacles, option, pools)
        break  # nodes with a device plugin count resources instead
    return tuple(steps)


def _nodes_by_served(obstacles: NodeBlocks) -> dict[tuple[str, ...], list[str]]:
    """The nodes whose own rules let the pod in, by the resources that devices have to serve there."""
    by_served: dict[tuple[str, ...], list[str]] = {}
    for name, blocks in obstacles.by_node().items():
        if not any(block.step in _STATIC for block in blocks):
            by_served.setdefault(obstacles.evaluator.served(obstacles.kind, name), []).append(name)
    return dict(sorted(by_served.items(), key=lambda item: -len(item[0])))


def _of_option(
    obstacles: NodeBlocks, option: device_requests.Option, pools: Sequence[PoolView]
) -> Iterator[FunnelStep]:
    """One request, or one alternative of it: its devices after the class, each condition, and their use."""
    subject = obstacles.named(option.subject)
    usable = [(pool, pool.usable) for pool in pools if pool.is_complete and pool.problem is None]
    left = _count(usable)
    need = "all" if option.count is None else str(option.count)
    yield FunnelStep(of=DEVICES, step=f"{subject} (needs {need} per node)", left=left)
    if option.broken is not None:
        return

    stages = [(expression, True) for expression in option.expressions[: option.class_selectors]]
    for expression in option.expressions[option.class_selectors :]:
        parts = selector_conjuncts.conjuncts(expression)
        parts = parts if len(parts) <= MOST_CONDITIONS else (expression,)
        stages += [(part, False) for part in parts]
    current = usable
    for expression, is_class in stages:
        passed = [
            (pool, mask & selector_matches.selected(pool.devices, (expression,)))
            for pool, mask in current
            if mask
        ]
        text = selector_conjuncts.shortened(expression)
        name = f"of class {option.device_class.metadata.name}" if is_class else f"with {text}"
        groups = [selector_conjuncts.Group(pool.devices, mask) for pool, mask in current if mask]
        removed = left - _count(passed)
        detail = ""
        if removed and not is_class and not _count(passed):
            detail = selector_conjuncts.nearest_text(expression, groups)
        left, current = _count(passed), passed
        yield FunnelStep(of=DEVICES, step=name, left=left, removed=removed, detail=detail)
    yield from _use(option, current)


def _use(
    option: device_requests.Option, current: list[tuple[PoolView, int]]
) -> Iterator[FunnelStep]:
    left = _count(current)
    rules = (
        ("offering its capacity", _offering),
        ("of this scheduler", lambda pool, mask, _: mask & ~pool.barred),
        ("tolerated", _tolerated),
        ("free", _free),
        ("with capacity left", _roomy),
    )
    for name, rule in rules:
        passed = [(pool, rule(pool, mask, option)) for pool, mask in current if mask]
        removed = left - _count(passed)
        left, current = _count(passed), passed
        if removed or name == "free":
            yield FunnelStep(of=DEVICES, step=name, left=left, removed=removed)


def _offering(pool: PoolView, mask: int, option: device_requests.Option) -> int:
    try:
        return offering(pool_index_of(pool.devices), option, mask, fractional=True)
    except device_requests.InvalidRequest:
        return 0


def _tolerated(pool: PoolView, mask: int, option: device_requests.Option) -> int:
    return mask & ~tainted(pool, pool_index_of(pool.devices), option.tolerations)


def _free(pool: PoolView, mask: int, option: device_requests.Option) -> int:
    return mask if option.is_admin else mask & ~pool.used


def _roomy(pool: PoolView, mask: int, option: device_requests.Option) -> int:
    return with_room(pool, option, mask, fractional=True)


def _count(masks: Sequence[tuple[PoolView, int]]) -> int:
    return sum(mask.bit_count() for _, mask in masks)
