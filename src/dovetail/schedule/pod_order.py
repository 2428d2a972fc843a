"""Decides which pod is next: by priority, then nominated pods, then the longest waiting, then by uid.

Given pods without a node; leaves out those that are being deleted or belong to another scheduler. Never places.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

from dovetail import cache, timestamps
from dovetail.kubetypes.core import pods
from dovetail.quantity import durations

NEVER: Final = datetime.datetime.max.replace(
    tzinfo=datetime.UTC
)  # not created yet: younger than all others

Rank = tuple[int, bool, datetime.datetime, str, str, str]


def waiting(
    pending: Iterable[pods.Pod], *, scheduler_names: tuple[str, ...] = ()
) -> list[pods.Pod]:
    """Pods to decide about, in order. Without names the pods of every scheduler count."""
    ours = (
        pod
        for pod in pending
        if pod.metadata.deletion_timestamp is None
        and (not scheduler_names or pod.spec.scheduler_name in scheduler_names)
    )
    return sorted(ours, key=rank)


def rank(pod: pods.Pod) -> Rank:
    """What pods are sorted by. No priority is priority 0, as the API server would write.

    Pods may have been evicted for a nominated pod: no pod of equal priority gets the room they left.
    """
    metadata = pod.metadata
    return (
        -(pod.spec.priority or 0),
        not pod.status.nominated_node_name,
        instant(metadata.creation_timestamp),
        metadata.uid,
        metadata.namespace,
        metadata.name,
    )


@cache.remembered(4096)
def instant(text: str | None) -> datetime.datetime:
    """The time, whatever zone it was written in."""
    if text is None:
        return NEVER
    try:
        time = timestamps.parse(text)
    except ValueError:  # such as the 30th of February
        return NEVER
    return time if time.tzinfo is None else durations.in_utc(time)
