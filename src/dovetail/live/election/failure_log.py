"""Decides which failures of a long row are logged: the first at once, the next ones with growing pauses.

Given the time of each failure. Trying again is the caller's and goes on at its own pace. Never logs anything itself.
"""

from __future__ import annotations

import math
from typing import Final

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class FailureLog:
    """The failures since the last success."""

    def __init__(self) -> None:
        self.failures_in_a_row = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._due_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Counts a failure. Whether it is to be logged."""
        self.failures_in_a_row += 1
        if now < self._due_at:
            return False
        self._due_at = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        return True

    def succeeded(self) -> None:
        """Ends the row: the next failure is logged at once."""
        self.failures_in_a_row = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._due_at = -math.inf
