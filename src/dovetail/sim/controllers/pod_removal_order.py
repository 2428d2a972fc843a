"""Which pods a controller gives up first: those that are least far in their start, then the youngest.

Given the active pods of an owner; returns them in the order in which they should be deleted. Upstream's order:
unbound, pending, not ready, low deletion cost, many siblings on the node, ready for a short time, many restarts,
young. Never deletes.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dovetail.sim.controllers import owner_references, pod_states

Tree = dict[str, Any]
Comparison = Callable[[Tree, Tree], int]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_ORDER: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_EARLIEST: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


def ranked(pods: Sequence[Tree], related: Iterable[Tree], now: datetime.datetime) -> list[Tree]:
    """The order of a ReplicaSet. `related` are the active pods of all ReplicaSets of the same Deployment.

    Ages are compared by order of magnitude, so that the survivors are not always the oldest.
    """
    colocated = Counter(pod_states.node_of(pod) for pod in related if pod_states.is_active(pod))

    def start(pod: Tree) -> tuple[Any, ...]:
        siblings = colocated[pod_states.node_of(pod)]
        return (*_progress(pod), deletion_cost(pod), -siblings)

    def compare(one_pod: Tree, other_pod: Tree) -> int:
        by_start = _sign(start(one_pod), start(other_pod))
        return by_start or _by_age(one_pod, other_pod, now)

    return sorted(pods, key=functools.cmp_to_key(compare))


def plain(pods: Sequence[Tree]) -> list[Tree]:
    """The order of a Job: neither deletion costs nor siblings count, and the younger pod goes first."""

    def order(pod: Tree) -> tuple[Any, ...]:
        ready_seconds = _seconds(pod_states.ready_since(pod))
        created_seconds = _seconds(pod_states.created_at(pod))
        age = (-ready_seconds, -pod_states.restarts(pod), -created_seconds)
        return (*_progress(pod), *age, pod["metadata"]["name"])

    return sorted(pods, key=order)


def deletion_cost(pod: Tree) -> int:
    """What the pod's owner says its deletion costs; an unreadable number counts as zero."""
    text = owner_references.annotations_of(pod).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _progress(pod: Tree) -> tuple[bool, int, bool]:
    phase = _PHASE_ORDER.get(pod_states.phase_of(pod), 0)
    return bool(pod_states.node_of(pod)), phase, pod_states.is_ready(pod)


def _by_age(one_pod: Tree, other_pod: Tree, now: datetime.datetime) -> int:
    ready = _by_time(one_pod, other_pod, pod_states.ready_since, now)
    if ready:
        return ready
    restarts = pod_states.restarts(other_pod) - pod_states.restarts(one_pod)
    if restarts:
        return restarts
    created = _by_time(one_pod, other_pod, pod_states.created_at, now)
    return created or _sign(one_pod["metadata"]["name"], other_pod["metadata"]["name"])


def _by_time(
    one_pod: Tree,
    other_pod: Tree,
    moment_of: Callable[[Tree], datetime.datetime | None],
    now: datetime.datetime,
) -> int:
    """The younger first, where ages differ by an order of magnitude; else by uid, where they differ at all."""
    one_moment, other_moment = moment_of(one_pod), moment_of(other_pod)
    if one_moment == other_moment:
        return 0
    if one_moment is None or other_moment is None:
        return -1 if one_moment is None else 1
    difference = _magnitude(one_moment, now) - _magnitude(other_moment, now)
    return difference or _sign(one_pod["metadata"]["uid"], other_pod["metadata"]["uid"])


def _magnitude(moment: datetime.datetime, now: datetime.datetime) -> int:
    nanoseconds = (now - moment).total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _seconds(moment: datetime.datetime | None) -> float:
    # A pod without a time is deleted first, as upstream does.
    return math.inf if moment is None else (moment - _EARLIEST).total_seconds()


def _sign(one_value: Any, other_value: Any) -> int:
    return int(one_value > other_value) - int(one_value < other_value)
