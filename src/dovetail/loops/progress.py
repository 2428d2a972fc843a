"""Decides whether scheduling makes progress: pods wait to be decided about, and answers keep coming.

Outlives a tenure: a scheduler that is elected, decides, loses the lease and begins again answers no pod either. State
in, state out; time is given. Never decides about pods.
"""

from __future__ import annotations

from typing import Final

STALLED_SECONDS: Final = 60.0  # longer than the longest backoff of a pod, and than any turn takes


class Progress:
    """Since when pods wait for an answer and none has come."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None

    def look(self, now: float, *, is_work_ready: bool) -> None:
        """Notes whether there is anything to decide or to begin writing."""
        if not is_work_ready:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now

    def answered(self, now: float) -> None:
        """A pod was bound, or a turn ended with a definite answer for at least one pod."""
        if self._waiting_since is not None:
            self._waiting_since = now

    def stalled_seconds(self, now: float) -> float:
        """For how long pods have been waiting without any answer; 0 where none waits."""
        return 0.0 if self._waiting_since is None else max(0.0, now - self._waiting_since)

    def is_stalled(self, now: float) -> bool:
        """Whether that is longer than any load explains."""
        return self.stalled_seconds(now) > STALLED_SECONDS
