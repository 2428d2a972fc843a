"""Decides whether scheduling makes progress: pods wait for a decision, and answers keep coming.

Outlives a tenure: a scheduler that is elected, decides, loses the lease and starts again answers no pod
either. State in, state out; the time is given. Never decides about pods.
"""

from __future__ import annotations

from typing import Final

STALLED_SECONDS: Final = 60.0  # longer than any pod's backoff, and than any cycle takes


class Progress:
    """Since when pods have waited without an answer to any of them."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None

    def look(self, now: float, *, is_work_ready: bool) -> None:
        """Records whether there is anything to decide or to begin writing."""
        if not is_work_ready:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now

    def answered(self, now: float) -> None:
        """A pod was bound, or a cycle ended with a definite answer for at least one pod."""
        if self._waiting_since is not None:
            self._waiting_since = now

    def stalled_seconds(self, now: float) -> float:
        """How long pods have waited without any answer; 0 if none waits."""
        return 0.0 if self._waiting_since is None else max(0.0, now - self._waiting_since)

    def is_stalled(self, now: float) -> bool:
        """Whether that is longer than load can explain."""
        return self.stalled_seconds(now) > STALLED_SECONDS
