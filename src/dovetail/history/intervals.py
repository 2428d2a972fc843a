"""Intervals while a recorder makes them: what identifies each, whether two say the same, and drafts of batches.

Given records. An interval is known by its id as long as it lasts; what begins later under the same id is another one.
Pure.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from dovetail.model.accounting.records import (
    Allocation,
    Asset,
    Decision,
    Gap,
    Millis,
    PriceList,
    Promise,
    Records,
    Unusable,
    Waiting,
)

Interval = Asset | Allocation | Waiting | Promise | Unusable | PriceList


class Draft:
    """Records that are being made."""

    def __init__(self) -> None:
        self._intervals: list[Interval] = []
        self.decisions: list[Decision] = []
        self.gaps: list[Gap] = []

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Those that began or ended."""
        return tuple(each for each in self._intervals if isinstance(each, Allocation))

    def add(self, interval: Interval) -> None:
        """An interval that began or ended."""
        self._intervals.append(interval)

    def take(self) -> Records:
        """The batch so far; the draft is empty afterwards."""
        made = self._intervals
        records = Records(
            assets=tuple(each for each in made if isinstance(each, Asset)),
            allocations=self.allocations,
            waiting=tuple(each for each in made if isinstance(each, Waiting)),
            promises=tuple(each for each in made if isinstance(each, Promise)),
            unusable=tuple(each for each in made if isinstance(each, Unusable)),
            prices=tuple(each for each in made if isinstance(each, PriceList)),
            decisions=tuple(self.decisions),
            gaps=tuple(self.gaps),
        )
        self._intervals, self.decisions, self.gaps = [], [], []
        return records


def id_of(interval: Interval) -> str:
    """What it is about. Unique among intervals of all kinds."""
    match interval:
        case Asset():
            return f"asset/{interval.asset}"
        case Allocation():
            return f"allocation/{interval.allocation}"
        case Waiting():
            return f"waiting/{interval.owner.pod_uid}"
        case Promise():
            return f"promise/{interval.gang}"
        case Unusable():
            return f"unusable/{interval.why}/{interval.asset}"
        case PriceList():
            return f"prices/{interval.name}"
        case _:
            assert_never(interval)


def is_same(interval: Interval, target: Interval) -> bool:
    """Whether two intervals are equal but for their times."""
    return interval == msgspec.structs.replace(target, start=interval.start, end=interval.end)


def ended(interval: Interval, at: Millis) -> Interval:
    """The interval with its end."""
    return msgspec.structs.replace(interval, end=at)


def all_of(records: Records) -> tuple[Interval, ...]:
    """The intervals that a recorder makes and goes on with after a restart."""
    return (
        *records.assets,
        *records.allocations,
        *records.waiting,
        *records.promises,
        *records.unusable,
        *records.prices,
    )
