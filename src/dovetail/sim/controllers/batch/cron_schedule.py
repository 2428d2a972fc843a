"""Reads cron schedules and finds the next time they name: five fields, names, steps, @daily and @every.

Given a text and a time zone; returns times in UTC. The meaning is that of robfig/cron, which upstream uses: a day
must match both day fields if one of them is a star, else either; a local time that a clock change skips is skipped,
and one that it repeats is repeated. Never reads a clock.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

from dovetail import errors

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SEARCH_YEARS: Final = 5  # a schedule that names no time until then names none
_DURATION: Final = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_MINUTE: Final = datetime.timedelta(minutes=1)
_HOUR: Final = datetime.timedelta(hours=1)


class ScheduleError(errors.InputError):
    """A schedule that cannot be read."""


class Field(NamedTuple):
    """What a field of a schedule may be."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0  # the number of the first name


class Values(NamedTuple):
    """What a field of a schedule allows."""

    numbers: frozenset[int]
    is_star: bool


FIELDS: Final = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, MONTHS, 1),
    Field("day of week", 0, 6, WEEKDAYS),
)


class Schedule:
    """A schedule in a time zone."""

    def __init__(self, text: str, zone: datetime.tzinfo = datetime.UTC) -> None:
        self._zone = zone
        self._every: datetime.timedelta | None = None
        written = text.strip()
        if written.startswith("@every "):
            self._every = _duration(written.removeprefix("@every ").strip())
            return
        parts = MACROS.get(written.lower(), written).split()
        if len(parts) != len(FIELDS):
            message = f'schedule "{text}": expected 5 fields, or one of {", ".join(MACROS)}'
            raise ScheduleError(f"{message}; found {len(parts)} fields")
        values = [_values(part, field) for part, field in zip(parts, FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months, self._weekdays = values

    def after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """The first time of the schedule after `moment`; None if there is none within five years."""
        if self._every is not None:
            return moment.replace(microsecond=0) + self._every
        start = moment.astimezone(datetime.UTC).replace(second=0, microsecond=0) + _MINUTE
        last = start + datetime.timedelta(days=366 * SEARCH_YEARS)
        candidate = start
        while candidate < last:
            following = self._following(candidate)
            if following is None:
                return candidate
            candidate = following
        return None

    def _following(self, candidate: datetime.datetime) -> datetime.datetime | None:
        """The next time worth a look; None if this one matches. Skips whole months, days and hours."""
        local = candidate.astimezone(self._zone)
        if local.month not in self._months.numbers:
            days_left = 32 - local.day
            return self._midnight(local.date() + datetime.timedelta(days=days_left), first=True)
        if not self._has_day(local):
            return self._midnight(local.date() + datetime.timedelta(days=1), first=False)
        if local.hour not in self._hours.numbers:
            return candidate - _MINUTE * local.minute + _HOUR
        if local.minute not in self._minutes.numbers:
            return candidate + _MINUTE
        return None

    def _midnight(self, day: datetime.date, *, first: bool) -> datetime.datetime:
        """When a local day begins, or the month of that day."""
        start = day.replace(day=1) if first else day
        local = datetime.datetime(start.year, start.month, start.day, tzinfo=self._zone)
        return local.astimezone(datetime.UTC)

    def _has_day(self, local: datetime.datetime) -> bool:
        has_day = local.day in self._days.numbers
        has_weekday = local.isoweekday() % 7 in self._weekdays.numbers
        if self._days.is_star or self._weekdays.is_star:
            return has_day and has_weekday
        return has_day or has_weekday


def _values(text: str, field: Field) -> Values:
    numbers: set[int] = set()
    is_star = False
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, field, text) if slash else 1
        if step == 0:
            raise _unreadable(text, field, "a step must be positive")
        low, high = _span(span, field, text, is_open=bool(slash))
        is_star = is_star or (span in ("*", "?") and step == 1)
        numbers.update(range(low, high + 1, step))
    return Values(frozenset(numbers), is_star)


def _span(span: str, field: Field, text: str, *, is_open: bool) -> tuple[int, int]:
    """The first and last number of a part; a single number with a step goes on to the end."""
    if span in ("*", "?"):
        return field.low, field.high
    first, dash, last = span.partition("-")
    low = _number(first, field, text)
    if dash:
        high = _number(last, field, text)
    else:
        high = field.high if is_open else low
    if low < field.low or high > field.high:
        raise _unreadable(text, field, f"numbers go from {field.low} to {field.high}")
    if low > high:
        raise _unreadable(text, field, f"{low} is greater than {high}")
    return low, high


def _number(text: str, field: Field, whole: str) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.first
    if not text.isascii() or not text.isdecimal():
        raise _unreadable(whole, field, f'"{text}" is no number')
    return int(text)


def _duration(text: str) -> datetime.timedelta:
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in (match.groups() if match else (0, 0, 0)))
    duration = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if not duration:
        raise ScheduleError(f'schedule "@every {text}": expected a duration such as 1h30m')
    return duration


def _unreadable(text: str, field: Field, reason: str) -> ScheduleError:
    return ScheduleError(f'schedule, {field.name} "{text}": {reason}')
