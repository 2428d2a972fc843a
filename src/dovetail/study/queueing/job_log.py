"""What happened to every job of a run: its starts, interruptions and end, and the figures that follow from them.

Given the jobs and what a run reports, in seconds since its beginning. Never decides, never reads a clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.study.queueing import job_list

FAILED: Final = "failed"
EVICTED: Final = "evicted"
MOVED: Final = "moved"
NODE_LOST: Final = "node lost"


class JobRow(msgspec.Struct, kw_only=True):
    """One job. Waiting is all the time from its submission in which it held no GPU, also after interruptions."""

    name: str
    queue: str
    gpus: int
    submit_s: int
    duration_s: int
    first_start_s: int | None = None
    end_s: int | None = None
    waiting_s: int = 0
    interruptions: int = 0
    lost_gpu_s: int = 0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. None: not defined, as no job ended."""

    jobs: int
    ended: int
    never_started: int
    waiting_mean_s: float | None
    waiting_p50_s: float | None
    waiting_p95_s: float | None
    jct_mean_s: float | None
    utilisation_pct: float  # of GPU time between the first submission and the last
    makespan_s: int
    interruptions: dict[str, int]
    lost_gpu_hours: float
    jain: float | None  # over queues: GPU time of ended work by time in the system
    finish_time_p95: float | None  # JCT by duration, at least 10 s


class Log:
    """The history of a run in the making."""

    def __init__(self, jobs: Sequence[job_list.Job]) -> None:
        self.rows = {
            job.name: JobRow(
                name=job.name,
                queue=job.queue,
                gpus=job.gpus,
                submit_s=job.submit_seconds,
                duration_s=job.duration_seconds,
            )
            for job in jobs
        }
        self.ended = 0
        self.starts = 0
        self.interruptions: Counter[str] = Counter()
        self.spans: list[tuple[int, int, int]] = []  # start, end and GPUs
        self._waiting_since = {job.name: job.submit_seconds for job in jobs}
        self._running_since: dict[str, int] = {}

    def has_started(self, name: str) -> bool:
        """Whether the job started before now, and was interrupted since."""
        return bool(self.rows[name].interruptions)

    def start(self, name: str, second: int) -> None:
        """The job holds its GPUs from now on."""
        row = self.rows[name]
        if row.first_start_s is None:
            row.first_start_s = second
        row.waiting_s += second - self._waiting_since[name]
        self._running_since[name] = second
        self.starts += 1

    def interrupt(self, name: str, second: int, *, what: str, lost_seconds: int) -> None:
        """The job loses its GPUs and waits again."""
        row = self.rows[name]
        row.interruptions += 1
        row.lost_gpu_s += lost_seconds * row.gpus
        self.interruptions[what] += 1
        self._leave(row, second)
        self._waiting_since[name] = second

    def end(self, name: str, second: int) -> None:
        """The job is done."""
        row = self.rows[name]
        row.end_s = second
        self.ended += 1
        self._leave(row, second)

    def figures(self, total_gpus: int) -> Figures:
        """The figures, on so many GPUs."""
        rows = list(self.rows.values())
        ended = [row for row in rows if row.end_s is not None]
        waiting = sorted(row.waiting_s for row in ended)
        jct = [_jct(row) for row in ended]
        slowdowns = sorted(max(1.0, _jct(row) / max(row.duration_s, 10)) for row in ended)
        return Figures(
            jobs=len(rows),
            ended=len(ended),
            never_started=sum(row.first_start_s is None for row in rows),
            waiting_mean_s=_mean(waiting),
            waiting_p50_s=percentile(waiting, 50),
            waiting_p95_s=percentile(waiting, 95),
            jct_mean_s=_mean(jct),
            utilisation_pct=self._utilisation(total_gpus),
            makespan_s=max((row.end_s or 0 for row in ended), default=0),
            interruptions=dict(sorted(self.interruptions.items())),
            lost_gpu_hours=round(sum(row.lost_gpu_s for row in rows) / 3600, 2),
            jain=_jain(ended),
            finish_time_p95=percentile(slowdowns, 95),
        )

    def _leave(self, row: JobRow, second: int) -> None:
        self.spans.append((self._running_since.pop(row.name), second, row.gpus))

    def _utilisation(self, total_gpus: int) -> float:
        first = min(row.submit_s for row in self.rows.values())
        last = max(row.submit_s for row in self.rows.values())
        if last == first or not total_gpus:
            return 0.0
        used = sum(
            max(0, min(end, last) - max(start, first)) * gpus for start, end, gpus in self.spans
        )
        return round(100 * used / (total_gpus * (last - first)), 2)


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent of the values do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _jct(row: JobRow) -> int:
    assert row.end_s is not None
    return row.end_s - row.submit_s


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 2) if values else None


def _jain(ended: Sequence[JobRow]) -> float | None:
    """Jain's index over queues: 1 if work of every queue is slowed down alike."""
    worked: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for row in ended:
        worked[row.queue] += row.duration_s * row.gpus
        present[row.queue] += _jct(row) * row.gpus
    rates = [worked[queue] / present[queue] for queue in sorted(worked)]
    if not rates:
        return None
    squares = len(rates) * sum(rate * rate for rate in rates)
    return round(sum(rates) ** 2 / squares, 4)
