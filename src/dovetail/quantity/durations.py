"""Reads durations as people write them: 90s, 10m, 2h, 1h30m, 1.5h, 1:30:00, 2-12:00:00, or plain seconds.

Given text, returns whole seconds or None. Adds durations to times, and stops where the calendar ends: user input can
hold numbers beyond any calendar. Never raises.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

LONGEST_SECONDS: Final = 100 * 365 * 24 * 3600  # a century: longer durations are not meant
FIRST: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)  # where the calendar begins
LAST: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)  # and where it ends
_UNITS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|[dhms])"
_PARTS: Final = re.compile(rf"(?:{_PART})+", re.ASCII)
_ONE: Final = re.compile(_PART, re.ASCII)
_CLOCK: Final = re.compile(
    r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5]?[0-9])(?::([0-5]?[0-9]))?", re.ASCII
)
_PLAIN: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


def seconds(text: str) -> int | None:
    """Whole seconds, rounded up; None where the text is no duration. `1:30:00` and `1:30` are hours first."""
    written = text.strip()
    if _PLAIN.fullmatch(written):
        return _bounded(float(written))
    if clock := _CLOCK.fullmatch(written):
        days, hours, minutes, seconds_left = (int(part or 0) for part in clock.groups())
        return _bounded(days * 86_400 + hours * 3600 + minutes * 60 + seconds_left)
    if _PARTS.fullmatch(written):
        return _bounded(sum(float(number) * _UNITS[unit] for number, unit in _ONE.findall(written)))
    return None


def at_most(amount: int | None) -> int | None:
    """The seconds, but no more than a century."""
    return None if amount is None else min(amount, LONGEST_SECONDS)


def later(moment: datetime.datetime, amount: float) -> datetime.datetime:
    """The time so many seconds later, or earlier if they are negative; the calendar's end where it is beyond."""
    try:
        return moment + datetime.timedelta(seconds=amount)
    except OverflowError:
        return LAST if amount > 0 else FIRST


def earlier(moment: datetime.datetime, amount: float) -> datetime.datetime:
    """The time so many seconds earlier; the calendar's beginning where it is before that."""
    return later(moment, -amount)


def in_utc(moment: datetime.datetime) -> datetime.datetime:
    """The same time in UTC; the nearer end of the calendar where that is beyond it."""
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        return FIRST if moment.year < datetime.MAXYEAR else LAST


def _bounded(amount: float) -> int | None:
    whole = int(-(-amount // 1))
    return whole if whole <= LONGEST_SECONDS else None
