"""Durations and timestamps: parsing and printing them, and the parts of a time in a time zone.

Given nanoseconds and text; returns numbers or raises CelError. Never reads the clock. Named time zones
come from the machine's zone data; "Local" is UTC, as in a container.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from dovetail import cache
from dovetail.cel.check.declarations import Overload, member
from dovetail.cel.evaluate.values import INT_MAX, INT_MIN, CelError, Duration, Timestamp
from dovetail.cel.library import gotext

SECOND: Final = 10**9
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01T00:00:00Z
LAST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59Z

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
# Patterns stay text until they are used: compiling them all would slow the start.
_DURATION_TERM: Final = r"([0-9]*)(?:\.([0-9]*))?([^.0-9]+)"
_LIMIT: Final = 2**63
_UINT64: Final = 2**64
_CYCLE_DAYS: Final = 146_097  # the calendar repeats every 400 years
_EPOCH_ORDINAL: Final = datetime.date(1970, 1, 1).toordinal()
_RFC3339: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_INTEGER: Final = r"[+-]?[0-9]+"


def parse_duration(text: str) -> Duration:
    """`1h2m3.5s`, `-1.5h`, `0`: signed decimal terms with units. Raises where the sum leaves int64."""
    unsigned = text[1:] if text[:1] in ("-", "+") and text else text
    if unsigned == "0":
        return Duration(0)
    total, position = 0, 0
    while position < len(unsigned):
        term = re.compile(_DURATION_TERM).match(unsigned, position)
        if term is None:
            raise _not_a("duration")
        total = (total + _term_nanos(term)) % _UINT64
        if total > _LIMIT:
            raise _not_a("duration")
        position = term.end()
    if not unsigned or (total == _LIMIT and text[0] != "-"):
        raise _not_a("duration")
    return Duration(-total if text[0] == "-" else total)


def _term_nanos(term: re.Match[str]) -> int:
    whole, fraction, unit_name = term.groups()
    unit = _UNITS.get(unit_name)
    if unit is None or not (whole or fraction):
        raise _not_a("duration")
    digits = whole.lstrip("0")
    if len(digits) > 19 or int(digits or 0) > _LIMIT // unit:
        raise _not_a("duration")
    nanos = int(digits or 0) * unit
    part, scale = _fraction(fraction or "")
    nanos += int(float(part) * (float(unit) / scale))  # in doubles, as upstream: 0.1ns is nothing
    if nanos > _LIMIT:
        raise _not_a("duration")
    return nanos


def _fraction(digits: str) -> tuple[int, float]:
    """The digits as a number and the power of ten to divide by; digits beyond an int64 are dropped."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > (_LIMIT - 1) // 10 or number * 10 + int(digit) > _LIMIT:
            break
        number = number * 10 + int(digit)
        scale *= 10
    return number, scale


def duration_seconds(duration: Duration) -> float:
    """The duration in seconds, as a double."""
    return _in_units(duration, SECOND)


def duration_text(duration: Duration) -> str:
    """The duration in seconds: `5400s`, `0.25s`."""
    return gotext.positional(duration_seconds(duration)) + "s"


def parse_timestamp(text: str) -> Timestamp:
    """The time in an RFC 3339 text, between the years 1 and 9999."""
    return Timestamp(*read_timestamp(text))


def read_timestamp(text: str) -> tuple[int, int]:
    """Nanoseconds since 1970 and the offset the text was written with, in seconds east of UTC."""
    match = re.fullmatch(_RFC3339, text)
    if match is None:
        raise _not_a("timestamp")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, zone_hours, zone_minutes = match.groups()[6:]
    offset = 0
    if sign:
        if int(zone_hours) > 24 or int(zone_minutes) > 60:
            raise _not_a("timestamp")
        offset = (int(zone_hours) * 60 + int(zone_minutes)) * (-60 if sign == "-" else 60)
    if hour > 23 or minute > 59 or second > 59:
        raise _not_a("timestamp")
    seconds = (
        days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset
    )
    check_second(seconds)
    return seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0")), offset


def check_second(seconds: int) -> None:
    """Refuses times outside the years 1 to 9999."""
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        raise CelError("timestamp overflow")


