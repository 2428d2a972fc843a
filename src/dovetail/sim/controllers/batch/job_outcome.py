"""What decides a Job: its policies, its backoff limits, its deadline, and the state of its indexes.

Given a reconciliation under way; sets its outcome, a condition of type SuccessCriteriaMet or FailureTarget, once. Never
acts.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from dovetail import timestamps
from dovetail.sim.controllers import pod_states, workload_conditions
from dovetail.sim.controllers.batch import (
    job_backoff,
    job_indexes,
    job_pods,
    job_policies,
    job_sync,
)

Tree = dict[str, Any]


def decide(sync: job_sync.Sync, failed: int) -> None:
    """Whether the Job is decided already, or fails now: by policy, by its backoff limit, by its deadline."""
    for type_ in job_sync.TARGETS:
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


def decide_by_index(sync: job_sync.Sync) -> None:
    """Whether an Indexed Job fails or succeeds by the state of its indexes."""
    valid = [pod for pod in sync.ended if sync.is_valid(pod)]
    succeeded = job_indexes.indexes_of(filter(job_sync.has_succeeded, valid))
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


def _decide_by_failed_indexes(sync: job_sync.Sync) -> None:
    failed, succeeded = len(sync.failed_indexes), len(sync.succeeded_indexes)
    limit = sync.spec.get("maxFailedIndexes")
    if sync.outcome is not None or not failed:
        return
    if limit is not None and failed > limit:
        text = "Job has exceeded the specified maximal number of failed indexes"
        sync.decide("FailureTarget", "MaxFailedIndexesExceeded", text)
    elif failed + succeeded >= sync.completions:
        sync.decide("FailureTarget", "FailedIndexes", "Job has failed indexes")


def _fails_index(sync: job_sync.Sync, pod: Tree) -> bool:
    if not sync.has_failed(pod):
        return False
    verdict = sync.verdict_on(pod)
    if verdict.fails_index:
        return True
    limit = sync.spec["backoffLimitPerIndex"]
    return verdict.is_counted and job_indexes.failure_count(pod) >= limit


def _delayed(sync: job_sync.Sync, valid: Iterable[Tree]) -> dict[int, Tree]:
    """Failed pods of indexes to be tried again: each keeps its finalizer until its successor exists."""
    settled = sync.succeeded_indexes | sync.failed_indexes
    settled = settled | job_indexes.indexes_of(sync.active_pods)
    latest = job_indexes.latest_failures(filter(sync.has_failed, valid), job_backoff.ended_at)
    return {index: pod for index, pod in latest.items() if index not in settled}


def _policy_failure(sync: job_sync.Sync) -> str:
    if not sync.spec.get("podFailurePolicy"):
        return ""
    failed = filter(sync.has_failed, sync.pods)
    messages = [sync.verdict_on(pod).fails_job for pod in failed]
    return next(filter(None, messages), "")


def _has_restarted_too_often(sync: job_sync.Sync) -> bool:
    """Of Jobs whose containers restart in place: restarts count against the backoff limit."""
    if sync.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    running = [pod for pod in sync.pods if pod_states.phase_of(pod) in ("Running", "Pending")]
    restarts = sum(map(job_pods.all_restarts, running))
    return bool(restarts >= max(sync.spec["backoffLimit"], 1))


def _is_past_deadline(sync: job_sync.Sync) -> bool:
    deadline = deadline_of(sync)
    return deadline is not None and deadline <= sync.now


def deadline_of(sync: job_sync.Sync) -> datetime.datetime | None:
    """When a Job that is not decided yet has been active for too long."""
    seconds = sync.spec.get("activeDeadlineSeconds")
    start = timestamps.parse_or_none(sync.status.get("startTime"))
    if seconds is None or start is None or sync.spec["suspend"] or sync.outcome is not None:
        return None
    return start + datetime.timedelta(seconds=seconds)


def counted_failures(sync: job_sync.Sync, pods: list[Tree]) -> int:
    """How many of the failed pods count against the backoff limit."""
    return sum(sync.verdict_on(pod).is_counted for pod in pods)
