"""An event says once why a pod waits, and again only when the reason was another meanwhile.

Events may get lost, conditions do not: words that come twice in a row are noise only if the condition never said
anything else in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.faults import checker_scene
from tests.faults.checker_scene import Judge, Scene, Step, Violation
from tests.faults.records import Tree

REFUSAL: Final = "FailedScheduling"


class Words:
    """Remembers the last refusal reported for each pod."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._last: dict[
            str, str
        ] = {}  # pod identity -> words, "" once the condition said something else

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges new events."""
        if step.after is None:
            return
        if step.revision.kind == "pods":
            uid = checker_scene.uid_of(step.after)
            if self._last.get(uid) and _condition(step.after) != self._last[uid]:
                self._last[uid] = ""
            return
        if step.revision.kind != "events" or step.before is not None:
            return
        if step.revision.writer not in self._judge.ours or step.after.get("reason") != REFUSAL:
            return
        uid, text = step.after["involvedObject"]["uid"], step.after.get("message", "")
        if text and self._last.get(uid) == text:
            yield step.violates("noisy", f"reported again: {text}")
        self._last[uid] = text

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing."""
        return iter(())


def _condition(pod: Tree) -> str:
    listed = (pod.get("status") or {}).get("conditions") or ()
    return next((item.get("message", "") for item in listed if item["type"] == "PodScheduled"), "")