def timestamp_text(nanos: int, offset: int = 0) -> str:
    """RFC 3339 with as many fractional digits as needed."""
    seconds, remainder = divmod(nanos, SECOND)
    days, of_day = divmod(seconds + offset, 86_400)
    year, month, day = civil(days)
    fraction = f".{remainder:09d}".rstrip("0") if remainder else ""
    clock = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}{fraction}"
    zone_minutes = abs(offset) // 60
    zone = (
        f"{'-' if offset < 0 else '+'}{zone_minutes // 60:02d}:{zone_minutes % 60:02d}"
        if offset
        else "Z"
    )
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{zone}"


def days_since_1970(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of any year; raises CelError if the date does not exist."""
    cycles, in_cycle = divmod(year, 400)
    try:
        ordinal = datetime.date(in_cycle + 400, month, day).toordinal()
    except ValueError:
        raise _not_a("timestamp") from None
    return ordinal + (cycles - 1) * _CYCLE_DAYS - _EPOCH_ORDINAL


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the date so many days after 1970-01-01."""
    cycles, in_cycle = divmod(days + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    date = datetime.date.fromordinal(in_cycle + 1)
    return date.year + 400 * cycles, date.month, date.day


def zone_offset(zone: str, seconds: int) -> int:
    """Seconds east of UTC in a zone at a time: `Europe/Paris`, `-08:00`, `` for UTC."""
    hours, colon, minutes = zone.partition(":")
    if colon:
        return _fixed_offset(_integer(hours), _integer(minutes), is_west=zone[0] == "-")
    if zone in ("", "UTC", "Local"):
        return 0
    return _named_offset(zone, seconds)


def _fixed_offset(hours: int, minutes: int, *, is_west: bool) -> int:
    total = _wrapped(hours * 60 - minutes if is_west else hours * 60 + minutes)
    nanos = _wrapped(total * MINUTE)  # upstream goes through a 64-bit duration
    return int(_in_units(Duration(nanos), SECOND))


def _named_offset(zone: str, seconds: int) -> int:
    import zoneinfo

    if ".." in zone or zone[0] in "/\\":
        raise CelError(f"unknown time zone {zone}")
    try:
        rules = zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, KeyError, UnicodeError):
        raise CelError(f"unknown time zone {zone}") from None
    return _offset_at(rules, seconds)


@cache.remembered(1024)
def _offset_at(rules: datetime.tzinfo, seconds: int) -> int:
    # Near the ends of the calendar the local time may not exist in Python; 400 years on, the same rules hold.
    days, of_day = divmod(seconds, 86_400)
    if days < FIRST_SECOND // 86_400 + 2:
        days += _CYCLE_DAYS
    elif days > LAST_SECOND // 86_400 - 2:
        days -= _CYCLE_DAYS
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days, of_day)
    offset = moment.astimezone(rules).utcoffset()
    return 0 if offset is None else offset.days * 86_400 + offset.seconds


def _integer(text: str) -> int:
    number = int(text) if re.fullmatch(_INTEGER, text) and len(text) < 64 else None
    if number is None or not INT_MIN <= number <= INT_MAX:
        raise CelError(f"time zone offset: {text[:40]!r} is not a number")
    return number


def _wrapped(number: int) -> int:
    return (number + _LIMIT) % _UINT64 - _LIMIT


def _in_units(duration: Duration, unit: int) -> float:
    whole, remainder = divmod(abs(duration.nanos), unit)
    size = float(whole) + float(remainder) / unit
    return -size if duration.nanos < 0 else size


def _not_a(kind: str) -> CelError:
    return CelError(f"type conversion error from 'string' to 'google.protobuf.{kind.capitalize()}'")


def _local(moment: Timestamp, zone: str) -> tuple[int, int]:
    """Days since 1970 and seconds of the day on the zone's clocks."""
    seconds = moment.nanos // SECOND
    return divmod(seconds + zone_offset(zone, seconds), 86_400)


def full_year(moment: Timestamp, zone: str = "") -> int:
    """The year."""
    return civil(_local(moment, zone)[0])[0]


def month(moment: Timestamp, zone: str = "") -> int:
    """The month, from 0."""
    return civil(_local(moment, zone)[0])[1] - 1


