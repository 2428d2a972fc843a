"""Tells owners which of their annotations are left out, and why: an event on a pod of theirs that waits.

Given pods that wait and what is known about their gangs. Once per namespace and complaint, however many pods repeat it.
Never holds a pod back.
"""

from __future__ import annotations

from typing import Final

from dovetail.loops import tell
from dovetail.model import pods
from dovetail.world import events
from dovetail.world.world import World

REASON: Final = "AnnotationIgnored"
MOST_REMEMBERED: Final = 1_000


class Complaints:
    """What was complained about already."""

    def __init__(self, world: World, teller: tell.Teller) -> None:
        self._world = world
        self._teller = teller
        self._told: set[tuple[str, tuple[str, ...]]] = set()

    def about(self, pod: pods.Pod) -> None:
        """A pod waits: says what it, or its owner, asks for in vain."""
        problems = self._world.gangs.problems(events.pod_id(pod))
        complaint = (pod.metadata.namespace, problems)
        if not problems or complaint in self._told:
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told.add(complaint)
        self._teller.about_pod(pod, reason=REASON, note="; ".join(problems), kind="Warning")
