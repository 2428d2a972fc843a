"""The real clock. Given nothing; `now` is UTC, `monotonic` also counts the time a machine was suspended."""

from __future__ import annotations

import asyncio
import datetime
import time

# A laptop or a virtual machine that slept must notice: Linux stops CLOCK_MONOTONIC meanwhile, CLOCK_BOOTTIME not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `ports.clock.Clock` with the clocks of this machine."""

    def now(self) -> datetime.datetime:
        """The time of day in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds that only grow, through suspension too."""
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        """Lets other tasks go on for so long."""
        await asyncio.sleep(seconds)
