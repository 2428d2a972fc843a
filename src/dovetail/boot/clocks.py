"""The system clock: `now` is UTC, `monotonic` includes the time the machine was suspended."""

from __future__ import annotations

import asyncio
import datetime
import time

# A suspended machine must notice the gap: on Linux CLOCK_MONOTONIC stops meanwhile, CLOCK_BOOTTIME does not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `ports.clock.Clock` with the clocks of this machine."""

    def now(self) -> datetime.datetime:
        """The time of day in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds that only grow, suspension included."""
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        """Suspends the task for this many seconds."""
        await asyncio.sleep(seconds)
