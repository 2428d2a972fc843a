"""How long queues had less than their quota although work of theirs waited that would have fitted into it.

Given when jobs ran and waited, and the quotas. A queue is short by the GPUs of waiting jobs that fit into what is left
of its quota, at most by all that is left. A job larger than that does not count: nothing was kept from it. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.study.queueing import job_log


class Shortfall(NamedTuple):
    """Of one queue."""

    seconds: int
    gpu_seconds: int


class _Change(NamedTuple):
    second: int
    used_gpus: int
    waiting_size: int  # 0: nothing waits more or less
    waiting_jobs: int


def shortfalls(
    runs: Sequence[job_log.Span], waits: Sequence[job_log.Span], quotas: Mapping[str, int]
) -> dict[str, Shortfall]:
    """By queue with a quota. Linear in the spans, but for sorting."""
    changes: dict[str, list[_Change]] = defaultdict(list)
    for span in runs:
        changes[span.queue].append(_Change(span.start, span.gpus, 0, 0))
        changes[span.queue].append(_Change(span.end, -span.gpus, 0, 0))
    for span in waits:
        changes[span.queue].append(_Change(span.start, 0, span.gpus, 1))
        changes[span.queue].append(_Change(span.end, 0, span.gpus, -1))
    return {queue: _sweep(sorted(changes[queue]), quota) for queue, quota in quotas.items()}


def _sweep(changes: Iterable[_Change], quota: int) -> Shortfall:
    seconds = gpu_seconds = used = last = 0
    waiting: Counter[int] = Counter()
    for change in changes:
        if change.second > last:
            short = _short(quota - used, waiting)
            seconds += (change.second - last) * bool(short)
            gpu_seconds += (change.second - last) * short
            last = change.second
        used += change.used_gpus
        if change.waiting_size:
            waiting[change.waiting_size] += change.waiting_jobs
            if not waiting[change.waiting_size]:
                del waiting[change.waiting_size]
    return Shortfall(seconds, gpu_seconds)


def _short(room: int, waiting: Mapping[int, int]) -> int:
    """GPUs of waiting jobs that fit into the room that the quota leaves."""
    if room <= 0 or not waiting:
        return 0
    return min(room, sum(size * jobs for size, jobs in waiting.items() if size <= room))
