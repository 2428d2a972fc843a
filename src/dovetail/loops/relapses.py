"""Pods over whose writes tenures ended by a mistake of ours: each waits before it is tried again, longer each time.

Kept over all tenures of a process. What was being written when a tenure failed is known by pod; the other pods of the
next tenure start before it is tried again. Never decides where a pod goes, never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

SAID: Final = "an error inside the scheduler keeps it from starting this pod; its log says which"
FIRST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 10_000


class _Relapse(NamedTuple):
    times: int
    until: float


class Relapses:
    """By uid of a pod, how often a tenure ended over it, and when it may be tried again."""

    def __init__(self) -> None:
        self._known: dict[str, _Relapse] = {}

    def failed(self, uids: Iterable[str], now: float) -> None:
        """A tenure ends over the writes for these pods."""
        for uid in uids:
            count = self._known.pop(uid, _Relapse(0, 0.0)).times + 1
            seconds = min(FIRST_SECONDS * float(1 << min(count - 1, 16)), LONGEST_SECONDS)
            self._known[uid] = _Relapse(count, now + seconds)
        while len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]

    def until(self, uid: str, now: float) -> float | None:
        """Until when the pod is not tried; None where it may be."""
        relapse = self._known.get(uid)
        return relapse.until if relapse is not None and now < relapse.until else None
