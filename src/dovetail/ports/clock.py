"""The clock the scheduler uses: real, or simulated in tests."""

from __future__ import annotations

import datetime
from typing import Protocol


class Clock(Protocol):
    """`now` is for people and objects, `monotonic` for measuring and deadlines."""

    def now(self) -> datetime.datetime:
        """The time of day, with a time zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspends the task for this many seconds."""
        ...
