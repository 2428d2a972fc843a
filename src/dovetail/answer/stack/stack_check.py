"""What an upgrade of the stack would do: a verdict per pool, per node and per image, with the rows that decide.

Given an inventory, the versions to reach, rows and a day. Nodes with the same stack are judged once. What cannot be
told counts against the upgrade where the upgrade changes it; what is so today already and stays is marked. Never
changes anything, never decides an order.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.stack import chain_findings, end_of_life, image_verdict
from dovetail.answer.stack.chain_findings import Finding, State
from dovetail.answer.stack.compatibility_rows import (
    CONTAINERD,
    DRA_DRIVER,
    DRIVER,
    KUBELET,
    KUBERNETES,
    MIG_MANAGER,
    OPERATOR,
    TOOLKIT,
    Rows,
)
from dovetail.answer.stack.end_of_life import Ending
from dovetail.answer.stack.image_needs import ImageNeed
from dovetail.answer.stack.image_verdict import Host, Judgement, Verdict
from dovetail.answer.stack.node_stack import DEPLOY_DRIVER, PRE_INSTALLED, NodeStack
from dovetail.answer.stack.stack_facts import NONE, Fact, fact, unknown
from dovetail.answer.stack.stack_inventory import Inventory
from dovetail.quantity import dotted_versions

NO_NODE: Final = "(no node yet)"  # the pool of pods that wait
FROM_KUBELET: Final = "the newest kubelet; the API server may be newer"
TARGET: Final = "--to"  # the source of versions that the upgrade brings
MOST_WORKLOADS: Final = 5  # named with an image
NOT_THERE_YET: Final = unknown("the driver is not loaded yet")


class Outcome(enum.StrEnum):
    """Of the whole check."""

    GO = "go"
    UNKNOWN = "cannot tell"
    NO = "no"


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about parts of the stack, and the nodes that have it."""

    finding: Finding
    is_new: bool  # the upgrade brings it about; else it is so today
    counts: bool  # against the upgrade
    nodes: tuple[str, ...]


class ImageResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image on the nodes of a pool that judge it alike: before and after."""

    image: str
    cuda: Fact
    pool: str
    pods: int
    workloads: tuple[str, ...]  # some of them
    nodes: tuple[str, ...]
    now: Judgement
    then: Judgement
    counts: bool  # against the upgrade

    @property
    def breaks(self) -> bool:
        """Whether it runs today and would not any more."""
        return self.then.verdict is Verdict.NO and self.now.verdict is not Verdict.NO


class PoolResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pool: its nodes, its drivers before and after, and its pods by verdict."""

    pool: str
    nodes: int
    gpus: str
    drivers_now: tuple[str, ...]
    drivers_then: tuple[str, ...]
    pods: dict[Verdict, int]
    outcome: Outcome


class NodeResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node and what counts against the upgrade there."""

    node: str
    pool: str
    outcome: Outcome
    reasons: tuple[str, ...]


class StackCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    outcome: Outcome
    target: dict[str, str]
    today: str
    pools: tuple[PoolResult, ...]
    images: tuple[ImageResult, ...]
    chain: tuple[ChainResult, ...]
    endings: tuple[Ending, ...]
    nodes: tuple[NodeResult, ...]


def check(
    inventory: Inventory, target: Mapping[str, str], rows: Rows, today: datetime.date
) -> StackCheck:
    """The verdict. Linear in nodes and workloads; rows are asked once per distinct stack.

    Raises InputError where there is nothing to check, or where rows contradict each other.
    """
    server = _server(inventory)
    now = [_versions(stack, inventory, server, {}) for stack in inventory.nodes]
    then = [_versions(stack, inventory, server, target) for stack in inventory.nodes]
    _refuse_idle(target, then)
    chain = _chain(inventory.nodes, now, then, rows, has_target=bool(target))
    images = _images(inventory, now, then, rows, has_target=bool(target))
    nodes = _nodes(inventory.nodes, chain, images)
    outcome = _worst(
        (
            *(each.outcome for each in nodes),
            *(_of_verdict(each.then.verdict) for each in images if each.counts),
        )
    )
    return StackCheck(
        outcome=outcome,
        target=dict(target),
        today=today.isoformat(),
        pools=_pools(inventory.nodes, now, then, images, nodes),
        images=images,
        chain=chain,
        endings=end_of_life.endings(then, rows, today),
        nodes=nodes,
    )


def _server(inventory: Inventory) -> Fact:
    """The version of the API server; where nothing states it, that of the newest kubelet."""
    if inventory.kubernetes.is_known:
        return inventory.kubernetes
    kubelets = [
        stack.kubelet.value
        for stack in inventory.nodes
        if stack.kubelet.is_present and dotted_versions.is_version(stack.kubelet.value)
    ]
    if not kubelets:
        return inventory.kubernetes
    newest = max(kubelets, key=dotted_versions.parse).removeprefix("v")
    return fact(newest, FROM_KUBELET)


def _versions(
    stack: NodeStack, inventory: Inventory, server: Fact, target: Mapping[str, str]
) -> dict[str, Fact]:
    """What a node would have: the target's versions where it names them, else today's."""
    versions = {
        KUBERNETES: server,
        KUBELET: _kubelet(stack.kubelet),
        CONTAINERD: chain_findings.runtime_version(stack.runtime),
        OPERATOR: inventory.operator,
        TOOLKIT: stack.toolkit,
        DRIVER: stack.driver_loaded,
        DRA_DRIVER: stack.dra_driver,
        MIG_MANAGER: stack.mig_manager,
    }
    for component, version in target.items():
        # What a node does not have, such as a driver on one without GPUs, is not upgraded there; an operator that is
        # not there yet is installed.
        if versions[component].value != NONE or component == OPERATOR:
            versions[component] = fact(version, TARGET)
    return versions


def _refuse_idle(target: Mapping[str, str], then: Sequence[Mapping[str, Fact]]) -> None:
    """A part that no node has cannot be checked: an answer would be a silent pass."""
    if not then:
        raise errors.InputError("no nodes: there is nothing to check")
    for component in target:
        if not any(versions[component].source == TARGET for versions in then):
            raise errors.InputError(
                f"--to {component}={target[component]}: no node has {component}; leave it out"
            )


def _kubelet(kubelet: Fact) -> Fact:
    if not kubelet.is_present:
        return kubelet
    return fact(kubelet.value.removeprefix("v"), kubelet.source)


def _chain(
    stacks: Sequence[NodeStack],
    now: Sequence[Mapping[str, Fact]],
    then: Sequence[Mapping[str, Fact]],
    rows: Rows,
    *,
    has_target: bool,
) -> tuple[ChainResult, ...]:
    nodes_of: dict[tuple[bool, Finding], list[str]] = {}
    judged: dict[tuple[object, ...], list[tuple[bool, Finding]]] = {}
    for stack, before, after in zip(stacks, now, then, strict=True):
        key = (*stack.signature(), stack.driver_desired.source)  # who brings the driver counts, too
        findings = judged.get(key)
        if findings is None:
            today = set(chain_findings.of_node(stack, before, before, rows))
            upgraded = dict.fromkeys(chain_findings.of_node(stack, after, before, rows))
            findings = [(finding not in today, finding) for finding in upgraded]
            findings += [(True, each) for each in _pre_installed(stack, before, after)]
            findings += [(False, each) for each in _assumed_server(after)]
            judged[key] = findings
        for each in findings:
            nodes_of.setdefault(each, []).append(stack.node)

    def order(item: tuple[tuple[bool, Finding], list[str]]) -> tuple[object, ...]:
        (is_new, finding), nodes = item
        return (-list(State).index(finding.state), not is_new, -len(nodes), finding.parts)

    return tuple(
        ChainResult(
            finding=finding,
            is_new=is_new,
            counts=_counts(finding.state, is_new=is_new, has_target=has_target),
            nodes=tuple(nodes),
        )
        for (is_new, finding), nodes in sorted(nodes_of.items(), key=order)
    )


def _counts(state: State, *, is_new: bool, has_target: bool) -> bool:
    """What does not fit counts always; what cannot be told only where the upgrade touches it."""
    if state is State.NO:
        return True
    return state is State.UNKNOWN and (is_new or not has_target)


def _pre_installed(
    stack: NodeStack, before: Mapping[str, Fact], after: Mapping[str, Fact]
) -> list[Finding]:
    is_managed_elsewhere = (
        stack.driver_desired.value == NONE and DEPLOY_DRIVER in stack.driver_desired.source
    )
    if not is_managed_elsewhere or before[DRIVER] == after[DRIVER]:
        return []
    why = "the node's own image brings the driver: replace the pool's image, no operator changes it"
    return [Finding(f"driver {after[DRIVER]} on a {PRE_INSTALLED} node", State.WARNING, why)]


def _assumed_server(versions: Mapping[str, Fact]) -> list[Finding]:
    server = versions[KUBERNETES]
    if server.source != FROM_KUBELET:
        return []
    why = f"nothing states the version of the API server; taken for it: {FROM_KUBELET}"
    return [Finding(f"kubernetes {server}", State.WARNING, why)]


def _host(stack: NodeStack, before: Mapping[str, Fact], after: Mapping[str, Fact]) -> Host:
    """A node as an image finds it."""
    is_loaded = before[DRIVER] == after[DRIVER]
    return Host(
        gpu=stack.gpu,
        architecture=stack.architecture,
        compute=stack.compute,
        brand=stack.brand,
        driver=after[DRIVER],
        cuda=stack.cuda if is_loaded else NOT_THERE_YET,
    )


def _images(
    inventory: Inventory,
    now: Sequence[Mapping[str, Fact]],
    then: Sequence[Mapping[str, Fact]],
    rows: Rows,
    *,
    has_target: bool,
) -> tuple[ImageResult, ...]:
    pool_of = {stack.node: stack.pool for stack in inventory.nodes}
    hosts = {
        stack.node: (_host(stack, before, before), _host(stack, before, after))
        for stack, before, after in zip(inventory.nodes, now, then, strict=True)
    }
    gpu_hosts = list(dict.fromkeys(hosts[stack.node] for stack in inventory.nodes if stack.has_gpu))
    changes_driver = any(before.driver != after.driver for before, after in gpu_hosts)
    judge = _Judge(rows)
    groups: dict[tuple[object, ...], _Group] = {}
    for work in inventory.workloads:
        for node, pods in work.nodes.items():
            if node in hosts:
                before, after = hosts[node]
                pool = pool_of[node]
                pair = (judge.verdict(work.need, before), judge.verdict(work.need, after))
                is_asked = not has_target or before.driver != after.driver
            else:
                pool = NO_NODE
                is_asked = not has_target or changes_driver
                pair = (
                    judge.best(work.need, [each[0] for each in gpu_hosts]),
                    judge.best(work.need, [each[1] for each in gpu_hosts]),
                )
            key = (work.need, pool, pair, is_asked)
            group = groups.setdefault(key, _Group(work.need, pool, pair, is_asked=is_asked))
            group.add(pods, f"{work.namespace}/{work.id}", node)
    results = [group.result() for group in groups.values()]
    return tuple(sorted(results, key=_image_order))


class _Judge:
    """Asks about every pair of need and host once."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[tuple[ImageNeed, Host], Judgement] = {}

    def verdict(self, need: ImageNeed, host: Host) -> Judgement:
        key = (need, host)
        if key not in self._known:
            self._known[key] = image_verdict.judge(need, host, self._rows)
        return self._known[key]

    def best(self, need: ImageNeed, hosts: Sequence[Host]) -> Judgement:
        """Where work has no node yet: the best of all hosts, because it is placed where it can run."""
        judgements = [self.verdict(need, host) for host in hosts]
        if not judgements:
            return Judgement(verdict=Verdict.UNKNOWN, why="no node has GPUs")
        return min(judgements, key=lambda each: image_verdict.ORDER.index(each.verdict))


