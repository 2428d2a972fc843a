"""What a pod's status says to a controller: active, ready, available, terminating, finished, and since when.

Given pods as trees and the time. The rules are those of kube-controller-manager. Never changes a pod.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

from dovetail import timestamps
from dovetail.sim.controllers import tree_fields

Tree = dict[str, Any]

TERMINAL_PHASES: Final = ("Succeeded", "Failed")


def phase_of(pod: Tree) -> str:
    """The phase; empty for a pod that was never stored."""
    status = pod.get("status")
    return str(status.get("phase", "")) if status else ""


def node_of(pod: Tree) -> str:
    """The node a pod is bound to; empty while there is none."""
    return str(pod["spec"].get("nodeName") or "")


def is_finished(pod: Tree) -> bool:
    """Whether all containers have ended for good."""
    return phase_of(pod) in TERMINAL_PHASES


def is_deleted(pod: Tree) -> bool:
    """Whether deletion was requested."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_active(pod: Tree) -> bool:
    """Whether a controller counts the pod as a replica."""
    return not is_finished(pod) and not is_deleted(pod)


def is_terminating(pod: Tree) -> bool:
    """Whether the pod was deleted and may still run."""
    return is_deleted(pod) and not is_finished(pod)


def condition(pod: Tree, type_: str) -> Tree | None:
    """A condition of the pod."""
    conditions: Iterable[Tree] = tree_fields.entries(pod, "status", "conditions")
    for entry in conditions:
        if entry.get("type") == type_:
            return entry
    return None


def is_ready(pod: Tree) -> bool:
    """Whether the pod has the condition Ready."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def ready_since(pod: Tree) -> datetime.datetime | None:
    """When the pod became ready; None if it is not, or does not say."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return timestamps.parse_or_none(ready.get("lastTransitionTime"))


def available_at(pod: Tree, min_ready_seconds: int) -> datetime.datetime | None:
    """When a ready pod has been ready for long enough; None if that cannot be said."""
    since = ready_since(pod)
    if since is None:
        return None
    return since + datetime.timedelta(seconds=min_ready_seconds)


def is_available(pod: Tree, min_ready_seconds: int, now: datetime.datetime) -> bool:
    """Whether the pod has been ready for the required time."""
    if not is_ready(pod):
        return False
    if not min_ready_seconds:
        return True
    moment = available_at(pod, min_ready_seconds)
    return moment is not None and moment <= now


def next_availability(
    pods: Iterable[Tree], min_ready_seconds: int, now: datetime.datetime
) -> datetime.datetime | None:
    """The first time at which a pod that is ready now becomes available."""
    moments = [available_at(pod, min_ready_seconds) for pod in pods]
    coming = [moment for moment in moments if moment is not None and moment > now]
    return min(coming, default=None)


def created_at(tree: Tree) -> datetime.datetime | None:
    """The time of creation."""
    return timestamps.parse_or_none(tree["metadata"].get("creationTimestamp"))


def restarts(pod: Tree) -> int:
    """The highest number of restarts of a container."""
    statuses = tree_fields.entries(pod, "status", "containerStatuses")
    return max((tree_fields.number(status, "restartCount") for status in statuses), default=0)
