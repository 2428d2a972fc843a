"""Draws a list of jobs where no trace is at hand: arrivals with a rhythm of days and weeks, sizes, durations.

Given the settings and a seed; the same ones always give the same jobs. Arrivals are a Poisson process whose rate
follows the hour of the day (most at 15:00) and falls at weekends; durations are lognormal; sizes follow a mix. Never
decides.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.study.queueing import job_list, study_file

DAY: Final = 86_400
BUSIEST_HOUR: Final = 15
# Shares of jobs by GPUs: small ones are many, large ones hold most of the GPU time, as in published traces.
SIZES: Final = {1: 0.62, 2: 0.1, 4: 0.1, 8: 0.13, 16: 0.035, 32: 0.015}
MOST_JOBS: Final = 2_000_000


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn. `load`: GPU time of all jobs by that of the fleet while jobs arrive."""

    days: float = 7.0
    load: float = 0.8
    median_seconds: float = 900.0
    spread: float = 1.8  # standard deviation of the logarithm of durations
    daily: float = 0.6  # 0: no rhythm; 1: nothing arrives at night
    weekend: float = 0.4  # rate of Saturday and Sunday by that of other days


def read(text: str) -> Arrivals:
    """Settings as `days=14,load=0.9`; what is left out keeps its default."""
    fields = {field.name: field.default for field in msgspec.structs.fields(Arrivals)}
    values: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if name not in fields:
            raise errors.InputError(f'--generate: no "{name}"; there are: {", ".join(fields)}')
        try:
            values[name] = float(value)
        except ValueError:
            raise errors.InputError(
                f'--generate: {name}: expected a number, got "{value}"'
            ) from None
    _check(values)
    return msgspec.convert(values, Arrivals)


def draw(
    arrivals: Arrivals,
    *,
    gpus_by_node: Sequence[int],
    queues: Sequence[study_file.StudyQueue],
    seed: int,
) -> tuple[job_list.Job, ...]:
    """The jobs, in the order of their submission. Queues get jobs in proportion to their quotas."""
    gpus, largest = sum(gpus_by_node), max(gpus_by_node)
    chance = random.Random(seed)  # noqa: S311 (a study, not a secret)
    sizes = {size: share for size, share in SIZES.items() if size <= gpus}
    mean_gpus = sum(size * share for size, share in sizes.items()) / sum(sizes.values())
    mean_seconds = arrivals.median_seconds * math.exp(arrivals.spread**2 / 2)
    rate = arrivals.load * gpus / (mean_gpus * mean_seconds)  # jobs a second, as a mean
    if rate * arrivals.days * DAY > MOST_JOBS:
        raise errors.InputError(
            f"--generate: {rate * arrivals.days * DAY:.0f} jobs are more than {MOST_JOBS}; "
            "fewer days, a lower load or a longer median"
        )
    peak = rate * _peak(arrivals)
    jobs: list[job_list.Job] = []
    second = chance.expovariate(peak)
    while second < arrivals.days * DAY:
        # Thinning: of arrivals at the highest rate, those are kept that the rate of the time allows.
        if chance.random() * _peak(arrivals) < _rhythm(arrivals, second):
            jobs.append(_job(chance, len(jobs), int(second), arrivals, sizes, queues, largest))
        second += chance.expovariate(peak)
    if not jobs:
        raise errors.InputError("--generate: no job arrived; more days or a higher load")
    return tuple(jobs)


def _check(values: dict[str, float]) -> None:
    limits = {"days": (0.01, 3650), "load": (0.01, 10), "median_seconds": (1, 10_000_000)}
    limits |= {"spread": (0, 4), "daily": (0, 1), "weekend": (0, 1)}
    for name, value in values.items():
        least, most = limits[name]
        if not least <= value <= most:
            raise errors.InputError(
                f"--generate: {name}: expected {least:g} to {most:g}, got {value:g}"
            )


def _peak(arrivals: Arrivals) -> float:
    return (1 + arrivals.daily) / _weekly_mean(arrivals)


def _rhythm(arrivals: Arrivals, second: float) -> float:
    """The rate at a time, by its mean over a week. Time begins on a Monday at midnight."""
    hour = second % DAY / 3600
    daily = 1 + arrivals.daily * math.cos((hour - BUSIEST_HOUR) / 24 * 2 * math.pi)
    is_weekend = second // DAY % 7 >= 5
    return daily * (arrivals.weekend if is_weekend else 1.0) / _weekly_mean(arrivals)


def _weekly_mean(arrivals: Arrivals) -> float:
    return (5 + 2 * arrivals.weekend) / 7


def _job(
    chance: random.Random,
    number: int,
    second: int,
    arrivals: Arrivals,
    sizes: dict[int, float],
    queues: Sequence[study_file.StudyQueue],
    largest: int,
) -> job_list.Job:
    gpus = chance.choices(list(sizes), weights=list(sizes.values()))[0]
    seconds = chance.lognormvariate(math.log(arrivals.median_seconds), arrivals.spread)
    queue = ""
    if queues:
        weights = [max(queue.quota, 1) for queue in queues]
        queue = chance.choices([queue.name for queue in queues], weights=weights)[0]
    return job_list.Job(
        name=f"g{number:07d}",
        submit_seconds=second,
        duration_seconds=min(max(1, round(seconds)), job_list.MAX_SECONDS),
        gpus=gpus,
        pods=job_list.equal_pods(gpus, most=min(largest, job_list.GPUS_PER_POD)),
        queue=queue,
    )
