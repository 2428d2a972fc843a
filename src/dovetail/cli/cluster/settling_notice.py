"""Says what a command waits for while the scheduler works, once that takes more than a second.

Given how many pods and workloads have their answer. Logs and pipes get no progress, only the last line where an answer
did not come. Never waits itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from dovetail.cli import output
from dovetail.tables import text

FIRST_SECONDS: Final = 1.0  # quicker answers need no words
AGAIN_SECONDS: Final = 0.5


class SettlingNotice:
    """The progress of one wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at: float | None = None
        self._due_at = 0.0
        self._width = 0  # of the longest line of progress
        self._answered = 0
        self._total = 0

    def report(self, answered: int, total: int) -> None:
        """So many have their answer; said on a terminal if it took long."""
        now = self._clock()
        if self._started_at is None:
            self._started_at, self._due_at = now, now + FIRST_SECONDS
        self._answered, self._total = answered, total
        if answered == total or now < self._due_at:
            return

        self._due_at = now + AGAIN_SECONDS
        line = f"waiting for the scheduler: {answered} of {text.counted(total, 'answer')}"
        self._width = max(self._width, len(line))
        output.progress(line)

    def finish(self) -> None:
        """The wait is over: clears the progress, and says where an answer is missing."""
        if self._width:
            output.clear_progress(self._width)
        missing = self._total - self._answered
        if missing and self._started_at is not None:
            seconds = self._clock() - self._started_at
            output.say(
                f"the scheduler has {missing} of {text.counted(self._total, 'answer')} still to give"
                f" after {seconds:.0f} s; dovetail get pods -A -w shows them as they come"
            )
