"""The status of a Deployment: replicas counted over its ReplicaSets, and how the rollout progresses.

Given a rollout; returns the status to write and the deadline of its progress. Never writes.
"""

from __future__ import annotations

import datetime
from typing import Any, Final, Protocol

from dovetail import timestamps
from dovetail.sim.controllers import tree_fields, workload_conditions
from dovetail.sim.controllers.apps import deployment_scaling as scaling
from dovetail.sim.controllers.workload_defaults import MAX_INT32

Tree = dict[str, Any]

TIMED_OUT: Final = "ProgressDeadlineExceeded"
AVAILABLE: Final = "NewReplicaSetAvailable"
# Added to a deadline, because times in conditions are whole seconds.
GRACE: Final = datetime.timedelta(seconds=1)


class Rollout(Protocol):
    """What is read of a rollout."""

    deployment: Tree
    status: Tree  # with the conditions set so far
    now: datetime.datetime
    new: Tree | None

    @property
    def all(self) -> list[Tree]:
        """Its ReplicaSets."""
        ...

    @property
    def desired(self) -> int:
        """The replicas it should have."""
        ...


def has_deadline(deployment: Tree) -> bool:
    """Whether progress is watched."""
    return bool(deployment["spec"]["progressDeadlineSeconds"] != MAX_INT32)


def set_progressing(
    status: Tree, state: str, reason: str, message: str, now: datetime.datetime
) -> None:
    """Sets the condition Progressing in a status."""
    condition = _condition("Progressing", state, reason, message, now)
    status["conditions"] = workload_conditions.replaced(
        tree_fields.entries(status, "conditions"), condition
    )


def counted(rollout: Rollout) -> Tree:
    """The numbers, and whether enough replicas are available."""
    deployment, replica_sets = rollout.deployment, rollout.all
    available = scaling.counted(replica_sets, "availableReplicas")
    new = [] if rollout.new is None else [rollout.new]
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": scaling.counted(replica_sets, "replicas"),
        "updatedReplicas": scaling.counted(new, "replicas"),
        "readyReplicas": scaling.counted(replica_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, scaling.total(replica_sets) - available),
        "terminatingReplicas": _terminating(replica_sets),
        "collisionCount": rollout.status.get("collisionCount"),
    }
    minimum = rollout.desired - scaling.max_unavailable(deployment)
    if available >= minimum:
        state, reason = "True", "MinimumReplicasAvailable"
        message = "Deployment has minimum availability."
    else:
        state, reason = "False", "MinimumReplicasUnavailable"
        message = "Deployment does not have minimum availability."
    condition = _condition("Available", state, reason, message, rollout.now)
    conditions = tree_fields.entries(rollout.status, "conditions")
    status["conditions"] = workload_conditions.replaced(conditions, condition)
    return _compact(status)


def reported(rollout: Rollout) -> Tree:
    """The numbers, how the rollout progresses, and whether pods cannot be created."""
    status = counted(rollout)
    old = workload_conditions.condition_of(rollout.status, "Progressing")
    if not has_deadline(rollout.deployment):
        status["conditions"] = workload_conditions.without(status["conditions"], "Progressing")
    elif not _was_complete(status, old):
        _estimate_progress(rollout, status, old)

    failure = _replica_failure(rollout)
    if failure is None:
        others = workload_conditions.without(status["conditions"], "ReplicaFailure")
        status["conditions"] = others
    else:
        status["conditions"] = workload_conditions.replaced(status["conditions"], failure)
    return _compact(status)


def is_complete(rollout: Rollout, status: Tree | None = None) -> bool:
    """Whether all replicas are of the newest template and available, by the stored status or the one given."""
    numbers = tree_fields.mapping(rollout.deployment, "status") if status is None else status
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    has_all = all(tree_fields.number(numbers, field) == rollout.desired for field in fields)
    generation = rollout.deployment["metadata"].get("generation", 0)
    return has_all and tree_fields.number(numbers, "observedGeneration") >= generation


