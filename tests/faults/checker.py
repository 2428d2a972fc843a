"""Judges a recorded run: did the scheduler ever do harm, at any revision, whatever was done to it.

Reads a history from its first revision to its last and returns what is wrong with revision numbers. Shares no code
with the package under test. What others wrote is not held against the scheduler, unless it had been there to see for
longer than `Bounds.visible` when the scheduler wrote against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from tests.faults import (
    checker_devices,
    checker_gangs,
    checker_lead,
    checker_leaks,
    checker_pods,
    checker_words,
)
from tests.faults.checker_scene import Bounds, Judge, Scene, Step, Violation
from tests.faults.records import History

RULES: Final[dict[str, str]] = {
    "over-allocated": "a device, counter or capacity is given out more than once by our writes",
    "stale": "a device or node is used that had been gone, tainted or closed for long",
    "unreserved": "a claim stays allocated without a user",
    "hoarded": "a pod that is not bound keeps devices",
    "unexplained": "a pod is neither placed nor has a reason why not",
    "leaked": "a claim outlives its pod, or is held by one that is gone",
    "unready": "a pod was bound before its claims were allocated on the node and reserved for it",
    "overcommitted": "a node's resources are promised twice",
    "beside": "two pods that cannot share a node are bound to it: a host port, or anti-affinity",
    "half-bound": "a gang that never ran stays bound below its minimum",
    "apart": "a pod of a gang was bound before the claims of enough others had their devices",
    "greedy": "more pods were made to yield to a gang than it could have needed",
    "in vain": "pods yielded to a gang that then did not start",
    "moved": "a pod is bound again, or one that asks for another scheduler",
    "changed": "an allocation changes in place, or is taken from a pod that runs",
    "noisy": "the same refusal is reported twice in a row",
    "two leaders": "an instance writes while another leads, or none does",
    "incomplete": "the history has gaps and proves nothing",
}


class Rule(Protocol):
    """Looks at one step after the other, then at the end."""

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """What this step breaks. The scene is the cluster after it."""
        ...

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """What is wrong with how things were left."""
        ...


def violations(history: History, judge: Judge, *, bounds: Bounds | None = None) -> list[Violation]:
    """Everything that is wrong; empty for a run without harm."""
    limits = bounds or Bounds()
    scene = Scene()
    rules: list[Rule] = [
        checker_devices.Devices(judge, limits),
        checker_pods.Bindings(judge, limits),
        checker_pods.Allocations(judge),
        checker_leaks.Leaks(judge, limits),
        checker_gangs.Gangs(judge, limits),
        checker_lead.Leaders(judge),
        checker_words.Words(judge),
    ]
    result = [Violation("incomplete", 0, gap) for gap in history.gaps]
    for revision in history.revisions:
        step = scene.apply(revision)
        for rule in rules:
            result += rule.see(step, scene)
    for rule in rules:
        result += rule.end(scene, history.ended)
    return result
