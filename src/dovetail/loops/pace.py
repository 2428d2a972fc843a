"""Decides when everything that waits is asked about as a whole: after news, at an hour, and not too often.

A turn about everything may take long, so the time between two grows with what the last one took. State in, answers
out; time is given. Never decides about pods.
"""

from __future__ import annotations

import math
from typing import Final

SHARE: Final = 0.25  # of the time may go into such turns, as long as they follow each other


class Pace:
    """Whether a turn is wanted, and when it may be taken."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._hour = math.inf  # when time alone changes the answer
        self._not_before = 0.0
        self._is_wanted = False

    def want(self) -> None:
        """Something happened."""
        self._is_wanted = True

    def is_due(self, now: float) -> bool:
        """Whether a turn is wanted by now."""
        return self._is_wanted or now >= self._hour

    @property
    def hour(self) -> float:
        """When the next turn is wanted: at once, at an hour, or never."""
        return 0.0 if self._is_wanted else self._hour

    def rest(self, now: float) -> float:
        """For how long the next turn has to wait."""
        return max(0.0, self._not_before - now)

    def wake_by(self, now: float, *, wake_after: float | None) -> None:
        """After so many seconds time alone would change the answer for some of those who wait: earlier hours stay."""
        if wake_after is not None:
            self._hour = min(self._hour, now + max(wake_after, self._pause))

    def took(self, began: float, ended: float, *, wake_after: float | None, is_partial: bool = False) -> None:
        """A turn was taken; after so many seconds time alone would change the answer.

        A turn that was about a part of those who wait says nothing about the hours of the others.
        """
        self._is_wanted = False
        if not is_partial or self._hour <= ended:
            self._hour = math.inf
        self.wake_by(ended, wake_after=wake_after)
        self._not_before = ended + max(self._pause, (ended - began) * (1 / SHARE - 1))
