"""Predicts how long a job will run from jobs that have ended: the median of the latest like it.

Given jobs as they end. A job is like another if it came to the same queue with as many GPUs, else if it has as many
GPUs. Never sees the duration of a job that still runs or waits.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from typing import Final

from dovetail.study.queueing import job_list

LATEST: Final = 100  # ended jobs of a kind that count
FEWEST: Final = 5  # below so many, a wider kind decides
UNKNOWN_SECONDS: Final = 3600  # before anything has ended

Kind = tuple[str, int]


class PastRuntimes:
    """Durations of ended jobs by kind."""

    def __init__(self) -> None:
        self._durations: dict[Kind, deque[int]] = defaultdict(lambda: deque(maxlen=LATEST))
        self._medians: dict[Kind, int] = {}

    def add(self, job: job_list.Job) -> None:
        """The job has ended."""
        for kind in _kinds(job):
            self._durations[kind].append(job.duration_seconds)
            self._medians.pop(kind, None)

    def predict(self, job: job_list.Job) -> int:
        """Seconds that a job just submitted is expected to run."""
        for kind in _kinds(job):
            if len(self._durations[kind]) >= FEWEST:
                return self._median(kind)
        return UNKNOWN_SECONDS

    def _median(self, kind: Kind) -> int:
        if kind not in self._medians:
            self._medians[kind] = round(statistics.median(self._durations[kind]))
        return self._medians[kind]


def _kinds(job: job_list.Job) -> tuple[Kind, Kind, Kind]:
    """From narrow to wide."""
    return (job.queue, job.gpus), ("*", job.gpus), ("*", 0)
