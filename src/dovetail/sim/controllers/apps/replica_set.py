"""Reconciles a ReplicaSet: adopts and releases pods, creates or deletes some, and counts them in the status.

Given a ReplicaSet and the objects around it; yields actions. Pods are created in batches that double, and no further
batch follows one with a failure, so that a full quota costs few requests. Never waits.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import label_selectors
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_removal_order,
    pod_states,
    pod_templates,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import CORE, controller_of

Tree = dict[str, Any]

BURST: Final = 500  # pods created or deleted in one reconciliation: replicaset.BurstReplicas
REPLICA_FAILURE: Final = "ReplicaFailure"


def reconcile(situation: Situation) -> Steps:
    """Brings the number of active pods to `spec.replicas`."""
    owner, objects = situation.owner, situation.objects
    namespace = owner["metadata"].get("namespace", "")
    children = objects.controlled(owner, "Pod")
    active_children = [pod for pod in children if pod_states.is_active(pod)]
    orphans = [pod for pod in objects.orphans(CORE, "Pod", namespace) if pod_states.is_active(pod)]
    pods = yield from owner_references.claimed(owner, active_children, orphans)

    failure = None
    if not owner_references.is_deleted(owner):
        failure = yield from _scale(situation, pods)
    status = _status(situation, pods, children, failure)
    if status != owner.get("status"):
        yield controller_actions.SetStatus(owner, status)
    if failure is not None:
        raise failure

    min_ready = tree_fields.number(owner["spec"], "minReadySeconds")
    moment = pod_states.next_availability(pods, min_ready, situation.now)
    if moment is not None:
        yield controller_actions.WakeAt(moment)


def batches(count: int) -> Iterator[int]:
    """Sizes of batches that double: 1, 2, 4 and so on, until all are covered."""
    size = 1
    while count > 0:
        batch = min(size, count)
        yield batch
        count -= batch
        size *= 2


def created_pods(
    owner: Tree, pods: list[Tree]
) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    """Creates pods batch by batch; stops after a batch with a failure and returns the first of its failures."""
    remaining = iter(pods)
    for size in batches(len(pods)):
        first_failure = None
        for _ in range(size):
            failure = yield from created_pod(owner, next(remaining))
            first_failure = first_failure or failure
        if first_failure is not None:
            return first_failure
    return None


def created_pod(owner: Tree, pod: Tree) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    """Creates one pod and reports how that went."""
    outcome = yield controller_actions.Create(pod)
    if isinstance(outcome, failures.ApiFailure):
        yield controller_actions.warning(owner, "FailedCreate", f"Error creating: {outcome}")
        return outcome
    name = controller_actions.stored(outcome)["metadata"]["name"]
    yield controller_actions.normal(owner, "SuccessfulCreate", f"Created pod: {name}")
    return None


def deleted_pod(owner: Tree, pod: Tree) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    """Deletes one pod and reports how that went; a pod that is gone is no failure."""
    name = pod["metadata"]["name"]
    try:
        was_there = yield from controller_actions.deleted(pod)
    except failures.ApiFailure as failure:
        yield controller_actions.warning(owner, "FailedDelete", f"Error deleting: {failure}")
        return failure
    if was_there:
        yield controller_actions.normal(owner, "SuccessfulDelete", f"Deleted pod: {name}")
    return None


def _scale(
    situation: Situation, pods: list[Tree]
) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    owner = situation.owner
    surplus = len(pods) - owner["spec"]["replicas"]
    if surplus < 0:
        count = min(-surplus, BURST)
        pod = pod_templates.pod_from_template(owner["spec"]["template"], owner)
        failure = yield from created_pods(owner, [pod] * count)
        return failure

    first_failure = None
    victims = pod_removal_order.ranked(pods, _related(situation), situation.now) if surplus else []
    for pod in victims[: min(surplus, BURST)]:
        failure = yield from deleted_pod(owner, pod)
        first_failure = first_failure or failure
    return first_failure


def _related(situation: Situation) -> Iterator[Tree]:
    """The pods of all ReplicaSets of the same Deployment; of this one alone, if it has no controller."""
    owner, objects = situation.owner, situation.objects
    controller = controller_of(owner)
    parent = objects.with_uid(controller["uid"]) if controller else None
    siblings = [owner] if parent is None else objects.controlled(parent, "ReplicaSet")
    for sibling in siblings:
        yield from objects.controlled(sibling, "Pod")


def _status(
    situation: Situation,
    pods: list[Tree],
    children: list[Tree],
    failure: failures.ApiFailure | None,
) -> Tree:
    owner, now = situation.owner, situation.now
    spec = owner["spec"]
    min_ready = tree_fields.number(spec, "minReadySeconds")
    template_labels = owner_references.labels_of(spec["template"])
    has_labels = label_selectors.narrowed((), template_labels, template_labels)
    fully_labelled = [
        pod for pod in pods if label_selectors.passes(has_labels, owner_references.labels_of(pod))
    ]
    ready = [pod for pod in pods if pod_states.is_ready(pod)]
    available = [pod for pod in ready if pod_states.is_available(pod, min_ready, now)]
    terminating = [
        pod
        for pod in children
        if pod_states.is_terminating(pod) and owner_references.selects(owner, pod)
    ]
    status = {
        "replicas": len(pods),
        "fullyLabeledReplicas": len(fully_labelled),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "terminatingReplicas": len(terminating),
        "observedGeneration": owner["metadata"].get("generation", 0),
        "conditions": _conditions(situation, len(pods), failure),
    }
    return workload_conditions.compact(status, always=("replicas", "terminatingReplicas"))


def _conditions(
    situation: Situation, count: int, failure: failures.ApiFailure | None
) -> list[Tree]:
    """The conditions with ReplicaFailure while pods cannot be created or deleted."""
    status = tree_fields.mapping(situation.owner, "status")
    conditions = tree_fields.entries(status, "conditions")
    old = workload_conditions.condition_of(status, REPLICA_FAILURE)
    if failure is None:
        return workload_conditions.without(conditions, REPLICA_FAILURE)
    if old is not None:
        return conditions
    is_short = count < situation.owner["spec"]["replicas"]
    condition = {
        "type": REPLICA_FAILURE,
        "status": "True",
        "reason": "FailedCreate" if is_short else "FailedDelete",
        "message": str(failure),
        "lastTransitionTime": timestamps.to_text(situation.now),
    }
    return [*conditions, condition]
