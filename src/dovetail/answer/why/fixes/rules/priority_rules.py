"""Proposes another priority: a PriorityClass that exists and may preempt what holds the room.

Given a case. Classes of the system are left to the system. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.why.fixes import edits, tree_paths
from dovetail.answer.why.fixes.proposals import Candidate, Case, Edit, Intent, Ladder, single
from dovetail.answer.why.fixes.tree_paths import Tree
from dovetail.model import policy
from dovetail.model.reasons import ReasonCode

MOST_CLASSES: Final = 16
SYSTEM: Final = "system-"  # scheduling.k8s.io: the prefix of classes for the cluster's own pods
_PREEMPTS: Final = "PreemptLowerPriority"
_NEVER: Final = "Never"
# What more important work could take from other work.
_TAKEN: Final = (
    ReasonCode.ROOM,
    ReasonCode.IN_USE,
    ReasonCode.COUNTERS,
    ReasonCode.CAPACITY,
    ReasonCode.ALL_DEVICES,
    ReasonCode.COMBINATION,
    ReasonCode.HOST_PORT,
    ReasonCode.POD_ANTI_AFFINITY,
    ReasonCode.SPREAD,
    ReasonCode.NOMINATED,
    ReasonCode.PROMISED,
    ReasonCode.GANG_WAITS,
    ReasonCode.TOPOLOGY,
    ReasonCode.QUEUE_LIMIT,
    ReasonCode.QUEUE_SHARE,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the priority."""
    if policy.Step.PREEMPT not in case.replica.policy.steps or not case.has(*_TAKEN):
        return
    own = case.pod.spec.priority or 0
    is_never = case.pod.spec.preemption_policy == _NEVER
    if is_never and not case.pod.spec.priority_class_name:
        candidate = Candidate(
            f"preemptionPolicy {_NEVER} -> {_PREEMPTS}",
            case.pod_change(edits.setting(("spec", "preemptionPolicy"), _PREEMPTS)),
            Intent.RAISED,
        )
        yield single(("preemption policy",), candidate)
    classes = [
        (value, name)
        for name, value, preempts in _classes(case)
        if preempts and (value > own or (is_never and value == own)) and name != _class_of(case)
    ]
    rungs = [
        Candidate(
            f"priority class {_class_of(case) or 'none'} -> {name} ({_gain(own, value)})",
            case.pod_change(_with_class(name)),
            Intent.RAISED,
        )
        for value, name in sorted(classes)[:MOST_CLASSES]
    ]
    yield Ladder(("priority",), tuple(rungs), is_monotone=True)


def _gain(own: int, value: int) -> str:
    """What the class changes."""
    return "which preempts" if value == own else f"priority {own} -> {value}"


def _class_of(case: Case) -> str:
    return case.pod.spec.priority_class_name


def _classes(case: Case) -> Iterator[tuple[str, int, bool]]:
    """Name, value, and whether pods of the class preempt."""
    for stored in case.replica.listed("PriorityClass"):
        name = stored.struct.metadata.name
        if name.startswith(SYSTEM):
            continue
        tree = tree_paths.tree_of(stored)
        value = tree.get("value")
        if isinstance(value, int):
            yield name, value, tree.get("preemptionPolicy") != _NEVER


def _with_class(name: str) -> Edit:
    """The server reads priority and policy off the class: the pod must not bring others."""

    def edit(pod: Tree) -> Tree:
        spec = tree_paths.at(pod, ("spec",)) or {}
        bare = {
            field: value
            for field, value in spec.items()
            if field not in ("priority", "preemptionPolicy")
        }
        return pod | {"spec": bare | {"priorityClassName": name}}

    return edit
