"""Notices when one piece of work blocks the main event loop, and says where.

Given a clock and metrics. `measure` runs on the main loop and notes each turn; `watch` runs on another loop, because a
blocked loop cannot report itself. Never ends the work that blocks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

from dovetail.boot import background_loop
from dovetail.ports import clock, meter

LOG = logging.getLogger("dovetail.scheduler")
LAG_SECONDS: Final = 0.02
ALIVE_SECONDS: Final = 30.0  # blocked for longer: unhealthy, the lease is not renewed
HELD_SECONDS: Final = 2.0  # blocked for longer: logged, and not ready
WATCH_SECONDS: Final = 0.5


class MainLoopWatch:
    """How long the main loop has been blocked. Other threads read single values that the main loop sets."""

    def __init__(self, clock_: clock.Clock, meter_: meter.Meter) -> None:
        self._clock = clock_
        self._meter = meter_
        self._turned = clock_.monotonic()  # when the main loop last made a turn
        self._thread = threading.get_ident()

    @property
    def held_seconds(self) -> float:
        """Since the last turn of the main loop."""
        return self._clock.monotonic() - self._turned

    def is_alive(self) -> bool:
        """Whether the main loop still turns."""
        return self.held_seconds < ALIVE_SECONDS

    def is_responsive(self) -> bool:
        """Whether it turns often enough to be ready for work."""
        return self.held_seconds < HELD_SECONDS

    async def measure(self) -> None:
        """On the main loop: measures how long other work blocked it, which is the delay of an event."""
        self._thread = threading.get_ident()
        while True:
            started = self._clock.monotonic()
            await asyncio.sleep(LAG_SECONDS)
            self._turned = self._clock.monotonic()
            blocked_seconds = max(0.0, self._turned - started - LAG_SECONDS)
            self._meter.observe("dovetail_loop_blocked_seconds", blocked_seconds)

    async def watch(self) -> None:
        """On another loop: logs when one piece of work blocks the main loop, and where."""
        is_reported = False
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            seconds = self.held_seconds
            is_held = seconds > HELD_SECONDS
            self._meter.gauge(
                "dovetail_loop_held_seconds", seconds if seconds > WATCH_SECONDS else 0.0
            )
            if is_held and not is_reported:
                LOG.warning(
                    "loop.blocked: one piece of work blocks the event loop",
                    extra={"seconds": seconds, "at": background_loop.stack_of(self._thread)},
                )
            is_reported = is_held
