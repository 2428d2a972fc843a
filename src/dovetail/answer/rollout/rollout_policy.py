"""The policy of a roll-out: which nodes go together, how many at once, when, and how long a node takes. Plain data.

Reads percentages and maintenance windows as people write them: `Sat,Sun 22:00-06:00`, in UTC. Finds the next time at
which a wave fits into a window. Raises InputError for text it cannot read. Never reads a clock.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.answer.drain import drain_filters

# Parts whose change leaves pods without GPUs where they are.
GPU_PARTS: Final = frozenset({"driver", "operator", "toolkit"})
TOGETHER: Final = ("node", "rack", "nvlink", "pool")
ORDERS: Final = ("least-lost", "name")
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES: Final = 24 * 60
WEEK_DAYS: Final = 7
_WINDOW: Final = re.compile(
    r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<from>\d{1,2}:\d{2})-(?P<to>\d{1,2}:\d{2})"
)
_AMOUNT: Final = re.compile(r"(?P<number>\d{1,6})(?P<percent>%?)")


class Window(NamedTuple):
    """A time of the week at which nodes may be out of service. One that ends before it begins ends the next day."""

    days: tuple[int, ...]  # Monday is 0; of its beginning
    begin: int  # minutes of the day
    minutes: int
    text: str


class Durations(NamedTuple):
    """How long one node is out of service, from the fence to the end of its validation."""

    likely_seconds: int  # p50
    late_seconds: int  # p90
    source: str


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a roll-out."""

    durations: Durations
    together: str = "node"
    parallel: int | None = None  # nodes of a wave; None: as many as may be unavailable
    max_unavailable: str = "10%"
    canary: int = 1  # nodes of the first wave; 0: no canary
    canary_seconds: int = 0  # how long the canary is watched before the next wave
    windows: tuple[Window, ...] = ()
    order: str = "least-lost"
    patience_seconds: int = 0  # how much longer it may take, so that work can end by itself
    checkpoint_seconds: int | None = None  # work older than this survives; None: as work states it
    restart_seconds: int = 300  # images, data, warm-up: until restarted work computes again
    only_gpu_pods: bool = True  # a driver needs no others to leave
    drain: drain_filters.Options = drain_filters.Options(
        ignore_daemon_sets=True, delete_empty_dir_data=True
    )


def unavailable_nodes(text: str, total: int) -> int:
    """How many of so many nodes: a number, or a percentage rounded up, as NVIDIA's operator rounds it."""
    parts = _AMOUNT.fullmatch(text.strip())
    if parts is None or (parts["percent"] and int(parts["number"]) > 100):
        raise errors.InputError(
            f'--max-unavailable "{text}": expected a number of nodes, or a percentage such as 10%'
        )
    number = int(parts["number"])
    return -(-number * total // 100) if parts["percent"] else number


def window(text: str) -> Window:
    """A window as it is written."""
    parts = _WINDOW.fullmatch(text.strip())
    begin = _minutes(parts["from"]) if parts is not None else None
    end = _minutes(parts["to"]) if parts is not None else None
    days = _days(parts["days"]) if parts is not None else None
    if begin is None or end is None or not days:
        raise errors.InputError(
            f'--window "{text}": expected days and times in UTC, such as Sat,Sun 22:00-06:00, '
            "Mon-Fri 01:00-05:00 or 22:00-06:00"
        )
    minutes = (end - begin) % DAY_MINUTES or DAY_MINUTES
    return Window(days, begin, minutes, text.strip())


def next_start(
    windows: tuple[Window, ...], at: datetime.datetime, seconds: int
) -> datetime.datetime | None:
    """The first time from then on at which so many seconds fit into a window; None where they fit into none."""
    if not windows:
        return at
    starts: list[datetime.datetime] = []
    midnight = at.astimezone(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for each in windows:
        if each.minutes * 60 < seconds:
            continue
        for day in range(-1, WEEK_DAYS + 1):
            begin = midnight + datetime.timedelta(days=day, minutes=each.begin)
            last_start = begin + datetime.timedelta(seconds=each.minutes * 60 - seconds)
            is_day = (midnight + datetime.timedelta(days=day)).weekday() in each.days
            if is_day and last_start >= at:
                starts.append(max(begin, at))
    return min(starts, default=None)


def _minutes(text: str) -> int | None:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    return total % DAY_MINUTES if int(minutes) < 60 and total <= DAY_MINUTES else None


def _days(text: str | None) -> tuple[int, ...]:
    """The days of a list of names and ranges; none where one is no day."""
    if text is None:
        return tuple(range(WEEK_DAYS))
    days: set[int] = set()
    for part in text.lower().split(","):
        first, is_range, last = part.partition("-")
        if first not in DAYS or (is_range and last not in DAYS):
            return ()
        begin = DAYS.index(first)
        span = (DAYS.index(last) - begin) % WEEK_DAYS if is_range else 0
        days |= {(begin + step) % WEEK_DAYS for step in range(span + 1)}
    return tuple(sorted(days))
