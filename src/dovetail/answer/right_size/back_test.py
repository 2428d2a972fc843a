"""Checks the rule on the records at hand: whether what it would have said halfway held for the rest of the window.

Given records and a window. The first half gives the memory that work needs, the second says whether that was enough.
Work that was not measured in both halves says nothing. Never changes a recommendation.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.answer.right_size import families, measured, memory_need
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Millis

FEWEST_SAMPLES: Final = 50  # in each half


class BackTest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often the rule was wrong about the second half."""

    work: int  # that was measured in both halves
    exceeded: tuple[str, ...]  # of that, what used more than the rule allowed


def back_test(
    given: records.Records,
    start: Millis,
    end: Millis,
    rule: memory_need.HeadroomRule = memory_need.DEFAULT,
) -> BackTest | None:
    """The check; None where no work was measured in both halves."""
    middle = start + (end - start) // 2
    before = _seen(given, start, middle)
    after = _seen(given, middle, end)
    judged = sorted(before.keys() & after.keys())
    if not judged:
        return None
    exceeded = [
        work for work in judged if after[work].largest > memory_need.need(before[work], rule)
    ]
    return BackTest(work=len(judged), exceeded=tuple(map(str, exceeded)))


def _seen(
    given: records.Records, start: Millis, end: Millis
) -> dict[families.FamilyKey, memory_need.MemorySeen]:
    seen: dict[families.FamilyKey, memory_need.MemorySeen] = {}
    for family in families.families(given, start, end):
        figures = measured.measured(family, start, end)
        if figures.memory is not None and figures.samples >= FEWEST_SAMPLES:
            seen[family.key] = figures.memory
    return seen
