"""Reconciles a StatefulSet: pods with ordinals and volume claims, started, updated and ended in order.

Given a StatefulSet, its pods and revisions; yields actions. With the policy OrderedReady one reconciliation does at
most one thing to the pods and the next follows when that is done; with Parallel it does all that is due. Never waits.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator
from typing import Any

from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_states,
    pod_templates,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.apps import controller_revisions, stateful_pods
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import CORE

Tree = dict[str, Any]
Stops = Generator[Action, Outcome, bool]  # returns whether the pods after this one have to wait


class Sync:
    """One reconciliation under way: the set, its pods by role, and its revisions."""

    def __init__(
        self, situation: Situation, pods: list[Tree], *, current: Tree, update: Tree
    ) -> None:
        self.situation = situation
        self.owner: Tree = situation.owner
        self.now: datetime.datetime = situation.now
        self.current = current
        self.update = update
        self.pods = pods
        self.updated_away = 0  # pods of the current revision deleted in this reconciliation

        by_ordinal = {stateful_pods.ordinal_of(pod): pod for pod in pods}
        wanted = stateful_pods.ordinals(self.owner)
        self.replicas = [
            by_ordinal.get(ordinal) or self._missing_pod(ordinal) for ordinal in wanted
        ]
        surplus = sorted((ordinal for ordinal in by_ordinal if ordinal not in wanted), reverse=True)
        self.condemned = [by_ordinal[ordinal] for ordinal in surplus if ordinal >= 0]

    def _missing_pod(self, ordinal: int) -> Tree:
        revision = stateful_pods.revision_for(
            self.owner, ordinal, current=self.current, update=self.update
        )
        return stateful_pods.new_pod(self.owner, revision, ordinal)

    @property
    def is_ordered(self) -> bool:
        """Whether a pod waits for those before it."""
        return bool(self.owner["spec"]["podManagementPolicy"] != "Parallel")

    def is_available(self, pod: Tree) -> bool:
        """Whether the pod has been ready for long enough."""
        min_ready = tree_fields.number(self.owner["spec"], "minReadySeconds")
        return pod_states.is_available(pod, min_ready, self.now)

    def is_unavailable(self, pod: Tree) -> bool:
        """Whether the pod is not available, or will not be for long."""
        return not self.is_available(pod) or pod_states.is_deleted(pod)

    def is_updated(self, pod: Tree) -> bool:
        """Whether the pod has the newest revision."""
        return bool(stateful_pods.revision_of(pod) == self.update["metadata"]["name"])


def reconcile(situation: Situation) -> Steps:
    """Takes the next steps, and updates the status."""
    owner, objects = situation.owner, situation.objects
    namespace = owner["metadata"].get("namespace", "")
    pods = yield from owner_references.claimed(
        owner,
        objects.controlled(owner, "Pod"),
        objects.orphans(CORE, "Pod", namespace),
        accepts=lambda pod: stateful_pods.is_member(owner, pod),
    )
    revisions = yield from controller_revisions.history(situation)
    update = yield from controller_revisions.current(
        owner, revisions, hash_label=controller_revisions.HASH_LABEL
    )
    current_name = tree_fields.mapping(owner, "status").get("currentRevision") or ""
    current = controller_revisions.named(revisions, current_name) or update
    sync = Sync(situation, pods, current=current, update=update)

    failure = None
    if not owner_references.is_deleted(owner):
        failure = yield from _tried(sync)
    status = _status(sync)
    if status != owner.get("status"):
        yield controller_actions.SetStatus(owner, status)
    yield from _truncate(sync, revisions)
    if failure is not None:
        raise failure

    min_ready = tree_fields.number(owner["spec"], "minReadySeconds")
    moment = pod_states.next_availability(pods, min_ready, situation.now)
    if moment is not None:
        yield controller_actions.WakeAt(moment)


def _tried(sync: Sync) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    try:
        yield from _manage(sync)
    except failures.ApiFailure as failure:
        return failure
    return None


def _manage(sync: Sync) -> Steps:
    for pod in sync.replicas:
        must_wait = yield from _start(sync, pod)
        if must_wait and sync.is_ordered:
            return
    for pod in sync.condemned:
        yield from _claim_for(sync, pod)
    first_unhealthy = _first_unhealthy(sync)
    for pod in sync.condemned:
        must_wait = yield from _end(sync, pod, first_unhealthy)
        if must_wait and sync.is_ordered:
            return
    if sync.owner["spec"]["updateStrategy"]["type"] == "RollingUpdate":
        yield from _roll(sync)


def _start(sync: Sync, pod: Tree) -> Stops:
    """Creates a replica that is missing, replaces one that has ended, and keeps the rest as they should be."""
    if pod_states.is_finished(pod):
        if not pod_states.is_deleted(pod):
            yield from _delete(sync, pod)
        return True
    if not stateful_pods.is_created(pod):
        yield from _create(sync, pod)
        return True
    if pod_states.phase_of(pod) == "Pending":
        yield from _create_claims(sync, pod)
    if pod_states.is_deleted(pod) or not _is_running(sync, pod):
        return True
    yield from _claim_for(sync, pod)
    yield from _identify(pod)
    return False


def _end(sync: Sync, pod: Tree, first_unhealthy: Tree | None) -> Stops:
    """Deletes a replica that is one too many. In order, a healthy set loses the highest ordinal first."""
    if pod_states.is_deleted(pod):
        return True
    is_blocked = not _is_running(sync, pod) and pod is not first_unhealthy
    if sync.is_ordered and is_blocked:
        return True
    yield from _delete(sync, pod)
    return True


def _is_running(sync: Sync, pod: Tree) -> bool:
    is_ready = pod_states.phase_of(pod) == "Running" and pod_states.is_ready(pod)
    return is_ready and sync.is_available(pod)


def _first_unhealthy(sync: Sync) -> Tree | None:
    for pod in (*sync.replicas, *reversed(sync.condemned)):
        if sync.is_unavailable(pod):
            return pod
    return None


# Rolling update


def _roll(sync: Sync) -> Steps:
    """Deletes pods of old revisions, highest ordinal first, as far as unavailability allows."""
    limits = tree_fields.mapping(sync.owner["spec"]["updateStrategy"], "rollingUpdate")
    partition = tree_fields.number(limits, "partition")
    limit = pod_templates.scaled_value(
        limits.get("maxUnavailable", 1), sync.owner["spec"]["replicas"], rounds_up=False
    )
    unavailable = [pod for pod in sync.replicas if sync.is_unavailable(pod)]
    room = max(limit, 1) - len(unavailable)
    outdated = [
        pod
        for pod in reversed(sync.replicas[partition:])
        if not sync.is_updated(pod) and not pod_states.is_deleted(pod)
    ]
    if sync.is_ordered:
        victims = outdated[: max(room, 0)]
    else:
        # Pods that serve no request are replaced at once; they cost no availability.
        useless = [pod for pod in outdated if not sync.is_available(pod)]
        useful = [pod for pod in outdated if sync.is_available(pod)]
        victims = [*useless, *useful[: max(room, 0)]]
    for pod in victims:
        yield from _delete(sync, pod)
        sync.updated_away += 1


# Writes


def _create(sync: Sync, pod: Tree) -> Steps:
    owner = sync.owner
    yield from _create_claims(sync, pod)
    outcome = yield controller_actions.Create(pod)
    name, set_name = pod["metadata"]["name"], owner["metadata"]["name"]
    subject = f"Pod {name} in StatefulSet {set_name}"
    if isinstance(outcome, failures.ApiFailure):
        if not isinstance(outcome, failures.AlreadyThere):
            message = f"create {subject} failed error: {outcome}"
            yield controller_actions.warning(owner, "FailedCreate", message)
        raise outcome
    yield controller_actions.normal(owner, "SuccessfulCreate", f"create {subject} successful")


def _delete(sync: Sync, pod: Tree) -> Steps:
    owner = sync.owner
    name, set_name = pod["metadata"]["name"], owner["metadata"]["name"]
    yield from controller_actions.deleted(pod)
    message = f"delete Pod {name} in StatefulSet {set_name} successful"
    yield controller_actions.normal(owner, "SuccessfulDelete", message)


def _create_claims(sync: Sync, pod: Tree) -> Steps:
    owner, ordinal = sync.owner, stateful_pods.ordinal_of(pod)
    for claim in stateful_pods.claims_of(owner, ordinal):
        stored = stateful_pods.stored_claim(claim, sync.situation.objects)
        name, pod_name = claim["metadata"]["name"], pod["metadata"]["name"]
        if stored is None:
            outcome = yield controller_actions.Create(_owned(owner, pod, claim))
            if isinstance(outcome, failures.ApiFailure):
                message = f"create Claim {name} for Pod {pod_name} failed error: {outcome}"
                yield controller_actions.warning(owner, "FailedCreate", message)
                raise outcome
            set_name = owner["metadata"]["name"]
            message = f"create Claim {name} Pod {pod_name} in StatefulSet {set_name} success"
            yield controller_actions.normal(owner, "SuccessfulCreate", message)
        elif owner_references.is_deleted(stored):
            raise failures.Unavailable(f"pvc {name} is being deleted; the pod waits for its end")


def _owned(owner: Tree, pod: Tree, claim: Tree) -> Tree:
    references = stateful_pods.claim_owners(owner, pod, claim)
    if not references:
        return claim
    return claim | {"metadata": claim["metadata"] | {"ownerReferences": references}}


def _claim_for(sync: Sync, pod: Tree) -> Steps:
    """Gives the claims of a pod the owners that the retention policy wants."""
    ordinal = stateful_pods.ordinal_of(pod)
    for claim in stateful_pods.claims_of(sync.owner, ordinal):
        stored = stateful_pods.stored_claim(claim, sync.situation.objects)
        if stored is None:
            continue
        references = stateful_pods.claim_owners(sync.owner, pod, stored)
        if references != tree_fields.entries(stored["metadata"], "ownerReferences"):
            patch = {"metadata": {"ownerReferences": references or None}}
            yield from controller_actions.written(stored, patch)


def _identify(pod: Tree) -> Steps:
    """Labels an adopted pod as the member it is."""
    name = pod["metadata"]["name"]
    if owner_references.labels_of(pod).get(stateful_pods.POD_NAME_LABEL) != name:
        labels = {
            stateful_pods.POD_NAME_LABEL: name,
            stateful_pods.POD_INDEX_LABEL: str(stateful_pods.ordinal_of(pod)),
        }
        yield from controller_actions.written(pod, {"metadata": {"labels": labels}})


def _truncate(sync: Sync, revisions: list[Tree]) -> Steps:
    pod_revisions = {stateful_pods.revision_of(pod) for pod in sync.pods}
    live = pod_revisions | {sync.current["metadata"]["name"], sync.update["metadata"]["name"]}
    dead = [revision for revision in revisions if revision["metadata"]["name"] not in live]
    surplus = len(dead) - sync.owner["spec"]["revisionHistoryLimit"]
    yield from controller_revisions.truncated(revisions, live=live, surplus=surplus)


# Status


def _status(sync: Sync) -> Tree:
    pods = [pod for pod in sync.pods if stateful_pods.ordinal_of(pod) >= 0]
    ready = [
        pod for pod in pods if pod_states.phase_of(pod) == "Running" and pod_states.is_ready(pod)
    ]
    staying = [pod for pod in pods if not pod_states.is_deleted(pod)]
    revisions = [stateful_pods.revision_of(pod) for pod in staying]
    current_name = sync.current["metadata"]["name"]
    update_name = sync.update["metadata"]["name"]
    old_status = tree_fields.mapping(sync.owner, "status")
    status = {
        "observedGeneration": sync.owner["metadata"].get("generation", 0),
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(map(sync.is_available, ready)),
        "currentReplicas": revisions.count(current_name) - sync.updated_away,
        "updatedReplicas": revisions.count(update_name),
        "currentRevision": current_name,
        "updateRevision": update_name,
        "collisionCount": tree_fields.number(old_status, "collisionCount"),
        "conditions": old_status.get("conditions"),
    }
    desired = sync.owner["spec"]["replicas"]
    numbers = (status["updatedReplicas"], status["readyReplicas"], status["replicas"])
    if numbers == (desired, desired, desired):
        status["currentReplicas"] = status["updatedReplicas"]
        status["currentRevision"] = update_name
    always = ("replicas", "availableReplicas", "collisionCount")
    return workload_conditions.compact(status, always=always)
