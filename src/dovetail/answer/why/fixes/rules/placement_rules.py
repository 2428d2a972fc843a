"""Proposes changes of what a pod says about its nodes: tolerations, labels, a node's name, host ports, gates.

Given a case. Never tries a proposal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.fixes import edits, nearest, tree_paths
from dovetail.answer.why.fixes.proposals import (
    Candidate,
    Case,
    Edit,
    Intent,
    Ladder,
    ObjectChange,
    by_intent,
    single,
)
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.answer.why.obstacles import node_blocks
from dovetail.gpus import image_requirements
from dovetail.kubetypes.core import nodes, pods
from dovetail.model.reasons import ReasonCode
from dovetail.schedule.node import node_fit

# Taints that say a node is not well: to tolerate them is no cure, and controllers put them back.
STATE_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
# Gates that a controller opens in its own time.
OWNED_GATES: Final = ("kueue.x-k8s.io/", "dovetail.dev/", "kai.scheduler/")
MOST_RULES: Final = 8  # taints, terms and the like that are looked into
_AFFINITY: Final[Path] = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
)
_TERMS: Final[Path] = (*_AFFINITY, "nodeSelectorTerms")


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the pod's nodes."""
    if case.has(ReasonCode.NODE_TAINT):
        yield from _tolerations(case)
    if case.has(ReasonCode.NODE_LABELS):
        yield from _node_selector(case)
        yield from _node_affinity(case)
    if case.has(ReasonCode.IMAGE_REQUIREMENTS):
        yield from _image_requirements(case)
    if case.has(ReasonCode.GATED):
        yield from _gates(case)
    if case.has(ReasonCode.HOST_PORT):
        yield from _host_ports(case)
    if names := case.replica.policy.scheduler_names:
        yield _scheduler(case, names)
    name = case.pod.spec.node_name
    if name and name not in case.replica.world.nodes:
        yield _node_name(case, name)


# Taints


def blocking_taints(case: Case) -> Counter[nodes.Taint]:
    """The taints that keep the pod away, with how many nodes have them; those of a node's state are left out."""
    counts: Counter[nodes.Taint] = Counter()
    tolerations = case.pod.spec.tolerations
    for node in case.replica.world.nodes.values():
        for taint in node.spec.taints:
            is_blocking = taint.effect in (node_fit.NO_SCHEDULE, node_fit.NO_EXECUTE)
            if not is_blocking or taint.key.startswith(STATE_TAINTS):
                continue
            if not node_fit.tolerated(taint, tolerations):
                plain = nodes.Taint(key=taint.key, value=taint.value, effect=taint.effect)
                counts[plain] += 1
    return counts


def _tolerations(case: Case) -> Iterator[Ladder]:
    for taint, _ in blocking_taints(case).most_common(MOST_RULES):
        if node_blocks.taint_block(taint).code is CauseCode.TAKEN_OUT:
            continue  # the node is unhealthy or under repair: its administrator decides
        text = node_fit.taint_text(taint)
        candidate = Candidate(
            f"tolerate taint {text}", case.pod_change(_tolerating(taint)), Intent.ALLOWED
        )
        yield single(("toleration", text), candidate)


def _tolerating(taint: nodes.Taint) -> Edit:
    toleration: Tree = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    if taint.value:
        toleration |= {"operator": "Equal", "value": taint.value}
    return edits.appending(("spec", "tolerations"), toleration)


# Requirements of images


def _image_requirements(case: Case) -> Iterator[Ladder]:
    """A program may run by minor compatibility on a driver that its image does not list."""
    for index, container in enumerate(case.pod.spec.containers):
        if not image_requirements.requirements_of(_environment(container)):
            continue
        name = image_requirements.DISABLE
        path: Path = ("spec", "containers", index, "env")
        candidate = Candidate(
            f"set {name}=true in container {container.name}",
            case.pod_change(edits.appending(path, {"name": name, "value": "true"})),
            Intent.DROPPED,
        )
        yield single(("image requirements", container.name), candidate)


def _environment(container: pods.Container) -> dict[str, str]:
    return {variable.name: variable.value for variable in container.env}


# Labels


def _label_values(case: Case) -> dict[str, Counter[str]]:
    values: dict[str, Counter[str]] = {}
    for node in case.replica.world.nodes.values():
        for key, value in node.metadata.labels.items():
            values.setdefault(key, Counter())[value] += 1
    return values


def _node_selector(case: Case) -> Iterator[Ladder]:
    values = _label_values(case)
    for key, value in case.pod.spec.node_selector.items():
        path: Path = ("spec", "nodeSelector", key)
        rungs = [
            Candidate(
                f'nodeSelector {key}: "{value}" -> "{other}"',
                case.pod_change(edits.replacing(path, value, other)),
                _intent(value, other),
            )
            for other in nearest.names(value, values.get(key, {}))
            if value not in values.get(key, {})
        ]
        rungs += [
            Candidate(
                f"nodeSelector key {key} -> {other}",
                case.pod_change(edits.renaming(("spec", "nodeSelector"), key, other)),
                Intent.CORRECTED,
            )
            for other in nearest.names(key, _keys_with(values, value))
            if key not in values
        ]
        rungs.append(
            Candidate(
                f"drop nodeSelector {key}: {value}",
                case.pod_change(edits.dropping(path, value)),
                Intent.DROPPED,
            )
        )
        yield from by_intent(("nodeSelector", key), rungs)