class _Group:
    """Pods of one image in one pool that are judged alike."""

    def __init__(
        self, need: ImageNeed, pool: str, pair: tuple[Judgement, Judgement], *, is_asked: bool
    ) -> None:
        self._need = need
        self._is_asked = is_asked  # whether the upgrade changes what it runs on
        self._pool = pool
        self._now, self._then = pair
        self._pods = 0
        self._workloads: dict[str, None] = {}
        self._nodes: dict[str, None] = {}

    def add(self, pods: int, workload: str, node: str) -> None:
        self._pods += pods
        self._workloads[workload] = None
        if node:
            self._nodes[node] = None

    def result(self) -> ImageResult:
        verdict = self._then.verdict
        return ImageResult(
            image=self._need.image,
            cuda=self._need.cuda,
            pool=self._pool,
            pods=self._pods,
            workloads=tuple(self._workloads)[:MOST_WORKLOADS],
            nodes=tuple(sorted(self._nodes)),
            now=self._now,
            then=self._then,
            counts=verdict is Verdict.NO or (verdict is Verdict.UNKNOWN and self._is_asked),
        )


def _image_order(result: ImageResult) -> tuple[object, ...]:
    worst = -image_verdict.ORDER.index(result.then.verdict)
    return (worst, not result.breaks, -result.pods, result.image, result.pool, result.cuda.value)


