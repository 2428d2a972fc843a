"""Reports ignored annotations, and why, as an event on a pending pod of their owner.

Given pending pods and the problems of their gangs. Once per namespace and problem, however many pods repeat it. Never
holds a pod back.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.live.report import recorder
from dovetail.world import events
from dovetail.world.world import World

REASON: Final = "AnnotationIgnored"
MAX_REMEMBERED: Final = 1_000


class AnnotationEvents:
    """Remembers the problems that were reported."""

    def __init__(self, world: World, reports: recorder.Recorder) -> None:
        self._world = world
        self._recorder = reports
        self._reported: set[tuple[str, tuple[str, ...]]] = set()

    def report(self, pod: pods.Pod) -> None:
        """Reports the annotations of a pending pod, or of its owner, that are ignored."""
        problems = self._world.gangs.problems(events.pod_id(pod))
        report = (pod.metadata.namespace, problems)
        if not problems or report in self._reported:
            return
        if len(self._reported) >= MAX_REMEMBERED:
            self._reported.clear()
        self._reported.add(report)
        self._recorder.record_pod_event(
            pod, reason=REASON, note="; ".join(problems), kind="Warning"
        )