def day_of_year(moment: Timestamp, zone: str = "") -> int:
    """The day of the year, from 0."""
    days = _local(moment, zone)[0]
    return days - days_since_1970(civil(days)[0], 1, 1)


def date(moment: Timestamp, zone: str = "") -> int:
    """The day of the month, from 1."""
    return civil(_local(moment, zone)[0])[2]


def day_of_month(moment: Timestamp, zone: str = "") -> int:
    """The day of the month, from 0."""
    return date(moment, zone) - 1


def day_of_week(moment: Timestamp, zone: str = "") -> int:
    """The day of the week; Sunday is 0."""
    return (_local(moment, zone)[0] + 4) % 7  # 1970 began on a Thursday


def hours(moment: Timestamp, zone: str = "") -> int:
    """The hour of the day."""
    return _local(moment, zone)[1] // 3600


def minutes(moment: Timestamp, zone: str = "") -> int:
    """The minute of the hour."""
    return _local(moment, zone)[1] // 60 % 60


def seconds(moment: Timestamp, zone: str = "") -> int:
    """The second of the minute."""
    return _local(moment, zone)[1] % 60


def milliseconds(moment: Timestamp, zone: str = "") -> int:
    """The thousandths of the second."""
    _local(moment, zone)  # an unknown zone is an error here too
    return moment.nanos % SECOND // 10**6


def duration_hours(duration: Duration) -> int:
    """Whole hours, towards zero."""
    return int(_in_units(duration, HOUR))


def duration_minutes(duration: Duration) -> int:
    """Whole minutes, towards zero."""
    return int(_in_units(duration, MINUTE))


def duration_whole_seconds(duration: Duration) -> int:
    """Whole seconds, towards zero."""
    return int(_in_units(duration, SECOND))


def duration_milliseconds(duration: Duration) -> int:
    """Whole thousandths of a second, towards zero."""
    size = abs(duration.nanos) // 10**6
    return -size if duration.nanos < 0 else size


_MOMENT, _ZONED, _SPAN = "timestamp -> int", "timestamp, string -> int", "duration -> int"
_DATE = "timestamp_to_day_of_month_1_based"
OVERLOADS: tuple[Overload, ...] = (
    member("getFullYear", "timestamp_to_year", _MOMENT, full_year),
    member("getFullYear", "timestamp_to_year_with_tz", _ZONED, full_year),
    member("getMonth", "timestamp_to_month", _MOMENT, month),
    member("getMonth", "timestamp_to_month_with_tz", _ZONED, month),
    member("getDayOfYear", "timestamp_to_day_of_year", _MOMENT, day_of_year),
    member("getDayOfYear", "timestamp_to_day_of_year_with_tz", _ZONED, day_of_year),
    member("getDayOfMonth", "timestamp_to_day_of_month", _MOMENT, day_of_month),
    member("getDayOfMonth", "timestamp_to_day_of_month_with_tz", _ZONED, day_of_month),
    member("getDate", _DATE, _MOMENT, date),
    member("getDate", f"{_DATE}_with_tz", _ZONED, date),
    member("getDayOfWeek", "timestamp_to_day_of_week", _MOMENT, day_of_week),
    member("getDayOfWeek", "timestamp_to_day_of_week_with_tz", _ZONED, day_of_week),
    member("getHours", "timestamp_to_hours", _MOMENT, hours),
    member("getHours", "timestamp_to_hours_with_tz", _ZONED, hours),
    member("getHours", "duration_to_hours", _SPAN, duration_hours),
    member("getMinutes", "timestamp_to_minutes", _MOMENT, minutes),
    member("getMinutes", "timestamp_to_minutes_with_tz", _ZONED, minutes),
    member("getMinutes", "duration_to_minutes", _SPAN, duration_minutes),
    member("getSeconds", "timestamp_to_seconds", _MOMENT, seconds),
    member("getSeconds", "timestamp_to_seconds_tz", _ZONED, seconds),
    member("getSeconds", "duration_to_seconds", _SPAN, duration_whole_seconds),
    member("getMilliseconds", "timestamp_to_milliseconds", _MOMENT, milliseconds),
    member("getMilliseconds", "timestamp_to_milliseconds_with_tz", _ZONED, milliseconds),
    member("getMilliseconds", "duration_to_milliseconds", _SPAN, duration_milliseconds),
)
