"""Compares policies on the same jobs: figures, curves over time, and how waiting is distributed.

Given a study, names of policies and a seed. Returns data that a table, a page or another program shows. Never prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dovetail.study.queueing import (
    job_log,
    run_figures,
    study_runs,
    waiting_bound,
)

PARTS: Final = 160  # of a curve
QUANTILES: Final = (*range(100), 99.5, 99.9, 100.0)  # percent of jobs

Progress = Callable[[int, int, int], None]  # number of the policy, jobs that ended, of all


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Means over equal parts of the time."""

    used_gpus: list[float]
    waiting_gpus: list[float]
    waiting_jobs: list[float]
    idle_wanted_gpus: list[float]
    unusable_gpus: list[float]


class PolicyResult(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. `waiting_quantiles_s`: seconds that so many percent of its ended jobs did not exceed."""

    policy: str
    figures: run_figures.Figures
    curves: Curves
    waiting_quantiles_s: list[float]
    queue_waiting_quantiles_s: dict[str, list[float]]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All policies on the same jobs."""

    study: str
    seed: int
    gpus: int
    jobs: int
    quotas: dict[str, int]
    until_s: int  # the end of the curves: the last submission and a tenth more
    quantiles_pct: list[float]
    bound_jct_s: float
    bound_waiting_s: float
    policies: list[PolicyResult]


def compare(
    given: study_runs.StudyInput,
    policies: Sequence[str],
    *,
    seed: int = 0,
    progress: Progress | None = None,
    done: Callable[[str, job_log.Log], None] | None = None,
) -> Comparison:
    """Runs one policy after the other; `done` gets the log of each."""
    alone = study_runs.alone(given, seed=seed)
    able = [job for job in given.jobs if job.gpus <= given.gpus]
    bound = waiting_bound.bound(able, given.gpus)
    until = max(1, given.jobs[-1].submit_seconds * 11 // 10)
    results = []
    for number, policy in enumerate(policies):

        def show(ended: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number, ended, total)

        log = study_runs.run(given, policy=policy, seed=seed, progress=show)
        figures = study_runs.figures(given, log, alone)
        results.append(_result(policy, log, figures, given.gpus, until))
        if done is not None:
            done(policy, log)
    return Comparison(
        study=given.name,
        seed=seed,
        gpus=given.gpus,
        jobs=len(given.jobs),
        quotas=study_runs.quotas(given),
        until_s=until,
        quantiles_pct=[float(percent) for percent in QUANTILES],
        bound_jct_s=bound.jct_s,
        bound_waiting_s=bound.waiting_s,
        policies=results,
    )


def _result(
    policy: str, log: job_log.Log, figures: run_figures.Figures, gpus: int, until: int
) -> PolicyResult:
    curve = log.curve
    ended = [row for row in log.rows.values() if row.end_s is not None]
    by_queue = {
        queue: [row.waiting_s for row in ended if row.queue == queue] for queue in figures.queues
    }

    def averages(value: run_figures.Value) -> list[float]:
        return curve.averages(value, until=until, parts=PARTS)

    return PolicyResult(
        policy=policy,
        figures=figures,
        curves=Curves(
            used_gpus=averages(lambda level: level.used_gpus),
            waiting_gpus=averages(lambda level: level.waiting_gpus),
            waiting_jobs=averages(lambda level: level.waiting_jobs),
            idle_wanted_gpus=averages(lambda level: run_figures.idle_wanted(level, gpus)),
            unusable_gpus=averages(lambda level: level.too_few_gpus),
        ),
        waiting_quantiles_s=_quantiles([row.waiting_s for row in ended]),
        queue_waiting_quantiles_s={queue: _quantiles(waits) for queue, waits in by_queue.items()},
    )


def _quantiles(waits: Sequence[int]) -> list[float]:
    if not waits:
        return []
    ordered = sorted(waits)
    last = len(ordered) - 1
    return [float(ordered[min(last, int(percent / 100 * len(ordered)))]) for percent in QUANTILES]
