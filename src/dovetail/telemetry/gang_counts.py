"""Counts the pods of gangs as pods come, change and go: pending and running, and how many must run together.

Given pods one at a time, and gangs as their owners declare them; the same index as the scheduler's says which pod
belongs to which gang. Pods alone are no gangs, and finished pods count for nothing. Never decides whether a gang may
start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.model.exposition import Family, Series
from dovetail.world import events, gang_index

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


class GangCounts:
    """Members by gang. Also receives the gangs that owners of pods declare."""

    def __init__(self) -> None:
        self._index = gang_index.GangIndex()
        self._members: dict[str, _Member] = {}  # by pod id
        self._declared: set[gangs.GangKey] = set()

    # Pods

    def changed(self, pod: pods.Pod) -> None:
        """A pod as it is now."""
        if pod.status.phase in pods.TERMINAL_PHASES:
            self.deleted(pod)
            return
        created = pod.metadata.creation_timestamp
        at = timestamps.parse_as_utc(created).timestamp() if created else 0.0
        pod_id = events.pod_id(pod)
        self._members[pod_id] = _Member(RUNNING if pod.spec.node_name else PENDING, at)
        self._index.put_pod(pod_id, pod)

    def deleted(self, pod: pods.Pod) -> None:
        """A pod that is gone."""
        pod_id = events.pod_id(pod)
        if self._members.pop(pod_id, None) is not None:
            self._index.put_pod(pod_id, None)

    def clear(self) -> None:
        """Before a complete list of pods."""
        for pod_id in self._members:
            self._index.put_pod(pod_id, None)
        self._members.clear()

    # Series

    def series(self) -> Iterator[Series]:
        """Of gangs with two members and more, or that should have them."""
        shared = filter(gangs.is_shared, self._index.keys())
        for key in shared:
            members = [self._members[pod_id] for pod_id in self._index.members(key)]
            min_pods = least_pods(self._index.definition(key))
            if len(members) < 2 and min_pods < 2:
                continue
            labels = {"namespace": key[0], "gang": key[1]}
            running = sum(member.state == RUNNING for member in members)
            yield Series("dovetail_gang_pods", labels | {"state": RUNNING}, running)
            yield Series("dovetail_gang_pods", labels | {"state": PENDING}, len(members) - running)
            if min_pods:
                yield Series("dovetail_gang_min_pods", labels, min_pods)
            created = min(member.created for member in members)
            yield Series("dovetail_gang_created_timestamp_seconds", labels, created)

    def put_gang(self, gang: gangs.Gang, *, is_there: bool) -> None:
        """A gang as its owner declares it, or one whose owner is gone."""
        key = events.key_of(gang)
        (self._declared.add if is_there else self._declared.discard)(key)
        self._index.put(key, gang if is_there else None)

    def replace_gangs(self, declared: Iterable[gangs.Gang]) -> None:
        """These are all declared gangs."""
        present = {events.key_of(gang): gang for gang in declared}
        for key in self._declared - present.keys():
            self._index.put(key, None)
        for key, gang in present.items():
            self._index.put(key, gang)
        self._declared = set(present)


class GangReceiver:
    """Passes what the watch of owners builds on to the counts: implements `live.informer.informer.Receiver`."""

    def __init__(self, counts: GangCounts) -> None:
        self._counts = counts

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """All gangs."""
        self._counts.replace_gangs(objects)

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """A gang appeared or changed."""
        self._counts.put_gang(object_, is_there=True)

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """A gang is gone."""
        self._counts.put_gang(object_, is_there=False)


def least_pods(gang: gangs.Gang) -> int:
    """The fewest pods with which every group has what it needs."""
    return _least(gang.groups, None, gang.min_groups)


def _least(groups: tuple[gangs.Group, ...], parent: str | None, needed: int) -> int:
    """Of the groups below one, as many as it needs, the smallest first."""
    sizes = sorted(
        _least(groups, group.name, group.min) if group.holds_groups else group.min
        for group in groups
        if group.parent == parent
    )
    return sum(sizes[:needed])
