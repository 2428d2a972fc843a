"""Start times for people: the local time, with the date unless it is today, and how long until then.

Given times. Returns text. Never reads a clock.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.tables import text

UNKNOWN: Final = "?"


def clock_time(instant: datetime.datetime | None, now: datetime.datetime) -> str:
    """The time in the local zone, with the date unless it is today."""
    if instant is None:
        return UNKNOWN
    local_time, local_now = instant.astimezone(), now.astimezone()
    is_today = local_time.date() == local_now.date()
    return local_time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def until(instant: datetime.datetime | None, now: datetime.datetime) -> str:
    """How long until then: `now`, `40s`, `2h5m`; empty where the time is not known."""
    if instant is None:
        return ""
    return "now" if instant <= now else text.age(now.isoformat(), instant)
