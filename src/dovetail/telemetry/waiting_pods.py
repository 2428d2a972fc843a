"""Counts pods that wait for a node, by the reason in their condition PodScheduled.

Given pods one at a time. Pods that no scheduler has looked at yet have no reason, and are not counted. Never decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.model.exposition import Family, Series
from dovetail.world import events

FAMILIES: Final = (
    Family("dovetail_waiting_pods", "gauge", "Pods that wait for a node, by the reason they have."),
)
SCHEDULED: Final = "PodScheduled"
MOST_REASONS: Final = 50  # other writers may invent any number
OTHER: Final = "other"


class WaitingPods:
    """Reasons by pod."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def changed(self, pod: pods.Pod) -> None:
        """A pod as it is now."""
        self.deleted(pod)
        if pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
            return
        for condition in pod.status.conditions:
            if condition.type == SCHEDULED and condition.status == "False" and condition.reason:
                self._reasons[events.pod_id(pod)] = condition.reason

    def deleted(self, pod: pods.Pod) -> None:
        """A pod that is gone."""
        self._reasons.pop(events.pod_id(pod), None)

    def clear(self) -> None:
        """Before a complete list."""
        self._reasons.clear()

    def series(self) -> Iterator[Series]:
        """The most common reasons, the others together."""
        counts = Counter(self._reasons.values()).most_common()
        shown, others = counts[:MOST_REASONS], counts[MOST_REASONS:]
        if others:
            shown.append((OTHER, sum(count for _, count in others)))
        for reason, count in sorted(shown):
            yield Series("dovetail_waiting_pods", {"reason": reason}, count)
