"""Divides jobs by time: the first ones are searched on, the last ones judge. Shakes a part, to see how far luck goes.

Given jobs by submission. Shaking moves every submission a little at random (Tsafrir et al., MASCOTS 2007): a policy
whose lead depends on the exact second of an arrival loses it. Never runs anything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.study.queueing import job_list

LEAST_JOBS: Final = 5  # of either part
LEAST_SHAKE_SECONDS: Final = 60

Jobs = tuple[job_list.Job, ...]


class Parts(NamedTuple):
    """Both begin at second 0, on an empty fleet."""

    searched: Jobs
    held_out: Jobs


def divided(jobs: Sequence[job_list.Job], *, holdout: float) -> Parts:
    """The last part of the time between the first submission and the last is held out."""
    first, last = jobs[0].submit_seconds, jobs[-1].submit_seconds
    boundary = last - holdout * (last - first)
    early = [job for job in jobs if job.submit_seconds < boundary]
    late = [job for job in jobs if job.submit_seconds >= boundary]
    if min(len(early), len(late)) < LEAST_JOBS:
        raise errors.InputError(
            f"--holdout {holdout:g} leaves {len(early)} jobs to search on and {len(late)} to judge; "
            f"each needs {LEAST_JOBS}; more jobs, or another part"
        )
    return Parts(_from_zero(early), _from_zero(late))


def shaken(jobs: Sequence[job_list.Job], *, seed: int) -> Jobs:
    """The same jobs, each submitted up to the mean time between two submissions earlier or later."""
    chance = random.Random(seed)  # noqa: S311 (a study, not a secret)
    mean_gap = jobs[-1].submit_seconds / len(jobs)
    most = max(LEAST_SHAKE_SECONDS, round(mean_gap))
    moved = [
        msgspec.structs.replace(
            job, submit_seconds=max(0, job.submit_seconds + chance.randint(-most, most))
        )
        for job in jobs
    ]
    return tuple(sorted(moved, key=lambda job: (job.submit_seconds, job.name)))


def _from_zero(jobs: Sequence[job_list.Job]) -> Jobs:
    begin = jobs[0].submit_seconds
    return tuple(
        msgspec.structs.replace(job, submit_seconds=job.submit_seconds - begin) for job in jobs
    )
