"""Reconciles a CronJob: creates Jobs at the times of its schedule and deletes old ones.

Given a CronJob and its Jobs; yields actions and the time of the next start. A Job's name contains the minute it was
scheduled for, so that no time starts twice. Never runs a pod.
"""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_states,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.batch import cron_schedule, job
from dovetail.sim.controllers.controller_actions import Situation, Steps
from dovetail.sim.controllers.object_index import uid_of

Tree = dict[str, Any]

SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED: Final = 100  # starts missed before an event says so
DELAY: Final = datetime.timedelta(milliseconds=100)  # cronjob.nextScheduleDelta


class Due(NamedTuple):
    """The latest time of the schedule that has passed, if any, how many have, and from when they are counted."""

    time: datetime.datetime | None
    earliest: datetime.datetime
    missed: int = 0


class Sync:
    """One reconciliation under way: the CronJob with the status it will have, its Jobs, the time."""

    def __init__(self, situation: Situation) -> None:
        self.cron_job: Tree = situation.owner
        self.spec: Tree = situation.owner["spec"]
        self.now: datetime.datetime = situation.now
        self.status: Tree = dict(tree_fields.mapping(situation.owner, "status"))
        self.jobs = situation.objects.controlled(situation.owner, "Job")

    @property
    def active(self) -> list[Tree]:
        """References to the Jobs that run."""
        return tree_fields.entries(self.status, "active")


def reconcile(situation: Situation) -> Steps:
    """Starts the Job that is due, updates the status, and cleans up."""
    sync = Sync(situation)
    yield from _note_finished(sync)
    if not owner_references.is_deleted(sync.cron_job):
        yield from _clean_up(sync)
        yield from _schedule(sync)
    status = workload_conditions.compact(sync.status)
    if status != tree_fields.mapping(sync.cron_job, "status"):
        yield controller_actions.SetStatus(sync.cron_job, status)


def _note_finished(sync: Sync) -> Steps:
    """Takes Jobs that ended or vanished off the list of active ones."""
    jobs = {uid_of(each): each for each in sync.jobs}
    active = []
    for reference in sync.active:
        each = jobs.get(reference["uid"])
        if each is None:
            message = f"Active job went missing: {reference['name']}"
            yield controller_actions.normal(sync.cron_job, "MissingJob", message)
        elif job.is_finished(each):
            message = f"Saw completed job: {reference['name']}, condition: {_end(each)}"
            yield controller_actions.normal(sync.cron_job, "SawCompletedJob", message)
        else:
            active.append(reference)
    sync.status["active"] = active

    completed = [each for each in sync.jobs if _end(each) == "Complete"]
    ends = [str(each["status"].get("completionTime") or "") for each in completed]
    latest = max([*ends, str(sync.status.get("lastSuccessfulTime") or "")], default="")
    if latest:
        sync.status["lastSuccessfulTime"] = latest


def _clean_up(sync: Sync) -> Steps:
    """Deletes the oldest finished Jobs beyond the history that is kept."""
    limits = {
        "Complete": sync.spec["successfulJobsHistoryLimit"],
        "Failed": sync.spec["failedJobsHistoryLimit"],
    }
    for end, limit in limits.items():
        ended = [each for each in sync.jobs if _end(each) == end]
        alive = [each for each in ended if not owner_references.is_deleted(each)]
        by_age = sorted(alive, key=_start_order)
        for each in by_age[: max(len(alive) - limit, 0)]:
            yield from controller_actions.deleted(each)
            message = f"Deleted job {each['metadata']['name']}"
            yield controller_actions.normal(sync.cron_job, "SuccessfulDelete", message)


def _schedule(sync: Sync) -> Steps:
    """Starts the Job that is due, and asks to be woken for the next one."""
    zone_name = sync.spec.get("timeZone")
    zone = _zone(zone_name)
    if zone is None:
        message = f'invalid timeZone: "{zone_name}"'
        yield controller_actions.warning(sync.cron_job, "UnknownTimeZone", message)
        return
    if sync.spec["suspend"]:
        return
    try:
        schedule = cron_schedule.Schedule(sync.spec["schedule"], zone)
    except cron_schedule.ScheduleError as error:
        message = f'unparseable schedule: "{sync.spec["schedule"]}" : {error}'
        yield controller_actions.warning(sync.cron_job, "UnparseableSchedule", message)
        return

    due = _due(sync, schedule)
    if due.time is not None:
        yield from _start(sync, due, due.time.astimezone(zone))
    following = schedule.after(due.time or due.earliest)
    if following is not None:
        yield controller_actions.WakeAt(following + DELAY)