def _intent(value: str, other: str) -> Intent:
    return Intent.CORRECTED if nearest.is_slip(value, other) else Intent.REPLACED


def _keys_with(values: dict[str, Counter[str]], value: str) -> list[str]:
    return [key for key, seen in values.items() if value in seen]


def _node_affinity(case: Case) -> Iterator[Ladder]:
    affinity = case.pod.spec.affinity
    required = (
        affinity.node_affinity.required_during_scheduling_ignored_during_execution
        if affinity is not None and affinity.node_affinity is not None
        else None
    )
    if required is None:
        return
    values = _label_values(case)
    for place, term in enumerate(required.node_selector_terms[:MOST_RULES]):
        for part in ("matchExpressions", "matchFields"):
            listed = term.match_expressions if part == "matchExpressions" else term.match_fields
            for index, wanted in enumerate(listed):
                path: Path = (*_TERMS, place, part, index)
                text = f"{wanted.key} {wanted.operator} {', '.join(wanted.values)}".strip()
                entry = {"key": wanted.key, "operator": wanted.operator}
                rungs = list(_other_values(case, path, wanted.key, wanted.values, values))
                if len(listed) > 1 or len(required.node_selector_terms) == 1:
                    # In a list of terms an empty one picks no node: it cannot be emptied.
                    rungs.append(
                        Candidate(
                            f"drop node affinity {text}",
                            case.pod_change(_dropping_requirement(path, entry)),
                            Intent.DROPPED,
                        )
                    )
                yield from by_intent(("nodeAffinity", text), rungs)


def _other_values(
    case: Case,
    path: Path,
    key: str,
    wanted: tuple[str, ...],
    values: dict[str, Counter[str]],
) -> Iterator[Candidate]:
    """Values that nodes have, for those that none has."""
    seen = values.get(key, Counter())
    for place, value in enumerate(wanted):
        if value in seen:
            continue
        for other in nearest.names(value, seen):
            yield Candidate(
                f'node affinity {key}: "{value}" -> "{other}"',
                case.pod_change(edits.replacing((*path, "values", place), value, other)),
                _intent(value, other),
            )


def _dropping_requirement(path: Path, entry: Tree) -> Edit:
    """Without one requirement, and without the affinity where nothing else is left of it."""

    def edit(pod: Tree) -> Tree:
        present = tree_paths.at(pod, path)
        if not isinstance(present, dict) or any(
            present.get(name) != value for name, value in entry.items()
        ):
            return pod
        changed: Tree = tree_paths.without(pod, path)
        term = tree_paths.at(changed, path[:-2]) or {}
        is_empty = not (term.get("matchExpressions") or term.get("matchFields"))
        if is_empty:
            changed = tree_paths.without(pod, _AFFINITY)
        return changed

    return edit


# A scheduler's or node's name, ports, gates


def _scheduler(case: Case, names: tuple[str, ...]) -> Ladder:
    """A scheduler that runs, for one whose name is nearly the same."""
    written = case.pod.spec.scheduler_name
    likely = [] if written in names else nearest.names(written, names)
    rungs = [
        Candidate(
            f"schedulerName {written} -> {name}",
            case.pod_change(edits.replacing(("spec", "schedulerName"), written, name)),
            Intent.CORRECTED,
        )
        for name in likely
        if nearest.is_slip(written, name)
    ]
    return Ladder(("schedulerName",), tuple(rungs))


def _node_name(case: Case, name: str) -> Ladder:
    path: Path = ("spec", "nodeName")
    rungs = [
        Candidate(
            f"drop nodeName {name}: no such node exists",
            case.pod_change(edits.dropping(path, name)),
            Intent.DROPPED,
        )
    ]
    return Ladder(("nodeName",), tuple(rungs))


def _host_ports(case: Case) -> Iterator[Ladder]:
    for field, containers in (
        ("containers", case.pod.spec.containers),
        ("initContainers", case.pod.spec.init_containers),
    ):
        for place, container in enumerate(containers):
            for index, port in enumerate(container.ports):
                if not port.host_port:
                    continue
                path: Path = ("spec", field, place, "ports", index, "hostPort")
                candidate = Candidate(
                    f"do not occupy host port {port.host_port}",
                    case.pod_change(edits.dropping(path, port.host_port)),
                    Intent.DROPPED,
                )
                yield single(("hostPort", str(port.host_port)), candidate)


def _gates(case: Case) -> Iterator[Ladder]:
    """Gates are removed on the pods themselves, whichever controller created them."""
    for gate in case.pod.spec.scheduling_gates:
        if gate.name.startswith(OWNED_GATES):
            continue
        candidate = Candidate(
            f"remove scheduling gate {gate.name}", _ungating(case, gate.name), Intent.ALLOWED
        )
        yield single(("gate", gate.name), candidate)


def _ungating(case: Case, name: str) -> tuple[ObjectChange, ...]:
    edit = edits.filtering(("spec", "schedulingGates"), lambda gate: gate.get("name") != name)
    gated = [
        pod for pod in case.gang if any(gate.name == name for gate in pod.spec.scheduling_gates)
    ]
    return tuple(ObjectChange(patches.ref_of(pod), edit) for pod in gated)
