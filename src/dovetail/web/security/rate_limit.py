"""A token bucket per user: so many requests at once, so many more each second.

Given a key and a clock. Full buckets are forgotten, so that memory is bounded by users that ask now. Never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

MOST_BUCKETS: Final = 10_000


class Rate(NamedTuple):
    """What one user may ask for."""

    at_once: float
    each_second: float


USERS: Final = Rate(120, 30)
STRANGERS: Final = Rate(20, 1)  # failed attempts to sign in, per address


class RateLimit:
    """The buckets of all users."""

    def __init__(self, rate: Rate, monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and at which time

    def wait_seconds(self, key: str, *, cost: float = 1.0) -> float:
        """Takes from the bucket: 0. If there is too little in it, how long until there is enough; nothing is taken."""
        now = self._monotonic()
        left = self._left(key, now)
        if left < cost:
            return (cost - left) / self._rate.each_second
        if len(self._buckets) >= MOST_BUCKETS:
            self._forget_full(now)
        self._buckets[key] = (left - cost, now)
        return 0.0

    def is_empty(self, key: str) -> bool:
        """Whether nothing is left."""
        return self._left(key, self._monotonic()) < 1.0

    def _left(self, key: str, now: float) -> float:
        left, since = self._buckets.get(key, (self._rate.at_once, now))
        return min(self._rate.at_once, left + (now - since) * self._rate.each_second)

    def _forget_full(self, now: float) -> None:
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if self._left(key, now) < self._rate.at_once
        }
