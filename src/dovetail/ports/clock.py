"""Time, as loops see it: real, or simulated in tests."""

from __future__ import annotations

import datetime
from typing import Protocol


class Clock(Protocol):
    """`now` is for people and objects, `monotonic` for measuring and deadlines."""

    def now(self) -> datetime.datetime:
        """The time of day, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Lets others go on for so long."""
        ...
