"""What kubectl shows as a pod's status, readiness and restarts, worked out as the API server's printer does it.

Given a pod as a plain tree; returns words and numbers. Never changes the pod.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from dovetail.sim.rest.printing import printed_values

Tree = dict[str, Any]


class Shown(NamedTuple):
    """The cells of a pod."""

    ready: str
    status: str
    restarts: str


def shown(pod: Tree, now: datetime.datetime) -> Shown:
    """READY, STATUS and RESTARTS."""
    spec: Tree = pod.get("spec") or {}
    status: Tree = pod.get("status") or {}
    statuses: list[Tree] = status.get("containerStatuses") or []
    total = len(spec.get("containers") or ())
    ready = sum(bool(entry.get("ready") and "running" in _state(entry)) for entry in statuses)
    restarts = sum(int(entry.get("restartCount") or 0) for entry in statuses)
    word = _status(pod, status, statuses)
    return Shown(f"{ready}/{total}", word, _restarts(restarts, statuses, now))


def _status(pod: Tree, status: Tree, statuses: list[Tree]) -> str:
    word = str(status.get("reason") or status.get("phase") or printed_values.UNKNOWN)
    if _is_gated(status):
        word = "SchedulingGated"
    initialising = _initialising(pod, status)
    if initialising:
        word = initialising
    else:
        word = _containers_word(word, status, statuses)

    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return word


def _is_gated(status: Tree) -> bool:
    return any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    )


def _initialising(pod: Tree, status: Tree) -> str:
    """The word of the first init container that is not done; empty if all are."""
    declared = (pod.get("spec") or {}).get("initContainers") or ()
    sidecars = {entry["name"] for entry in declared if entry.get("restartPolicy") == "Always"}
    for index, entry in enumerate(status.get("initContainerStatuses") or ()):
        state = _state(entry)
        terminated: Tree | None = state.get("terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if entry.get("name") in sidecars and entry.get("started"):
            continue
        if terminated is not None:
            reason = terminated.get("reason") or f"ExitCode:{terminated.get('exitCode')}"
            return f"Init:{reason}"
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(declared)}"
    return ""


def _containers_word(word: str, status: Tree, statuses: list[Tree]) -> str:
    has_running = False
    for entry in reversed(statuses):
        state = _state(entry)
        waiting = (state.get("waiting") or {}).get("reason")
        terminated: Tree | None = state.get("terminated")
        if waiting:
            word = str(waiting)
        elif terminated is not None:
            signal = terminated.get("signal")
            fallback = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode')}"
            word = str(terminated.get("reason") or fallback)
        elif entry.get("ready") and "running" in state:
            has_running = True
    if word == "Completed" and has_running:
        return "Running" if _is_ready(status) else "NotReady"
    return word


def _is_ready(status: Tree) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _restarts(count: int, statuses: list[Tree], now: datetime.datetime) -> str:
    ends = [
        ((entry.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        for entry in statuses
    ]
    last = max(filter(None, ends), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({printed_values.age(last, now)} ago)"


def _state(entry: Tree) -> Tree:
    return entry.get("state") or {}
