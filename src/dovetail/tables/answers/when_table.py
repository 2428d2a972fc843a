"""The rows of `dovetail when`: when each waiting gang starts, how late that may get, and why. Never prints."""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.answer import when
from dovetail.tables.work import start_times

HEADERS: Final = ("gang", "pods", "start", "in", "latest", "why")
WIDE_HEADERS: Final = ("promised", "waits for")


def headers(*, is_wide: bool) -> tuple[str, ...]:
    """The headers of the table."""
    return (*HEADERS, *WIDE_HEADERS) if is_wide else HEADERS


def row_of(
    expectation: when.Expectation, now: datetime.datetime, *, is_wide: bool = False
) -> tuple[str, ...]:
    """One gang that waits."""
    cells = (
        str(expectation.gang),
        str(len(expectation.members)),
        start_times.clock_time(expectation.start, now),
        start_times.until(expectation.start, now),
        start_times.clock_time(expectation.latest, now) if expectation.start is not None else "",
        expectation.why,
    )
    if not is_wide:
        return cells
    ending = ", ".join(map(str, expectation.waits_for))
    return (*cells, "yes" if expectation.is_promised else "no", ending)


def ended_row(gang: str, *, is_wide: bool) -> tuple[str, ...]:
    """A gang that no longer waits."""
    cells = (gang, "0", "started", "", "", "it no longer waits")
    return (*cells, "", "") if is_wide else cells
