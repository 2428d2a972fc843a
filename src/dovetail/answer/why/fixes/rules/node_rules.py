"""Proposes changes of the cluster: uncordon a node, remove its taint, delete a rule that taints devices, end a pod.

Given a case. Only nodes that could take the pod are proposed, and only pods of the same namespace without a controller
are ended: a controller would bring others back. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import edits
from dovetail.answer.why.fixes.proposals import (
    Candidate,
    Case,
    Edit,
    Intent,
    Ladder,
    ObjectChange,
    single,
)
from dovetail.answer.why.fixes.rules import placement_rules
from dovetail.answer.why.why_answer import Who
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import pod_requests
from dovetail.model.reasons import ReasonCode
from dovetail.schedule.node import extended_resources, node_fit

MOST_NODES: Final = 6
MOST_RULES: Final = 4
MOST_PODS: Final = 6
_HELD: Final = (
    ReasonCode.ROOM,
    ReasonCode.IN_USE,
    ReasonCode.COUNTERS,
    ReasonCode.CAPACITY,
    ReasonCode.COMBINATION,
    ReasonCode.HOST_PORT,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about nodes, devices and other pods."""
    if case.has(ReasonCode.CORDONED):
        yield _uncordoned(case)
    if case.has(ReasonCode.NODE_TAINT):
        yield from _untainted(case)
    if case.has(ReasonCode.TAINT, ReasonCode.IN_USE, ReasonCode.ALL_DEVICES):
        yield from _rules(case)
    if case.has(*_HELD):
        yield _ended(case)


def _uncordoned(case: Case) -> Ladder:
    rungs = [
        Candidate(
            f"uncordon node {node.metadata.name}",
            (ObjectChange(patches.ref_of(node), edits.dropping(("spec", "unschedulable"), True)),),
            Intent.ALLOWED,
            Who.CLUSTER_ADMIN,
        )
        for node in _roomy(case)
        if node.spec.unschedulable
    ]
    return Ladder(("uncordon",), tuple(rungs[:MOST_NODES]))


def _untainted(case: Case) -> Iterator[Ladder]:
    for taint in placement_rules.blocking_taints(case):
        text = node_fit.taint_text(taint)
        rungs = [
            Candidate(
                f"remove taint {text} from node {node.metadata.name}",
                (ObjectChange(patches.ref_of(node), _without_taint(taint)),),
                Intent.DROPPED,
                Who.CLUSTER_ADMIN,
            )
            for node in _roomy(case)
            if any(_is_same(own, taint) for own in node.spec.taints)
        ]
        yield Ladder(("node taint", text), tuple(rungs[:MOST_NODES]))


def _without_taint(taint: nodes.Taint) -> Edit:
    return edits.filtering(
        ("spec", "taints"),
        lambda own: (
            (own.get("key"), own.get("value") or "", own.get("effect"))
            != (taint.key, taint.value, taint.effect)
        ),
    )


def _is_same(own: nodes.Taint, taint: nodes.Taint) -> bool:
    return (own.key, own.value, own.effect) == (taint.key, taint.value, taint.effect)


def _roomy(case: Case) -> list[nodes.Node]:
    """The nodes with enough left for the pod, devices aside, by name."""
    world = case.replica.world
    need = pod_requests.pod_request(case.pod)
    served = set(extended_resources.classes_by_resource(world.classes))
    return [
        node
        for name, node in sorted(world.nodes.items())
        if not pod_requests.shortages(need.without(served), world.free(name))
    ]


def _rules(case: Case) -> Iterator[Ladder]:
    for name, rule in sorted(case.replica.world.rules.items())[:MOST_RULES]:
        candidate = Candidate(
            f"delete DeviceTaintRule {name}",
            (ObjectChange(patches.ref_of(rule), None),),
            Intent.DROPPED,
            Who.CLUSTER_ADMIN,
        )
        yield single(("taint rule", name), candidate)


def _ended(case: Case) -> Ladder:
    """Pods of the same namespace that no controller brings back, the least important first."""
    world = case.replica.world
    short = set(case.subjects(ReasonCode.ROOM))
    holders = [
        pod
        for pod_id in world.running()
        if (pod := world.pods[pod_id]).metadata.namespace == case.pod.metadata.namespace
        and not any(owner.controller for owner in pod.metadata.owner_references)
        and _holds(pod, short)
        and (pod.spec.priority or 0) <= (case.pod.spec.priority or 0)
    ]
    holders.sort(key=lambda pod: (pod.spec.priority or 0, pod.metadata.name))
    rungs = [
        Candidate(
            f"end pod {pod.metadata.namespace}/{pod.metadata.name}",
            (ObjectChange(patches.ref_of(pod), None),),
            Intent.TAKEN,
            Who.QUEUE_ADMIN,
        )
        for pod in holders[:MOST_PODS]
    ]
    return Ladder(("end pod",), tuple(rungs))


def _holds(pod: pods.Pod, short: set[str]) -> bool:
    """Whether the pod has what is missing: a resource that is short, or devices."""
    request = pod_requests.request_amounts(pod)
    return bool(pod.spec.resource_claims) or bool(short & request.keys())