def _due(sync: Sync, schedule: cron_schedule.Schedule) -> Due:
    """The latest scheduled time up to now, since the last start, the creation, or the starting deadline."""
    last = timestamps.parse_or_none(sync.status.get("lastScheduleTime"))
    earliest = last or pod_states.created_at(sync.cron_job) or sync.now
    deadline_seconds = sync.spec.get("startingDeadlineSeconds")
    if deadline_seconds is not None:
        deadline = sync.now - datetime.timedelta(seconds=deadline_seconds)
        earliest = max(earliest, deadline)

    first = schedule.after(earliest)
    if first is None or first > sync.now:
        return Due(None, earliest)
    second = schedule.after(first)
    if second is None or second > sync.now:
        return Due(first, earliest)
    # Schedules are nearly regular: jump close to now instead of visiting every missed time.
    period = second - first
    missed = (sync.now - first) // period + 1
    latest = first
    candidate = schedule.after(first + period * max(missed - 2, 0)) or first
    while candidate <= sync.now:
        latest = candidate
        candidate = schedule.after(candidate) or sync.now + period
    return Due(latest, earliest, missed)


def _start(sync: Sync, due: Due, time: datetime.datetime) -> Steps:
    cron_job = sync.cron_job
    if due.missed > MANY_MISSED:
        message = (
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds "
            "or check clock skew"
        )
        yield controller_actions.warning(cron_job, "TooManyMissedTimes", message)
    stamp = timestamps.to_text(time)
    name = _job_name(cron_job, time)
    is_active = any(reference["name"] == name for reference in sync.active)
    if is_active or sync.status.get("lastScheduleTime") == stamp:
        return
    if sync.spec["concurrencyPolicy"] == "Forbid" and sync.active:
        message = (
            "Not starting job because prior execution is running and concurrency policy is Forbid"
        )
        yield controller_actions.normal(cron_job, "JobAlreadyActive", message)
        return
    if sync.spec["concurrencyPolicy"] == "Replace":
        yield from _delete_active(sync)
    yield from _create(sync, _new_job(cron_job, time), stamp)


def _delete_active(sync: Sync) -> Steps:
    active_uids = {reference["uid"] for reference in sync.active}
    for each in sync.jobs:
        if uid_of(each) in active_uids:
            yield from controller_actions.deleted(each)
            message = f"Deleted job {each['metadata']['name']}"
            yield controller_actions.normal(sync.cron_job, "SuccessfulDelete", message)
    sync.status["active"] = []


def _create(sync: Sync, tree: Tree, stamp: str) -> Steps:
    outcome = yield controller_actions.Create(tree)
    name = tree["metadata"]["name"]
    if isinstance(outcome, failures.AlreadyThere):
        # An earlier attempt created it, or another owner has the name: either way this time is over.
        sync.status["lastScheduleTime"] = stamp
        return
    if isinstance(outcome, failures.ApiFailure):
        message = f"Error creating job: {outcome}"
        yield controller_actions.warning(sync.cron_job, "FailedCreate", message)
        raise outcome
    created = controller_actions.stored(outcome)
    yield controller_actions.normal(sync.cron_job, "SuccessfulCreate", f"Created job {name}")
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "namespace": tree["metadata"]["namespace"],
        "resourceVersion": created["metadata"].get("resourceVersion", ""),
        "uid": uid_of(created),
    }
    sync.status["active"] = [*sync.active, reference]
    sync.status["lastScheduleTime"] = stamp


def _new_job(cron_job: Tree, time: datetime.datetime) -> Tree:
    template = cron_job["spec"]["jobTemplate"]
    metadata = tree_fields.mapping(template, "metadata")
    written = time.isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": _job_name(cron_job, time),
            "namespace": cron_job["metadata"].get("namespace", ""),
            "labels": dict(tree_fields.mapping(metadata, "labels")),
            "annotations": tree_fields.mapping(metadata, "annotations") | {SCHEDULED: written},
            "ownerReferences": [owner_references.reference_to(cron_job)],
        },
        "spec": dict(tree_fields.mapping(template, "spec")),
    }


def _job_name(cron_job: Tree, time: datetime.datetime) -> str:
    return f"{cron_job['metadata']['name']}-{int(time.timestamp()) // 60}"


def _zone(name: str | None) -> datetime.tzinfo | None:
    if name is None:
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _end(tree: Tree) -> str:
    """The condition that ended a Job; empty while it runs."""
    status = tree_fields.mapping(tree, "status")
    for type_ in ("Complete", "Failed"):
        if workload_conditions.is_true(status, type_):
            return type_
    return ""


def _start_order(tree: Tree) -> tuple[bool, str, str]:
    start = str(tree_fields.mapping(tree, "status").get("startTime") or "")
    return not start, start, tree["metadata"]["name"]
