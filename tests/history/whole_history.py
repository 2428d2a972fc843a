"""Reads a whole history and finds what cannot be true: work counted twice, GPUs held by more than there is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dovetail.model.accounting.records import MICRO_GPU, Records

FOREVER = 1 << 60


def problems(records: Records, *, slack_micro_gpu: int = 0) -> list[str]:
    """Everything wrong with it. `slack_micro_gpu`: the ledger rounds each share to a thousandth."""
    return [
        *_overlapping("asset", ((each.asset, each) for each in records.assets)),
        *_overlapping("allocation", ((each.allocation, each) for each in records.allocations)),
        *_overlapping("waiting", ((each.owner.pod_uid, each) for each in records.waiting)),
        *_overlapping("gap", ((f"{each.source}{each.subject}", each) for each in records.gaps)),
        *_overheld(records, slack_micro_gpu),
        *_repeated(records),
    ]


def _overlapping(kind: str, intervals: Iterator[tuple[str, Any]]) -> Iterator[str]:
    by_name: dict[str, list[Any]] = defaultdict(list)
    for name, interval in intervals:
        by_name[name].append(interval)
    for name, listed in by_name.items():
        listed.sort(key=lambda each: each.start)
        for first, second in pairwise(listed):
            if _end(first) > second.start:
                yield f"{kind} {name}: {first.start}-{first.end} and {second.start}-{second.end}"


def _overheld(records: Records, slack: int) -> Iterator[str]:
    """Times at which more of an asset is held than it is."""
    sizes = {each.asset: each.count * MICRO_GPU for each in records.assets}
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in records.allocations:
        changes[each.asset] += [(each.start, each.micro_gpu), (_end(each), -each.micro_gpu)]
    for asset, listed in changes.items():
        held = 0
        for at, amount in sorted(listed):  # what ends at a time ends before what begins then
            held += amount
            if held > sizes.get(asset, MICRO_GPU) + slack:
                yield f"asset {asset}: {held} micro-GPU are held at {at}"


def _repeated(records: Records) -> Iterator[str]:
    seen = set()
    for each in records.decisions:
        key = (each.kind, each.owner.pod_uid)
        if each.kind == "started" and key in seen:
            yield f"decision: {each.owner.pod} started twice"
        seen.add(key)


def _end(interval: Any) -> int:
    return FOREVER if interval.end is None else int(interval.end)
