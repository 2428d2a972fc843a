"""What was measured of a family: memory by parts of the window, how busy it was, and how much of it is known.

Given a family and the window. A metric that was never measured is None, never zero. Never judges.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dovetail.answer.right_size import families, memory_need
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Millis

MILLISECONDS_PER_DAY: Final = 86_400_000


class Measured(NamedTuple):
    """The figures. Shares of time are in millionths of what was allocated."""

    memory: memory_need.MemorySeen | None
    memory_samples: tuple[int, ...]  # ascending, as are the next three; empty: not measured
    busy: tuple[int, ...]
    tensor: tuple[int, ...]
    dram: tuple[int, ...]
    days: float  # from the first sample to the last
    samples: int
    runs: int
    runs_measured: int
    held_milliseconds: int
    micro_gpu_milliseconds: int
    missing: tuple[str, ...]  # what makes the figures partial


def measured(family: families.Family, start: Millis, end: Millis) -> Measured:
    """The figures of a family in a window."""
    held = family.held
    usage = [sample for each in held for sample in each.usage]
    has_samples = [run for run in family.runs if any(each.usage for each in run.held)]
    first = min((sample.start for sample in usage), default=start)
    last = max((sample.end for sample in usage), default=start)
    days = (last - first) / MILLISECONDS_PER_DAY
    parts = _memory_parts(family.runs, first, last)
    memory = memory_need.MemorySeen(parts, days, family.out_of_memory) if parts else None
    return Measured(
        memory=memory,
        memory_samples=_ascending(sample.memory_bytes for sample in usage),
        busy=_ascending(sample.busy_micro for sample in usage),
        tensor=_ascending(sample.tensor_micro for sample in usage),
        dram=_ascending(sample.dram_micro for sample in usage),
        days=days,
        samples=sum(sample.samples for sample in usage),
        runs=len(family.runs),
        runs_measured=len(has_samples),
        held_milliseconds=sum(each.milliseconds for each in held),
        micro_gpu_milliseconds=sum(each.milliseconds * each.allocation.micro_gpu for each in held),
        missing=tuple(_missing(family, usage, len(has_samples))),
    )


def quantile(ascending: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed."""
    place = math.ceil(share * len(ascending)) - 1
    return ascending[min(max(place, 0), len(ascending) - 1)]


def _memory_parts(runs: Iterable[families.Run], first: Millis, last: Millis) -> tuple[int, ...]:
    """The largest memory of each run in each part of the time that was measured."""
    width = max(1, last - first)
    largest: dict[tuple[int, int], int] = defaultdict(int)
    for number, run in enumerate(runs):
        for held in run.held:
            for sample in held.usage:
                if sample.memory_bytes is None:
                    continue
                part = (sample.start - first) * memory_need.PARTS // width
                place = (number, min(part, memory_need.PARTS - 1))
                largest[place] = max(largest[place], sample.memory_bytes)
    return tuple(largest[place] for place in sorted(largest))


def _ascending(values: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(sorted(value for value in values if value is not None))


def _missing(
    family: families.Family, usage: Sequence[records.Usage], runs_measured: int
) -> Iterable[str]:
    if usage and runs_measured < len(family.runs):
        yield f"{len(family.runs) - runs_measured} of {len(family.runs)} runs have no samples"
    if family.gaps:
        words = "gap" if len(family.gaps) == 1 else "gaps"
        yield f"{len(family.gaps)} {words} without samples while GPUs were held"
    for name, values in (
        ("memory", [sample.memory_bytes for sample in usage]),
        ("busy time", [sample.busy_micro for sample in usage]),
    ):
        absent = sum(value is None for value in values)
        if absent:
            yield f"{name} is missing in {absent} of {len(values)} samples"
