"""Counts the pods of a Job, each exactly once, and finishes a Job that is decided.

Given a reconciliation under way; yields actions. A pod carries a finalizer until it is counted: first its uid is
written into the status, then the finalizer is removed, then the counter grows, so that a crash in between loses and
doubles nothing. Never starts or ends a pod.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.batch import job_indexes, job_pods, job_sync
from dovetail.sim.controllers.controller_actions import Action, Outcome, Steps
from dovetail.sim.controllers.object_index import uid_of

Tree = dict[str, Any]


def track(sync: job_sync.Sync) -> Steps:
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
            conditions = tree_fields.entries(sync.status, "conditions")
            sync.status["conditions"] = [*conditions, sync.outcome]

    stored = yield from _write_status(sync, sync.job.get("status"))
    for pod in countable:
        yield from job_pods.untracked(pod)
    untracked = {uid_of(pod) for pod in countable}
    _count_untracked(sync, untracked)
    is_over = _finish(sync, is_all=len(countable) < job_sync.MAX_PER_SYNC)
    yield from _write_status(sync, stored)
    if is_over:
        yield from _report_end(sync)


def _countable(sync: job_sync.Sync) -> Iterator[Tree]:
    """The pods whose finalizer can go now: they ended, or nothing depends on how they end."""
    is_decided = sync.outcome is not None or owner_references.is_deleted(sync.job)
    delayed = set(map(uid_of, sync.delayed.values()))
    count = 0
    for pod in sync.tracked if is_decided else sync.ended:
        has_failed = sync.has_failed(pod) and uid_of(pod) not in delayed
        if is_decided or has_failed or job_sync.has_succeeded(pod):
            count += 1
            yield pod
        if count >= job_sync.MAX_PER_SYNC:
            return


def _write_down(sync: job_sync.Sync, pod: Tree) -> None:
    """Puts a pod into the status as succeeded or failed."""
    uid = uid_of(pod)
    if job_sync.has_succeeded(pod) and uid not in sync.uncounted["failed"]:
        if not sync.is_indexed and uid not in sync.uncounted["succeeded"]:
            sync.uncounted["succeeded"].append(uid)
        return
    is_lost = sync.outcome is not None and sync.outcome["type"] == "FailureTarget"
    if not sync.has_failed(pod) and not is_lost:
        return
    is_counted = sync.is_valid(pod) and sync.verdict_on(pod).is_counted
    if is_counted and uid not in sync.uncounted["failed"]:
        sync.uncounted["failed"].append(uid)


def _count_untracked(sync: job_sync.Sync, untracked: Iterable[str] = ()) -> None:
    """Counts pods of the status that have no finalizer any more."""
    if not any(sync.uncounted.values()):
        return
    tracked = set(map(uid_of, sync.tracked)) - set(untracked)
    for state, uids in sync.uncounted.items():
        waiting = [uid for uid in uids if uid in tracked]
        if len(waiting) < len(uids):
            sync.status[state] = int(sync.status.get(state) or 0) + len(uids) - len(waiting)
            sync.uncounted[state] = waiting


def _finish(sync: job_sync.Sync, *, is_all: bool) -> bool:
    """Ends a decided Job once every pod is counted and gone."""
    is_open = any(sync.uncounted.values()) or sync.terminating > 0
    if sync.outcome is None or is_open or not is_all:
        return False
    type_ = job_sync.TARGETS[sync.outcome["type"]]
    reason, message = sync.outcome["reason"], sync.outcome["message"]
    condition = job_sync.new_condition(type_, "True", reason, message, sync.now)
    sync.status["conditions"] = job_sync.with_condition(
        tree_fields.entries(sync.status, "conditions"), condition
    )
    if type_ == "Complete":
        sync.status["completionTime"] = condition["lastTransitionTime"]
    return True


def _report_end(sync: job_sync.Sync) -> Steps:
    assert sync.outcome is not None
    if sync.outcome["type"] == "SuccessCriteriaMet":
        yield controller_actions.normal(sync.job, "Completed", "Job completed")
    else:
        reason, message = sync.outcome["reason"], sync.outcome["message"]
        yield controller_actions.warning(sync.job, reason, message)


def _write_status(
    sync: job_sync.Sync, stored: Tree | None
) -> Generator[Action, Outcome, Tree | None]:
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
