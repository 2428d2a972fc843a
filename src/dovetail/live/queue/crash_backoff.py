"""Backoff for pods whose writes made a tenure fail: each waits longer after every such failure.

Kept across all tenures of a process, so that the pods of the next tenure start before the one that may
make it fail again. Given pod uids and the time. Never decides where a pod goes, never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MESSAGE: Final = "an error inside the scheduler keeps it from starting this pod; its log says which"
FIRST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 10_000


class _Relapse(NamedTuple):
    times: int
    until: float


class CrashBackoff:
    """By pod uid: how many tenures failed over it, and when it may be tried again."""

    def __init__(self) -> None:
        self._by_uid: dict[str, _Relapse] = {}

    def failed(self, uids: Iterable[str], now: float) -> None:
        """A tenure ends because of the writes for these pods."""
        for uid in uids:
            count = self._by_uid.pop(uid, _Relapse(0, 0.0)).times + 1
            seconds = min(FIRST_SECONDS * float(1 << min(count - 1, 16)), LONGEST_SECONDS)
            self._by_uid[uid] = _Relapse(count, now + seconds)
        while len(self._by_uid) > MOST_REMEMBERED:
            del self._by_uid[next(iter(self._by_uid))]

    def until(self, uid: str, now: float) -> float | None:
        """When the pod may be tried again; None if it may be tried now."""
        relapse = self._by_uid.get(uid)
        return relapse.until if relapse is not None and now < relapse.until else None