def _nodes(
    stacks: Iterable[NodeStack],
    chain: Sequence[ChainResult],
    images: Sequence[ImageResult],
) -> tuple[NodeResult, ...]:
    outcomes: dict[str, list[Outcome]] = {}
    reasons: dict[str, list[str]] = {}
    for link in chain:
        if link.counts:
            text = f"{link.finding.parts}: {link.finding.why}"
            outcome = Outcome.NO if link.finding.state is State.NO else Outcome.UNKNOWN
            for node in link.nodes:
                outcomes.setdefault(node, []).append(outcome)
                reasons.setdefault(node, []).append(text)
    for image in images:
        if image.counts:
            for node in image.nodes:
                outcomes.setdefault(node, []).append(_of_verdict(image.then.verdict))
                reasons.setdefault(node, []).append(f"{image.image}: {image.then.why}")
    return tuple(
        NodeResult(
            node=stack.node,
            pool=stack.pool,
            outcome=_worst(outcomes.get(stack.node, ())),
            reasons=tuple(reasons.get(stack.node, ())),
        )
        for stack in stacks
    )


def _pools(
    stacks: Sequence[NodeStack],
    now: Sequence[Mapping[str, Fact]],
    then: Sequence[Mapping[str, Fact]],
    images: Sequence[ImageResult],
    nodes: Sequence[NodeResult],
) -> tuple[PoolResult, ...]:
    members: dict[str, list[int]] = {}
    for index, stack in enumerate(stacks):
        members.setdefault(stack.pool, []).append(index)
    pods: dict[str, dict[Verdict, int]] = {}
    for image in images:
        of_pool = pods.setdefault(image.pool, dict.fromkeys(Verdict, 0))
        of_pool[image.then.verdict] += image.pods
    results = []
    for pool, indexes in sorted(members.items()):
        gpus = dict.fromkeys(str(stacks[index].gpu) for index in indexes)
        results.append(
            PoolResult(
                pool=pool,
                nodes=len(indexes),
                gpus=" / ".join(gpus),
                drivers_now=tuple(dict.fromkeys(str(now[index][DRIVER]) for index in indexes)),
                drivers_then=tuple(dict.fromkeys(str(then[index][DRIVER]) for index in indexes)),
                pods=pods.get(pool, dict.fromkeys(Verdict, 0)),
                outcome=_worst(nodes[index].outcome for index in indexes),
            )
        )
    if NO_NODE in pods:
        waiting = [image for image in images if image.pool == NO_NODE and image.counts]
        results.append(
            PoolResult(
                pool=NO_NODE,
                nodes=0,
                gpus=NONE,
                drivers_now=(),
                drivers_then=(),
                pods=pods[NO_NODE],
                outcome=_worst(_of_verdict(image.then.verdict) for image in waiting),
            )
        )
    return tuple(results)


def _of_verdict(verdict: Verdict) -> Outcome:
    match verdict:
        case Verdict.NO:
            return Outcome.NO
        case Verdict.UNKNOWN:
            return Outcome.UNKNOWN
        case _:
            return Outcome.GO


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    order = list(Outcome)
    return max(outcomes, key=order.index, default=Outcome.GO)
