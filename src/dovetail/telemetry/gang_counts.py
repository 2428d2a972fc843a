"""Counts the pods of gangs as pods come, change and go: pending and running, and how many must run together.

Given pods one at a time; each event costs a few look-ups, however many pods there are. Pods alone are no gangs, and
finished pods count for nothing. Never decides whether a gang may start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.model.exposition import Family, Series

FAMILIES: Final = (
    Family("dovetail_gang_pods", "gauge", "Pods of a gang of two and more, by state."),
    Family("dovetail_gang_min_pods", "gauge", "How many pods of the gang must run together."),
    Family(
        "dovetail_gang_created_timestamp_seconds",
        "gauge",
        "When the first pod of the gang was created, in seconds since 1970.",
    ),
)
PENDING: Final = "pending"
RUNNING: Final = "running"


class _Member(NamedTuple):
    state: str
    created: float
    min_pods: int


class GangCounts:
    """Members by gang."""

    def __init__(self) -> None:
        self._gangs: dict[gangs.GangKey, dict[str, _Member]] = {}
        self._gang_of: dict[str, gangs.GangKey] = {}

    def changed(self, pod: pods.Pod) -> None:
        """A pod as it is now."""
        self.deleted(pod)
        seat = gangs.membership(pod)
        is_over = pod.status.phase in pods.TERMINAL_PHASES
        if is_over or seat == gangs.lone_membership(pod):
            return
        uid = _identity(pod)
        state = RUNNING if pod.spec.node_name else PENDING
        created = pod.metadata.creation_timestamp
        at = timestamps.parse_as_utc(created).timestamp() if created else 0.0
        least = pod.metadata.labels.get(gangs.MIN_LABEL, "")
        min_pods = int(least) if least.isdecimal() and len(least) < 10 else 0
        self._gangs.setdefault(seat.gang, {})[uid] = _Member(state, at, min_pods)
        self._gang_of[uid] = seat.gang

    def deleted(self, pod: pods.Pod) -> None:
        """A pod that is gone."""
        uid = _identity(pod)
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            members = self._gangs[gang]
            del members[uid]
            if not members:
                del self._gangs[gang]

    def clear(self) -> None:
        """Before a complete list."""
        self._gangs.clear()
        self._gang_of.clear()

    def series(self) -> Iterator[Series]:
        """Of gangs with two members and more, or that should have them."""
        for (namespace, name), members in self._gangs.items():
            min_pods = max(member.min_pods for member in members.values())
            if len(members) < 2 and min_pods < 2:
                continue
            labels = {"namespace": namespace, "gang": name}
            running = sum(member.state == RUNNING for member in members.values())
            yield Series("dovetail_gang_pods", labels | {"state": RUNNING}, running)
            yield Series("dovetail_gang_pods", labels | {"state": PENDING}, len(members) - running)
            if min_pods:
                yield Series("dovetail_gang_min_pods", labels, min_pods)
            created = min(member.created for member in members.values())
            yield Series("dovetail_gang_created_timestamp_seconds", labels, created)


def _identity(pod: pods.Pod) -> str:
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
