"""The figures of a run of jobs: waiting, use of the GPUs, evictions, fairness, what queues had of their quota.

Given the log of the run, the queues, and how long each job would have taken alone on its queue's quota. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dovetail.study.queueing import job_log, quota_sweep, usage_curve

HOUR: Final = 3600

Value = Callable[[usage_curve.Level], float]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. None: not defined, as no job ended."""

    jobs: int
    ended: int
    never_started: int
    waiting_mean_s: float | None
    waiting_p50_s: float | None
    waiting_p95_s: float | None
    waiting_p99_s: float | None
    jct_mean_s: float | None
    utilisation_pct: float  # of GPU time between the first submission and the last
    makespan_s: int
    interruptions: dict[str, int]
    evictions: int
    lost_gpu_hours: float
    lost_gpu_hours_by_cause: dict[str, float]
    idle_while_waiting_gpu_hours: float  # at most as many GPUs as were waited for
    unusable_gpu_hours: float  # idle, on nodes with too few free GPUs for any waiting pod
    jain: float | None  # over queues: GPU time of ended work by time in the system
    slowdown_p95: float | None  # JCT by duration, at least 10 s
    finish_time_mean: float | None  # JCT by JCT alone on the queue's quota: sum by sum
    finish_time_p95: float | None
    slower_than_alone_pct: float | None  # of jobs, by more than 1 % and 60 s
    below_quota_gpu_hours: float
    queues: dict[str, QueueFigures]


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one queue."""

    quota: int
    jobs: int
    waiting_mean_s: float | None
    waiting_p95_s: float | None
    jct_mean_s: float | None
    gpu_hours: float
    evictions: int
    lost_gpu_hours: float
    below_quota_hours: float  # work waited that would have fitted into the rest of the quota
    below_quota_gpu_hours: float
    finish_time_mean: float | None
    finish_time_p95: float | None


def figures(
    log: job_log.Log,
    *,
    gpus: int,
    quotas: Mapping[str, int],
    alone: Mapping[str, int] | None = None,
) -> Figures:
    """The figures, on so many GPUs; `alone` is the JCT of jobs alone on the quota of their queue."""
    rows = list(log.rows.values())
    ended = [row for row in rows if row.end_s is not None]
    waiting = sorted(row.waiting_s for row in ended)
    ratios = _ratios(ended, alone or {})
    shortfalls = quota_sweep.shortfalls(log.runs, log.waits(), quotas)
    short_seconds = sum(short.gpu_seconds for short in shortfalls.values())
    lost = {cause: _hours(seconds) for cause, seconds in sorted(log.lost_gpu_seconds.items())}
    return Figures(
        jobs=len(rows),
        ended=len(ended),
        never_started=sum(row.first_start_s is None for row in rows),
        waiting_mean_s=_mean(waiting),
        waiting_p50_s=percentile(waiting, 50),
        waiting_p95_s=percentile(waiting, 95),
        waiting_p99_s=percentile(waiting, 99),
        jct_mean_s=_mean([jct(row) for row in ended]),
        utilisation_pct=_utilisation(log, gpus),
        makespan_s=max((row.end_s or 0 for row in ended), default=0),
        interruptions=dict(sorted(log.interruptions.items())),
        evictions=log.interruptions[job_log.EVICTED],
        lost_gpu_hours=_hours(sum(row.lost_gpu_s for row in rows)),
        lost_gpu_hours_by_cause=lost,
        idle_while_waiting_gpu_hours=log.curve.gpu_hours(lambda level: idle_wanted(level, gpus)),
        unusable_gpu_hours=log.curve.gpu_hours(lambda level: level.too_few_gpus),
        jain=_jain(ended),
        slowdown_p95=percentile(sorted(map(_slowdown, ended)), 95),
        finish_time_mean=_finish_time(ended, alone or {}),
        finish_time_p95=percentile(ratios, 95),
        slower_than_alone_pct=_slower(ended, alone or {}),
        below_quota_gpu_hours=_hours(short_seconds),
        queues=_queues(log, ended, quotas, shortfalls, alone or {}),
    )


def idle_wanted(level: usage_curve.Level, gpus: int) -> int:
    """GPUs that stand idle while at least as many are waited for."""
    return max(0, min(gpus - level.used_gpus, level.waiting_gpus))


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent of the values do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def jct(row: job_log.JobRow) -> int:
    """From submission to end."""
    assert row.end_s is not None
    return row.end_s - row.submit_s


def _queues(
    log: job_log.Log,
    ended: Iterable[job_log.JobRow],
    quotas: Mapping[str, int],
    shortfalls: Mapping[str, quota_sweep.Shortfall],
    alone: Mapping[str, int],
) -> dict[str, QueueFigures]:
    rows_by_queue: dict[str, list[job_log.JobRow]] = defaultdict(list)
    for row in ended:
        rows_by_queue[row.queue].append(row)
    lost: Counter[str] = Counter()
    for row in log.rows.values():
        lost[row.queue] += row.lost_gpu_s
    used: Counter[str] = Counter()
    for span in log.runs:
        used[span.queue] += (span.end - span.start) * span.gpus
    return {
        queue: QueueFigures(
            quota=quota,
            jobs=len(rows_by_queue[queue]),
            waiting_mean_s=_mean([row.waiting_s for row in rows_by_queue[queue]]),
            waiting_p95_s=percentile(sorted(row.waiting_s for row in rows_by_queue[queue]), 95),
            jct_mean_s=_mean([jct(row) for row in rows_by_queue[queue]]),
            gpu_hours=_hours(used[queue]),
            evictions=log.evictions[queue],
            lost_gpu_hours=_hours(lost[queue]),
            below_quota_hours=_hours(shortfalls[queue].seconds),
            below_quota_gpu_hours=_hours(shortfalls[queue].gpu_seconds),
            finish_time_mean=_finish_time(rows_by_queue[queue], alone),
            finish_time_p95=percentile(_ratios(rows_by_queue[queue], alone), 95),
        )
        for queue, quota in sorted(quotas.items())
    }


def _ratios(rows: Iterable[job_log.JobRow], alone: Mapping[str, int]) -> list[float]:
    return sorted(round(jct(row) / alone[row.name], 4) for row in rows if row.name in alone)


def _finish_time(rows: Iterable[job_log.JobRow], alone: Mapping[str, int]) -> float | None:
    pairs = [(jct(row), alone[row.name]) for row in rows if row.name in alone]
    if not pairs:
        return None
    return round(sum(shared for shared, _ in pairs) / sum(own for _, own in pairs), 4)


def _slower(rows: Iterable[job_log.JobRow], alone: Mapping[str, int]) -> float | None:
    extra = [(jct(row) - alone[row.name], alone[row.name]) for row in rows if row.name in alone]
    if not extra:
        return None
    slower = sum(more > 60 and more > own / 100 for more, own in extra)
    return round(100 * slower / len(extra), 2)


def _slowdown(row: job_log.JobRow) -> float:
    return max(1.0, jct(row) / max(row.duration_s, 10))


def _utilisation(log: job_log.Log, gpus: int) -> float:
    first = min(row.submit_s for row in log.rows.values())
    last = max(row.submit_s for row in log.rows.values())
    if last == first or not gpus:
        return 0.0
    used = sum(
        max(0, min(span.end, last) - max(span.start, first)) * span.gpus for span in log.runs
    )
    return round(100 * used / (gpus * (last - first)), 2)


def _hours(seconds: float) -> float:
    return round(seconds / HOUR, 2)


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 2) if values else None


def _jain(ended: Iterable[job_log.JobRow]) -> float | None:
    """Jain's index over queues: 1 if work of every queue is slowed down alike."""
    worked: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for row in ended:
        worked[row.queue] += row.duration_s * row.gpus
        present[row.queue] += jct(row) * row.gpus
    rates = [worked[queue] / present[queue] for queue in sorted(worked)]
    if not rates:
        return None
    squares = len(rates) * sum(rate * rate for rate in rates)
    return round(sum(rates) ** 2 / squares, 4)
