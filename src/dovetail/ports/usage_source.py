"""A source of measurements for history: Prometheus, a script in tests."""

from __future__ import annotations

from typing import Protocol

from dovetail.model.accounting.records import Millis, Records


class UsageSource(Protocol):
    """May raise as any external service does; the caller asks for the same time again later."""

    async def usage_between(self, start: Millis, end: Millis, known: Records) -> Records:
        """What was measured between two full minutes, cut at full minutes; and the gaps, as far as they are known.

        `known` has the assets and allocations of that time: measurements are attributed to them. Asked again, it
        returns the same, or more.
        """
        ...
