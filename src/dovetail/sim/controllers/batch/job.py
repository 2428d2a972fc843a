"""Reconciles a Job: runs pods until enough have succeeded or too many have failed, and counts every pod exactly once.

Given a Job and its pods; yields actions. A pod carries a finalizer until it is counted: first its uid is written into
the status, then the finalizer is removed, then the counter grows, so that a crash in between loses and doubles
nothing. Also removes finished Jobs after their time to live. Never waits.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

from dovetail import timestamps
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_removal_order,
    pod_states,
    workload_conditions,
)
from dovetail.sim.controllers.batch import job_backoff, job_indexes, job_pods, job_policies
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
MAX_PER_SYNC: Final = (
    500  # pods created, deleted or counted at a time: job.MaxPodCreateDeletePerSync
)
TARGETS: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


class Sync:
    """One reconciliation under way: the Job with the status it will have, and its pods."""

    def __init__(self, situation: Situation, pods: list[Tree]) -> None:
        self.job: Tree = situation.owner
        self.spec: Tree = situation.owner["spec"]
        self.now: datetime.datetime = situation.now
        self.status: Tree = dict(situation.owner.get("status") or {})
        self.pods = pods
        self.active_pods = [pod for pod in pods if pod_states.is_active(pod)]
        self.active = len(self.active_pods)
        self.ready = sum(map(pod_states.is_ready, self.active_pods))
        self.terminating = sum(map(pod_states.is_terminating, pods))
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        self.uncounted: dict[str, list[str]] = {
            state: list(uncounted.get(state) or ()) for state in ("succeeded", "failed")
        }
        self.outcome: Tree | None = None  # the condition that decides the Job
        self.failure: Failure = None
        self.succeeded_indexes: set[int] = set()
        self.failed_indexes: set[int] = set()
        self.delayed: dict[int, Tree] = {}  # failed pods kept until their index is tried again

    @property
    def completions(self) -> int:
        """Of an Indexed Job, which always has them."""
        return int(self.spec["completions"])

    @property
    def is_indexed(self) -> bool:
        """Whether every pod has an index of its own."""
        return bool(self.spec["completionMode"] == "Indexed")

    @property
    def limits_indexes(self) -> bool:
        """Whether every index has a backoff limit of its own."""
        return "backoffLimitPerIndex" in self.spec

    @property
    def awaits_ends(self) -> bool:
        """Whether pods are replaced only once they have ended."""
        return bool(self.spec["podReplacementPolicy"] == "Failed")

    def has_failed(self, pod: Tree) -> bool:
        """Whether a pod counts as failed: a deleted one does, unless the Job awaits its end."""
        if pod_states.phase_of(pod) == "Failed":
            return True
        is_over = pod_states.phase_of(pod) == "Succeeded"
        return not self.awaits_ends and pod_states.is_deleted(pod) and not is_over

    def verdict_on(self, pod: Tree) -> job_policies.Verdict:
        """What a failed pod means."""
        return job_policies.verdict_on(pod, self.spec.get("podFailurePolicy"))

    def is_valid(self, pod: Tree) -> bool:
        """Whether a pod is one that the Job counts."""
        index = job_indexes.index_of(pod)
        has_index = index is not None and self.is_indexed and index < self.completions
        return job_pods.is_tracked(pod) and (not self.is_indexed or has_index)

    def uncounted_pods(self, state: str) -> list[Tree]:
        """The pods that succeeded or failed and are not in the status yet."""
        has_ended = _has_succeeded if state == "succeeded" else self.has_failed
        counted = self.uncounted[state]
        return [
            pod
            for pod in self.pods
            if self.is_valid(pod) and uid_of(pod) not in counted and has_ended(pod)
        ]

    def decide(self, type_: str, reason: str, message: str) -> None:
        """Sets the condition that decides the Job."""
        self.outcome = _condition(type_, "True", reason, message, self.now)


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
    sync = Sync(situation, pods)
    new_succeeded = sync.uncounted_pods("succeeded")
    new_failed = sync.uncounted_pods("failed")
    backoff = job_backoff.updated(
        situation.memory or job_backoff.Backoff(), new_succeeded, new_failed
    )
    if "startTime" not in sync.status and not sync.spec["suspend"]:
        sync.status["startTime"] = timestamps.to_text(sync.now)

    failed = _total(sync, "failed", _counted_failures(sync, new_failed))
    _decide(sync, failed)
    if sync.is_indexed:
        _decide_by_index(sync)
        succeeded = len(sync.succeeded_indexes)
    else:
        succeeded = _total(sync, "succeeded", len(new_succeeded))

    if sync.outcome is not None:
        yield from _end_active_pods(sync)
    else:
        yield from _run(sync, succeeded=succeeded, backoff=backoff)
    yield from _track(sync)
    yield controller_actions.Remember(backoff)
    if sync.failure is not None:
        raise sync.failure
    deadline = _deadline(sync)
    if deadline is not None:
        yield controller_actions.WakeAt(deadline)


def is_finished(job: Tree) -> bool:
    """Whether the Job is complete or has failed."""
    status = job.get("status") or {}
    return any(workload_conditions.is_true(status, type_) for type_ in TARGETS.values())


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
    status = job.get("status") or {}
    for type_ in TARGETS.values():
        condition = workload_conditions.condition_of(status, type_)
        if condition is not None and condition.get("status") == "True":
            return timestamps.parse_or_none(condition.get("lastTransitionTime"))
    return None


# Decisions


def _decide(sync: Sync, failed: int) -> None:
    """Whether the Job is decided already, or fails now: by policy, by its backoff limit, by its deadline."""
    for type_ in TARGETS:
        condition = workload_conditions.condition_of(sync.status, type_)
        if condition is not None and condition.get("status") == "True":
            sync.outcome = condition
            return
    message = _policy_failure(sync)
    if message:
        sync.decide("FailureTarget", "PodFailurePolicy", message)
    elif failed > sync.spec["backoffLimit"] or _has_restarted_too_often(sync):
        text = "Job has reached the specified backoff limit"
        sync.decide("FailureTarget", "BackoffLimitExceeded", text)
    elif _is_past_deadline(sync):
        text = "Job was active longer than specified deadline"
        sync.decide("FailureTarget", "DeadlineExceeded", text)


def _decide_by_index(sync: Sync) -> None:
    """Whether an Indexed Job fails or succeeds by the state of its indexes."""
    valid = [pod for pod in sync.pods if sync.is_valid(pod)]
    succeeded = job_indexes.indexes_of(filter(_has_succeeded, valid))
    before = job_indexes.parsed(sync.status.get("completedIndexes"), sync.completions)
    sync.succeeded_indexes = before | succeeded
    if sync.limits_indexes:
        failed = job_indexes.indexes_of(pod for pod in valid if _fails_index(sync, pod))
        earlier = job_indexes.parsed(sync.status.get("failedIndexes"), sync.completions)
        sync.failed_indexes = earlier | failed
        sync.delayed = _delayed(sync, valid)
        _decide_by_failed_indexes(sync)
    if sync.outcome is None:
        message = job_policies.success_message(
            sync.spec.get("successPolicy"), sync.succeeded_indexes, sync.completions
        )
        if message:
            sync.decide("SuccessCriteriaMet", "SuccessPolicy", message)


def _decide_by_failed_indexes(sync: Sync) -> None:
    failed, succeeded = len(sync.failed_indexes), len(sync.succeeded_indexes)
    limit = sync.spec.get("maxFailedIndexes")
    if sync.outcome is not None or not failed:
        return
    if limit is not None and failed > limit:
        text = "Job has exceeded the specified maximal number of failed indexes"
        sync.decide("FailureTarget", "MaxFailedIndexesExceeded", text)
    elif failed + succeeded >= sync.completions:
        sync.decide("FailureTarget", "FailedIndexes", "Job has failed indexes")


def _fails_index(sync: Sync, pod: Tree) -> bool:
    if not sync.has_failed(pod):
        return False
    verdict = sync.verdict_on(pod)
    if verdict.fails_index:
        return True
    limit = sync.spec["backoffLimitPerIndex"]
    return verdict.is_counted and job_indexes.failure_count(pod) >= limit


def _delayed(sync: Sync, valid: Iterable[Tree]) -> dict[int, Tree]:
    """Failed pods of indexes to be tried again: each keeps its finalizer until its successor exists."""
    settled = sync.succeeded_indexes | sync.failed_indexes
    settled = settled | job_indexes.indexes_of(sync.active_pods)
    latest = job_indexes.latest_failures(filter(sync.has_failed, valid), job_backoff.ended_at)
    return {index: pod for index, pod in latest.items() if index not in settled}


def _policy_failure(sync: Sync) -> str:
    if not sync.spec.get("podFailurePolicy"):
        return ""
    failed = filter(sync.has_failed, sync.pods)
    messages = [sync.verdict_on(pod).fails_job for pod in failed]
    return next(filter(None, messages), "")


def _has_restarted_too_often(sync: Sync) -> bool:
    """Of Jobs whose containers restart in place: restarts count against the backoff limit."""
    if sync.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    running = [pod for pod in sync.pods if pod_states.phase_of(pod) in ("Running", "Pending")]
    restarts = sum(map(job_pods.all_restarts, running))
    return bool(restarts >= max(sync.spec["backoffLimit"], 1))


def _is_past_deadline(sync: Sync) -> bool:
    deadline = _deadline(sync)
    return deadline is not None and deadline <= sync.now


def _deadline(sync: Sync) -> datetime.datetime | None:
    seconds = sync.spec.get("activeDeadlineSeconds")
    start = timestamps.parse_or_none(sync.status.get("startTime"))
    if seconds is None or start is None or sync.spec["suspend"] or sync.outcome is not None:
        return None
    return start + datetime.timedelta(seconds=seconds)


def _counted_failures(sync: Sync, pods: list[Tree]) -> int:
    return sum(sync.verdict_on(pod).is_counted for pod in pods)


def _total(sync: Sync, state: str, new: int) -> int:
    return int(sync.status.get(state) or 0) + new + len(sync.uncounted[state])


# Pods


def _run(sync: Sync, *, succeeded: int, backoff: job_backoff.Backoff) -> Steps:
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


def _manage(sync: Sync, succeeded: int, backoff: job_backoff.Backoff) -> Steps:
    needed = _needed(sync, succeeded)
    surplus = _surplus(sync, max(sync.active - needed, 0))
    if surplus:
        yield from _delete_pods(sync, surplus)
        return
    waited_for = sync.terminating if sync.awaits_ends else 0
    missing = min(needed - waited_for - sync.active, MAX_PER_SYNC)
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


def _needed(sync: Sync, succeeded: int) -> int:
    """How many pods should be active."""
    if sync.spec["suspend"]:
        return 0
    parallelism: int = sync.spec["parallelism"]
    completions = sync.spec.get("completions")
    if completions is None:
        # A work queue: once one pod has succeeded, the others end and are not replaced.
        return sync.active if succeeded else parallelism
    return max(0, min(int(completions) - succeeded, parallelism))


def _surplus(sync: Sync, count: int) -> list[Tree]:
    """Pods to delete: those of an index that has another pod, then the least far ones."""
    surplus: list[Tree] = []
    staying = sync.active_pods
    if sync.is_indexed:
        surplus, staying = job_indexes.duplicates(
            sync.active_pods, sync.completions, pod_removal_order.plain
        )
    if len(surplus) < count:
        surplus = [*surplus, *pod_removal_order.plain(staying)[: count - len(surplus)]]
    return surplus[:MAX_PER_SYNC]


def _indexes_to_start(sync: Sync, count: int) -> Generator[Action, Outcome, list[int]]:
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


def _predecessor(sync: Sync, index: int) -> job_pods.Predecessor | None:
    """What a new pod of an index inherits, where indexes have limits of their own."""
    if not sync.limits_indexes:
        return None
    pod = sync.delayed.get(index)
    return job_pods.Predecessor(pod, pod is not None and sync.verdict_on(pod).is_counted)


def _create_pods(sync: Sync, pods: list[Tree]) -> Steps:
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


def _delete_pods(sync: Sync, pods: list[Tree]) -> Steps:
    """Deletes pods that are not needed; they are not counted, so they lose the finalizer first."""
    for pod in pods:
        if job_pods.is_tracked(pod):
            yield from job_pods.untracked(pod)
        failure = yield from job_pods.ended(sync.job, pod)
        _note_end(sync, pod, failure)


def _end_active_pods(sync: Sync) -> Steps:
    """Deletes the pods of a Job that is decided. If one cannot be deleted, the decision waits."""
    for pod in sync.active_pods:
        failure = yield from job_pods.ended(sync.job, pod)
        _note_end(sync, pod, failure)
    if sync.failure is not None:
        sync.outcome = None


def _note_end(sync: Sync, pod: Tree, failure: Failure) -> None:
    sync.failure = sync.failure or failure
    if failure is None:
        sync.active -= 1
        sync.terminating += 1
        sync.ready -= pod_states.is_ready(pod)


def _note_suspension(sync: Sync) -> Steps:
    is_suspended = bool(sync.spec["suspend"])
    old = workload_conditions.condition_of(sync.status, "Suspended")
    if is_suspended:
        condition = _condition("Suspended", "True", "JobSuspended", "Job suspended", sync.now)
    else:
        condition = _condition("Suspended", "False", "JobResumed", "Job resumed", sync.now)
    is_news = is_suspended if old is None else old.get("status") != condition["status"]
    if not is_news:
        return
    sync.status["conditions"] = _with(sync.status.get("conditions") or [], condition)
    if is_suspended:
        sync.status.pop("startTime", None)
        yield controller_actions.normal(sync.job, "Suspended", "Job suspended")
    else:
        sync.status["startTime"] = timestamps.to_text(sync.now)
        yield controller_actions.normal(sync.job, "Resumed", "Job resumed")


# Counting


def _track(sync: Sync) -> Steps:
    """Writes down the pods that ended, removes their finalizers, then counts them and finishes the Job."""
    _count_untracked(sync)
    countable = list(_countable(sync))
    for pod in countable:
        _write_down(sync, pod)
    if sync.is_indexed:
        sync.status["completedIndexes"] = job_indexes.written(sync.succeeded_indexes)
        sync.status["succeeded"] = len(sync.succeeded_indexes)
        if sync.limits_indexes:
            sync.status["failedIndexes"] = job_indexes.written(sync.failed_indexes)
    if sync.outcome is not None:
        target_is_new = workload_conditions.condition_of(sync.status, sync.outcome["type"]) is None
        if target_is_new:
            conditions = sync.status.get("conditions") or []
            sync.status["conditions"] = [*conditions, sync.outcome]

    stored = yield from _write_status(sync, sync.job.get("status"))
    for pod in countable:
        yield from job_pods.untracked(pod)
    untracked = {uid_of(pod) for pod in countable}
    _count_untracked(sync, untracked)
    is_over = _finish(sync, is_all=len(countable) < MAX_PER_SYNC)
    yield from _write_status(sync, stored)
    if is_over:
        yield from _report_end(sync)


def _countable(sync: Sync) -> Iterator[Tree]:
    """The pods whose finalizer can go now: they ended, or nothing depends on how they end."""
    is_decided = sync.outcome is not None or owner_references.is_deleted(sync.job)
    delayed = set(map(uid_of, sync.delayed.values()))
    count = 0
    for pod in filter(job_pods.is_tracked, sync.pods):
        has_failed = sync.has_failed(pod) and uid_of(pod) not in delayed
        if is_decided or has_failed or _has_succeeded(pod):
            count += 1
            yield pod
        if count >= MAX_PER_SYNC:
            return


def _write_down(sync: Sync, pod: Tree) -> None:
    """Puts a pod into the status as succeeded or failed."""
    uid = uid_of(pod)
    if _has_succeeded(pod) and uid not in sync.uncounted["failed"]:
        if not sync.is_indexed and uid not in sync.uncounted["succeeded"]:
            sync.uncounted["succeeded"].append(uid)
        return
    is_lost = sync.outcome is not None and sync.outcome["type"] == "FailureTarget"
    if not sync.has_failed(pod) and not is_lost:
        return
    is_counted = sync.is_valid(pod) and sync.verdict_on(pod).is_counted
    if is_counted and uid not in sync.uncounted["failed"]:
        sync.uncounted["failed"].append(uid)


def _count_untracked(sync: Sync, untracked: Iterable[str] = ()) -> None:
    """Counts pods of the status that have no finalizer any more."""
    tracked = {uid_of(pod) for pod in sync.pods if job_pods.is_tracked(pod)}
    tracked -= set(untracked)
    for state, uids in sync.uncounted.items():
        waiting = [uid for uid in uids if uid in tracked]
        if len(waiting) < len(uids):
            sync.status[state] = int(sync.status.get(state) or 0) + len(uids) - len(waiting)
            sync.uncounted[state] = waiting


def _finish(sync: Sync, *, is_all: bool) -> bool:
    """Ends a decided Job once every pod is counted and gone."""
    is_open = any(sync.uncounted.values()) or sync.terminating > 0
    if sync.outcome is None or is_open or not is_all:
        return False
    type_ = TARGETS[sync.outcome["type"]]
    reason, message = sync.outcome["reason"], sync.outcome["message"]
    condition = _condition(type_, "True", reason, message, sync.now)
    sync.status["conditions"] = _with(sync.status.get("conditions") or [], condition)
    if type_ == "Complete":
        sync.status["completionTime"] = condition["lastTransitionTime"]
    return True


def _report_end(sync: Sync) -> Steps:
    assert sync.outcome is not None
    if sync.outcome["type"] == "SuccessCriteriaMet":
        yield controller_actions.normal(sync.job, "Completed", "Job completed")
    else:
        reason, message = sync.outcome["reason"], sync.outcome["message"]
        yield controller_actions.warning(sync.job, reason, message)


def _write_status(sync: Sync, stored: Tree | None) -> Generator[Action, Outcome, Tree | None]:
    """Writes the status if it differs from the stored one; returns what is stored then."""
    uncounted = {state: list(uids) for state, uids in sync.uncounted.items() if uids}
    status = sync.status | {
        "active": sync.active,
        "ready": sync.ready,
        "terminating": sync.terminating,
        "uncountedTerminatedPods": uncounted,
    }
    always = ("ready", "terminating", "uncountedTerminatedPods", "failedIndexes")
    compact = workload_conditions.compact(status, always=always)
    if compact != stored:
        controller_actions.stored((yield controller_actions.SetStatus(sync.job, compact)))
    return compact


def _has_succeeded(pod: Tree) -> bool:
    return pod_states.phase_of(pod) == "Succeeded"


def _with(conditions: list[Tree], condition: Tree) -> list[Tree]:
    """The conditions with this one in the place of its type, or last."""
    types = [entry["type"] for entry in conditions]
    if condition["type"] not in types:
        return [*conditions, condition]
    place = types.index(condition["type"])
    return [*conditions[:place], condition, *conditions[place + 1 :]]


def _condition(type_: str, state: str, reason: str, message: str, now: datetime.datetime) -> Tree:
    stamp = timestamps.to_text(now)
    return {
        "type": type_,
        "status": state,
        "reason": reason,
        "message": message,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
    }
