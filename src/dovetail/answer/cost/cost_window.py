"""The window of a cost question and its steps, in the words that OpenCost's users know.

Given text and the time of the question: `today`, `7d`, `7d offset 1d`, a pair of RFC 3339 times or of Unix seconds.
All days are UTC. Days and weeks end with the current day, so that `7d` is today and the six days before it. Steps are
counted backward from the end; the first may be shorter. Never reads a clock.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import errors, timestamps
from dovetail.model.accounting import records

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
MOST_STEPS: Final = 10_000  # ours; a year of hours has 8,760
FIRST: Final = 0  # 1970: nothing was recorded before
LAST: Final = 253_402_300_800_000  # the year 10000, where calendars of Python end

NAMES: Final = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
BUCKETS: Final = ("hour", "day", "week", "month", "quarter", "all")
_UNITS: Final = {"m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_DURATION: Final = re.compile(r"([0-9]{1,6})([mhdw])", re.ASCII)
_OFFSET: Final = re.compile(r"([0-9]{1,6}[mhdw])\s+offset\s+([0-9]{1,6}[mhdw])", re.ASCII)
_SECONDS_PAIR: Final = re.compile(r"([0-9]{1,12})\s*[,-]\s*([0-9]{1,12})", re.ASCII)
EXPECTED: Final = (
    "expected today, yesterday, week, lastweek, month, lastmonth, a duration such as 12h or 7d, "
    '"7d offset 1d", or start,end as RFC 3339 times or Unix seconds'
)


class Window(NamedTuple):
    """From `start` up to, but not including, `end`."""

    start: records.Millis
    end: records.Millis

    @property
    def hours(self) -> float:
        """Its length."""
        return (self.end - self.start) / HOUR

    def until(self, now: records.Millis) -> Window:
        """The part that is not in the future."""
        return Window(min(self.start, now), min(self.end, now))


def parse(written: str, now: records.Millis) -> Window:
    """The window. Raises InputError for text that is none, or a window that is empty."""
    text = written.strip()
    window = _named(text, now) or _lasting(text, now) or _pair(text)
    if window is None:
        raise errors.InputError(f'window "{written[:80]}": {EXPECTED}')
    if window.start >= window.end:
        raise errors.InputError(f'window "{written[:80]}": it ends before it begins')
    if window.start < FIRST or window.end > LAST:
        raise errors.InputError(f'window "{written[:80]}": expected years 1970 to 9999')
    return window


def parse_step(written: str, window: Window) -> int:
    """The milliseconds of one step. Raises InputError for text that is no duration, or steps too many to show."""
    match = _DURATION.fullmatch(written.strip())
    step = _length(match.group()) if match else 0
    if not step:
        raise errors.InputError(f'step "{written[:80]}": expected a duration such as 1h or 1d')
    count = -(-(window.end - window.start) // step)
    if count > MOST_STEPS:
        raise errors.InputError(
            f'step "{written[:80]}": the window has {count} of them; at most {MOST_STEPS} are shown'
        )
    return step


def steps(window: Window, step: int | None) -> tuple[Window, ...]:
    """The steps of a window in order, counted backward from its end; the window itself without a step."""
    if step is None:
        return (window,)
    ends = range(window.end, window.start, -step)
    backward = [Window(max(window.start, end - step), end) for end in ends]
    return tuple(reversed(backward))


def buckets(parts: tuple[Window, ...], name: str) -> Iterator[tuple[Window, tuple[int, ...]]]:
    """Steps by the hour, day, week (from Sunday), month or quarter in which each begins; all of them as one."""
    if name not in BUCKETS:
        raise errors.InputError(f'accumulateBy "{name[:80]}": expected one of {", ".join(BUCKETS)}')
    groups: dict[object, list[int]] = {}
    for index, part in enumerate(parts):
        groups.setdefault(_bucket(part.start, name), []).append(index)
    for indexes in groups.values():
        yield Window(parts[indexes[0]].start, parts[indexes[-1]].end), tuple(indexes)


def millis_of(moment: datetime.datetime) -> records.Millis:
    """The time as records hold it."""
    return round(moment.timestamp() * SECOND)


def moment_of(millis: records.Millis) -> datetime.datetime:
    """The time as a datetime in UTC."""
    bounded = min(max(millis, FIRST), LAST - 1)
    return datetime.datetime.fromtimestamp(bounded / SECOND, datetime.UTC)


def month_of(now: records.Millis) -> Window:
    """The calendar month."""
    first = moment_of(now).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (first + datetime.timedelta(days=32)).replace(day=1)
    return Window(millis_of(first), millis_of(following))


def _named(text: str, now: records.Millis) -> Window | None:
    midnight = now - now % DAY
    sunday = midnight - (moment_of(now).isoweekday() % 7) * DAY
    month = month_of(now).start
    match text:
        case "today":
            return Window(midnight, midnight + DAY)
        case "yesterday":
            return Window(midnight - DAY, midnight)
        case "week":
            return Window(sunday, max(now, sunday + 1))
        case "lastweek":
            return Window(sunday - WEEK, sunday)
        case "month":
            return Window(month, max(now, month + 1))
        case "lastmonth":
            return Window(month_of(month - 1).start, month)
        case _:
            return None


def _lasting(text: str, now: records.Millis) -> Window | None:
    """A duration up to now; whole days end with the current day. An offset moves the end back."""
    if match := _OFFSET.fullmatch(text):
        end = now - _length(match[2])
        return Window(end - _length(match[1]), end)
    if match := _DURATION.fullmatch(text):
        end = now - now % DAY + DAY if match[2] in "dw" else now
        return Window(end - _length(text), end)
    return None


def _length(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]


def _pair(text: str) -> Window | None:
    if match := _SECONDS_PAIR.fullmatch(text):
        return Window(int(match[1]) * SECOND, int(match[2]) * SECOND)
    first, comma, second = text.partition(",")
    start, end = timestamps.parse_or_none(first.strip()), timestamps.parse_or_none(second.strip())
    if not comma or start is None or end is None:
        return None
    try:
        return Window(millis_of(start), millis_of(end))
    except (OverflowError, ValueError):
        return None


def _bucket(start: records.Millis, name: str) -> object:
    moment = moment_of(start)
    match name:
        case "hour":
            return start // HOUR
        case "day":
            return start // DAY
        case "week":
            return (start // DAY + 4) // 7  # 1 January 1970 was a Thursday
        case "month":
            return moment.year, moment.month
        case "quarter":
            return moment.year, (moment.month - 1) // 3
        case _:
            return None