def deadline(rollout: Rollout, status: Tree) -> datetime.datetime | None:
    """When the rollout has to be looked at again, because it would be late then."""
    progress = workload_conditions.condition_of(status, "Progressing")
    if not has_deadline(rollout.deployment) or progress is None:
        return None
    if is_complete(rollout, status) or progress.get("reason") in (TIMED_OUT, AVAILABLE):
        return None
    moment = _late_after(rollout.deployment, progress)
    return None if moment is None else moment + GRACE


def _estimate_progress(rollout: Rollout, status: Tree, old: Tree | None) -> None:
    name = rollout.deployment["metadata"]["name"]
    subject = f'Deployment "{name}"'
    if rollout.new is not None:
        subject = f'ReplicaSet "{rollout.new["metadata"]["name"]}"'

    if is_complete(rollout, status):
        message = f"{subject} has successfully progressed."
        set_progressing(status, "True", AVAILABLE, message, rollout.now)
    elif _has_progressed(tree_fields.mapping(rollout.deployment, "status"), status):
        message = f"{subject} is progressing."
        _renew_progress(status, old, message, rollout.now)
    elif _is_late(rollout, status):
        message = f"{subject} has timed out progressing."
        set_progressing(status, "False", TIMED_OUT, message, rollout.now)


def _renew_progress(status: Tree, old: Tree | None, message: str, now: datetime.datetime) -> None:
    """Sets the condition even if status and reason are the same: the time of its update is what counts."""
    condition = _condition("Progressing", "True", "ReplicaSetUpdated", message, now)
    if old is not None and old.get("status") == "True":
        condition["lastTransitionTime"] = old["lastTransitionTime"]
    others = workload_conditions.without(status["conditions"], "Progressing")
    status["conditions"] = [*others, condition]


def _was_complete(status: Tree, progress: Tree | None) -> bool:
    has_no_old = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    return has_no_old and progress is not None and progress.get("reason") == AVAILABLE


def _has_progressed(before: Tree, status: Tree) -> bool:
    number = tree_fields.number
    old_before = number(before, "replicas") - number(before, "updatedReplicas")
    old_now = number(status, "replicas") - number(status, "updatedReplicas")
    growing = ("updatedReplicas", "readyReplicas", "availableReplicas")
    has_grown = any(number(status, field) > number(before, field) for field in growing)
    return has_grown or old_now < old_before


def _is_late(rollout: Rollout, status: Tree) -> bool:
    progress = workload_conditions.condition_of(status, "Progressing")
    if progress is None or progress.get("reason") == AVAILABLE:
        return False
    if progress.get("reason") == TIMED_OUT:
        return True
    moment = _late_after(rollout.deployment, progress)
    return moment is not None and moment < rollout.now


def _late_after(deployment: Tree, progress: Tree) -> datetime.datetime | None:
    updated = timestamps.parse_or_none(progress.get("lastUpdateTime"))
    if updated is None:
        return None
    seconds = deployment["spec"]["progressDeadlineSeconds"]
    return updated + datetime.timedelta(seconds=seconds)


def _replica_failure(rollout: Rollout) -> Tree | None:
    """The first failure of a ReplicaSet to create or delete pods, the newest first."""
    new = [] if rollout.new is None else [rollout.new]
    for replica_set in (*new, *rollout.all):
        condition = workload_conditions.condition_of(
            tree_fields.mapping(replica_set, "status"), "ReplicaFailure"
        )
        if condition is not None:
            return condition | {"lastUpdateTime": condition["lastTransitionTime"]}
    return None


def _terminating(replica_sets: list[Tree]) -> int | None:
    """The pods that are ending; None while a ReplicaSet has not counted them."""
    statuses = [tree_fields.mapping(replica_set, "status") for replica_set in replica_sets]
    if not all("terminatingReplicas" in status for status in statuses):
        return None
    return sum(int(status["terminatingReplicas"]) for status in statuses)


def _condition(type_: str, state: str, reason: str, message: str, now: datetime.datetime) -> Tree:
    stamp = timestamps.to_text(now)
    return {
        "type": type_,
        "status": state,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": stamp,
    }


def _compact(status: Tree) -> Tree:
    always = () if status.get("terminatingReplicas") is None else ("terminatingReplicas",)
    return workload_conditions.compact(status, always=always)
