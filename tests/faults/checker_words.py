"""A pod is told once why it waits, and again only when the reason is another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.faults.checker_scene import Judge, Scene, Step, Violation

REFUSAL: Final = "FailedScheduling"


class Words:
    """Remembers the last refusal told to each pod."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._last: dict[str, str] = {}

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges new events."""
        if step.revision.kind != "events" or step.before is not None or step.after is None:
            return
        if step.revision.writer not in self._judge.ours or step.after.get("reason") != REFUSAL:
            return
        pod = step.after["involvedObject"]["uid"]
        text = step.after.get("message", "")
        if self._last.get(pod) == text:
            yield step.violates("noisy", f"told again: {text}")
        self._last[pod] = text

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing."""
        return iter(())
