"""Reconciles a Job: runs pods until enough have succeeded or too many have failed.

Given a Job and its pods; yields actions. `job_outcome` says what decides a Job, `job_tracking` counts its pods.
Also lets go of pods whose Job is gone, and deletes finished Jobs after their time to live. Never waits.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Generator, Iterator
from typing import Any, Final

from dovetail import timestamps
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_removal_order,
    pod_states,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.batch import (
    job_backoff,
    job_indexes,
    job_outcome,
    job_pods,
    job_sync,
    job_tracking,
)
from dovetail.sim.controllers.batch.job_pods import FINALIZER
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import (
    BATCH,
    CORE,
    Change,
    Key,
    ObjectIndex,
    controller_of,
    key_of,
    uid_of,
)

Tree = dict[str, Any]
Failure = failures.ApiFailure | None

CONTROLLER: Final = "kubernetes.io/job-controller"  # spec.managedBy


def reconcile(situation: Situation) -> Steps:
    """Starts, ends and counts pods, and updates the status."""
    job = situation.owner
    if job["spec"].get("managedBy") not in (None, CONTROLLER):
        return
    if is_finished(job):
        yield from _after_finish(situation)
        return

    objects = situation.objects
    orphans = objects.orphans(CORE, "Pod", job["metadata"].get("namespace", ""))
    children = objects.controlled(job, "Pod")
    pods = yield from owner_references.claimed(job, children, orphans, finalizer=FINALIZER)
    sync = job_sync.Sync(situation, pods)
    new_succeeded = sync.uncounted_pods("succeeded")
    new_failed = sync.uncounted_pods("failed")
    backoff = job_backoff.updated(
        situation.memory or job_backoff.Backoff(), new_succeeded, new_failed
    )
    if "startTime" not in sync.status and not sync.spec["suspend"]:
        sync.status["startTime"] = timestamps.to_text(sync.now)

    failed = _total(sync, "failed", job_outcome.counted_failures(sync, new_failed))
    job_outcome.decide(sync, failed)
    if sync.is_indexed:
        job_outcome.decide_by_index(sync)
        succeeded = len(sync.succeeded_indexes)
    else:
        succeeded = _total(sync, "succeeded", len(new_succeeded))

    if sync.outcome is not None:
        yield from _end_active_pods(sync)
    else:
        yield from _run(sync, succeeded=succeeded, backoff=backoff)
    yield from job_tracking.track(sync)
    yield controller_actions.Remember(backoff)
    if sync.failure is not None:
        raise sync.failure
    deadline = job_outcome.deadline_of(sync)
    if deadline is not None:
        yield controller_actions.WakeAt(deadline)


def is_finished(job: Tree) -> bool:
    """Whether the Job is complete or has failed."""
    status = tree_fields.mapping(job, "status")
    return any(workload_conditions.is_true(status, type_) for type_ in job_sync.TARGETS.values())


# Pods whose Job is gone


def pods_to_release(change: Change, objects: ObjectIndex) -> Iterator[Key]:
    """Pods that may carry the finalizer of a Job that will never count them."""
    key = key_of(change.tree)
    if key[:2] == (CORE, "Pod") and change.new is not None and job_pods.is_tracked(change.new):
        if _is_abandoned(change.new, objects):
            yield key
    elif key[:2] == (BATCH, "Job") and change.new is None:
        dependents = objects.dependents(uid_of(change.tree))
        yield from (key_of(pod) for pod in dependents if job_pods.is_tracked(pod))


def release(pod: Tree, objects: ObjectIndex) -> Steps:
    """Removes the finalizer from a pod, if its Job is still gone."""
    if job_pods.is_tracked(pod) and _is_abandoned(pod, objects):
        yield from job_pods.untracked(pod)


def _is_abandoned(pod: Tree, objects: ObjectIndex) -> bool:
    reference = controller_of(pod)
    if reference is None:
        return True
    return reference["kind"] == "Job" and objects.with_uid(str(reference["uid"])) is None


# After the end


def _after_finish(situation: Situation) -> Steps:
    """Lets go of pods, and deletes the Job when its time to live is over."""
    job = situation.owner
    for pod in situation.objects.controlled(job, "Pod"):
        if job_pods.is_tracked(pod):
            yield from job_pods.untracked(pod)
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    end = _finish_time(job)
    if seconds is None or end is None or owner_references.is_deleted(job):
        return
    expiry = end + datetime.timedelta(seconds=seconds)
    if expiry > situation.now:
        yield controller_actions.WakeAt(expiry)
    else:
        yield from controller_actions.deleted(job, controller_actions.FOREGROUND)


def _finish_time(job: Tree) -> datetime.datetime | None:
    status = tree_fields.mapping(job, "status")
    for type_ in job_sync.TARGETS.values():
        condition = workload_conditions.condition_of(status, type_)
        if condition is not None and condition.get("status") == "True":
            return timestamps.parse_or_none(condition.get("lastTransitionTime"))
    return None


def _total(sync: job_sync.Sync, state: str, new: int) -> int:
    return int(sync.status.get(state) or 0) + new + len(sync.uncounted[state])


# Pods


def _run(sync: job_sync.Sync, *, succeeded: int, backoff: job_backoff.Backoff) -> Steps:
    """Brings the number of active pods to what is needed, and sees whether the Job is complete."""
    if not owner_references.is_deleted(sync.job):
        yield from _manage(sync, succeeded, backoff)
    completions = sync.spec.get("completions")
    needed = 1 if completions is None else completions
    if succeeded >= needed and sync.active == 0:
        text = "Reached expected number of succeeded pods"
        sync.decide("SuccessCriteriaMet", "CompletionsReached", text)
    elif not owner_references.is_deleted(sync.job):
        yield from _note_suspension(sync)


def _manage(sync: job_sync.Sync, succeeded: int, backoff: job_backoff.Backoff) -> Steps:
    needed = _needed(sync, succeeded)
    surplus = _surplus(sync, max(sync.active - needed, 0))
    if surplus:
        yield from _delete_pods(sync, surplus)
        return
    waited_for = sync.terminating if sync.awaits_ends else 0
    missing = min(needed - waited_for - sync.active, job_sync.MAX_PER_SYNC)
    if missing <= 0:
        return
    over_at = None if sync.limits_indexes else backoff.over_at()
    if over_at is not None and over_at > sync.now:
        yield controller_actions.WakeAt(over_at)
        return
    if not sync.is_indexed:
        pods = [job_pods.new_pod(sync.job)] * missing
    else:
        indexes = yield from _indexes_to_start(sync, missing)
        pods = [job_pods.new_indexed_pod(sync.job, i, _predecessor(sync, i)) for i in indexes]
    yield from _create_pods(sync, pods)


def _needed(sync: job_sync.Sync, succeeded: int) -> int:
    """How many pods should be active."""
    if sync.spec["suspend"]:
        return 0
    parallelism: int = sync.spec["parallelism"]
    completions = sync.spec.get("completions")
    if completions is None:
        # A work queue: once one pod has succeeded, the others end and are not replaced.
        return sync.active if succeeded else parallelism
    return max(0, min(int(completions) - succeeded, parallelism))


def _surplus(sync: job_sync.Sync, count: int) -> list[Tree]:
    """Pods to delete: those of an index that has another pod, then the least far ones."""
    surplus: list[Tree] = []
    staying = sync.active_pods
    if sync.is_indexed:
        surplus, staying = job_indexes.duplicates(
            sync.active_pods, sync.completions, pod_removal_order.plain
        )
    if len(surplus) < count:
        surplus = [*surplus, *pod_removal_order.plain(staying)[: count - len(surplus)]]
    return surplus[: job_sync.MAX_PER_SYNC]


def _indexes_to_start(sync: job_sync.Sync, count: int) -> Generator[Action, Outcome, list[int]]:
    """The lowest indexes that need a pod. With limits per index, those that still wait are left out."""
    taken = sync.succeeded_indexes | sync.failed_indexes
    taken = taken | job_indexes.indexes_of(sync.active_pods)
    if sync.awaits_ends:
        ending = [pod for pod in sync.pods if pod_states.is_terminating(pod)]
        taken = taken | job_indexes.indexes_of(ending)
    indexes = job_indexes.first_missing(taken, count=count, completions=sync.completions)

    waiting = {}
    for index in indexes:
        predecessor = sync.delayed.get(index)
        if predecessor is not None:
            before = job_indexes.absolute_failure_count(predecessor)
            over_at = job_backoff.index_over_at(predecessor, before)
            if over_at > sync.now:
                waiting[index] = over_at
    if waiting:
        yield controller_actions.WakeAt(min(waiting.values()))
    return [index for index in indexes if index not in waiting]


def _predecessor(sync: job_sync.Sync, index: int) -> job_pods.Predecessor | None:
    """What a new pod of an index inherits, where indexes have limits of their own."""
    if not sync.limits_indexes:
        return None
    pod = sync.delayed.get(index)
    return job_pods.Predecessor(pod, pod is not None and sync.verdict_on(pod).is_counted)


def _create_pods(sync: job_sync.Sync, pods: list[Tree]) -> Steps:
    """Creates pods in batches that double; stops after a batch with a failure."""
    remaining = iter(pods)
    size = 1
    while sync.failure is None:
        batch = list(itertools.islice(remaining, size))
        if not batch:
            return
        for pod in batch:
            failure = yield from job_pods.created(sync.job, pod)
            sync.active += failure is None
            sync.failure = sync.failure or failure
        size *= 2


def _delete_pods(sync: job_sync.Sync, pods: list[Tree]) -> Steps:
    """Deletes pods that are not needed; they are not counted, so they lose the finalizer first."""
    for pod in pods:
        if job_pods.is_tracked(pod):
            yield from job_pods.untracked(pod)
        failure = yield from job_pods.ended(sync.job, pod)
        _note_end(sync, pod, failure)


def _end_active_pods(sync: job_sync.Sync) -> Steps:
    """Deletes the pods of a Job that is decided. If one cannot be deleted, the decision waits."""
    for pod in sync.active_pods:
        failure = yield from job_pods.ended(sync.job, pod)
        _note_end(sync, pod, failure)
    if sync.failure is not None:
        sync.outcome = None


def _note_end(sync: job_sync.Sync, pod: Tree, failure: Failure) -> None:
    sync.failure = sync.failure or failure
    if failure is None:
        sync.active -= 1
        sync.terminating += 1
        sync.ready -= pod_states.is_ready(pod)


def _note_suspension(sync: job_sync.Sync) -> Steps:
    is_suspended = bool(sync.spec["suspend"])
    old = workload_conditions.condition_of(sync.status, "Suspended")
    if is_suspended:
        condition = job_sync.new_condition(
            "Suspended", "True", "JobSuspended", "Job suspended", sync.now
        )
    else:
        condition = job_sync.new_condition(
            "Suspended", "False", "JobResumed", "Job resumed", sync.now
        )
    is_news = is_suspended if old is None else old.get("status") != condition["status"]
    if not is_news:
        return
    sync.status["conditions"] = job_sync.with_condition(
        tree_fields.entries(sync.status, "conditions"), condition
    )
    if is_suspended:
        sync.status.pop("startTime", None)
        yield controller_actions.normal(sync.job, "Suspended", "Job suspended")
    else:
        sync.status["startTime"] = timestamps.to_text(sync.now)
        yield controller_actions.normal(sync.job, "Resumed", "Job resumed")
