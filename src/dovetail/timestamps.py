"""RFC 3339, the way Kubernetes writes times: text from a datetime, a datetime from text.

Given datetimes with a zone; text is always UTC. Never reads a clock.
"""

from __future__ import annotations

import datetime
from typing import Final

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"  # metav1.Time
_MICRO_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"  # metav1.MicroTime: leases and events


def to_text(moment: datetime.datetime) -> str:
    """Whole seconds, as metav1.Time is written; fractions are cut off."""
    return moment.astimezone(datetime.UTC).strftime(_TIME)


def to_micro_text(moment: datetime.datetime) -> str:
    """Microseconds, as metav1.MicroTime is written."""
    return moment.astimezone(datetime.UTC).strftime(_MICRO_TIME)


def to_exact_text(moment: datetime.datetime) -> str:
    """To the last digit, and no digit more than needed: `parse` returns an equal time."""
    return moment.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


def parse(text: str) -> datetime.datetime:
    """The time in the zone it was written in; without a zone if the text names none. Nanoseconds are cut off.

    Raises ValueError for text that is not a time, the 30th of February included.
    """
    return datetime.datetime.fromisoformat(text)


def parse_as_utc(text: str) -> datetime.datetime:
    """As `parse`; a time without a zone counts as UTC."""
    moment = parse(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def parse_or_none(text: str | None) -> datetime.datetime | None:
    """As `parse_as_utc`; None for text that is missing or not a time."""
    try:
        return parse_as_utc(text or "")
    except ValueError:
        return None
