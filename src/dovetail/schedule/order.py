"""Decides who is next: the more important first, then whom a node is kept for, then the longer waiting, then by uid.

Given the pods without a node; leaves out those that are on their way out, gated, or somebody else's. Never places.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable
from typing import Final

from dovetail.model import durations, pods

NEVER: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)  # not created yet: younger than all others

Rank = tuple[int, bool, datetime.datetime, str, str, str]


def waiting(pending: Iterable[pods.Pod], *, scheduler_names: tuple[str, ...] = ()) -> list[pods.Pod]:
    """Pods to decide about, in the order in which they choose. Without names every scheduler's pods count."""
    ours = (
        pod
        for pod in pending
        if pod.metadata.deletion_timestamp is None
        and (not scheduler_names or pod.spec.scheduler_name in scheduler_names)
    )
    return sorted(ours, key=rank)


def rank(pod: pods.Pod) -> Rank:
    """What pods are sorted by. No priority is priority 0, as the API server would write.

    Others may have been ended for a pod that a node is kept for: nobody equal to it gets what they leave.
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


@functools.lru_cache(maxsize=4096)
def instant(text: str | None) -> datetime.datetime:
    """The moment, whatever zone it was written in."""
    if text is None:
        return NEVER
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:  # such as the 30th of February
        return NEVER
    return moment if moment.tzinfo is None else durations.in_utc(moment)
