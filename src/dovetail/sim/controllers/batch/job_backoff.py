"""How long a Job waits before it replaces failed pods: 10 s after the first failure, doubling up to 10 minutes.

Given pods that ended and the record of earlier ones; returns the new record and the time to wait for. A success
resets it. Never waits.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.sim.controllers import pod_states, tree_fields

Tree = dict[str, Any]

BASE_SECONDS: Final = 10.0  # job.DefaultJobPodFailureBackOff
MAX_SECONDS: Final = 600.0  # job.MaxJobPodFailureBackOff
_BEGINNING: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class Backoff(NamedTuple):
    """The failures since the last success."""

    failures: int = 0
    last_failure: datetime.datetime | None = None

    def over_at(self) -> datetime.datetime | None:
        """When the next pod may start; None if there is nothing to wait for."""
        if not self.failures or self.last_failure is None:
            return None
        return self.last_failure + _delay(self.failures)


def updated(record: Backoff, succeeded: Iterable[Tree], failed: Iterable[Tree]) -> Backoff:
    """The record after more pods have ended."""
    successes = sorted(map(ended_at, succeeded))
    ends = sorted(map(ended_at, failed))
    if not successes:
        return Backoff(record.failures + len(ends), ends[-1]) if ends else record
    later = [end for end in ends if end > successes[-1]]
    return Backoff(len(later), later[-1] if later else None)


def index_over_at(failed_pod: Tree, failures_before: int) -> datetime.datetime:
    """When an index with a backoff limit of its own may be tried again."""
    return ended_at(failed_pod) + _delay(failures_before + 1)


def ended_at(pod: Tree) -> datetime.datetime:
    """When a pod ended: its last container, else when it stopped being ready, was deleted, or was created."""
    moments = (
        _last_container_end(pod),
        _unready_since(pod),
        _deleted_at(pod),
        pod_states.created_at(pod),
    )
    known = [moment for moment in moments if moment is not None]
    return known[0] if known else _BEGINNING


def _delay(failures: int) -> datetime.timedelta:
    seconds = min(BASE_SECONDS * 2 ** min(failures - 1, 16), MAX_SECONDS)
    return datetime.timedelta(seconds=seconds)


def _last_container_end(pod: Tree) -> datetime.datetime | None:
    statuses: Iterable[Tree] = tree_fields.entries(pod, "status", "containerStatuses")
    terminations = [tree_fields.mapping(status, "state", "terminated") for status in statuses]
    ends = [timestamps.parse_or_none(entry.get("finishedAt")) for entry in terminations]
    known = [end for end in ends if end is not None]
    # A container without an end is still unknown: its end may be the last one.
    return max(known) if known and len(known) == len(ends) else None


def _unready_since(pod: Tree) -> datetime.datetime | None:
    ready = pod_states.condition(pod, "Ready")
    if ready is None or ready.get("status") != "False":
        return None
    return timestamps.parse_or_none(ready.get("lastTransitionTime"))


def _deleted_at(pod: Tree) -> datetime.datetime | None:
    deletion = timestamps.parse_or_none(pod["metadata"].get("deletionTimestamp"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return None if deletion is None else deletion - datetime.timedelta(seconds=grace)
