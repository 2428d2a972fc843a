"""What is left of every job's work: attempts that end in a failure, interruptions, and what the last checkpoint kept.

Given jobs, the assumptions of a study and a seed from which failures are drawn. Writes into the log of the run. Never
decides, never reads a clock.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from dovetail.study.queueing import job_list, job_log, study_file

HOUR: Final = 3600


class JobAttempts:
    """Jobs between their submission and their end."""

    def __init__(
        self, jobs: Sequence[job_list.Job], *, study: study_file.Study, seed: int, log: job_log.Log
    ) -> None:
        self._study = study
        self._log = log
        self._random = random.Random(seed)  # noqa: S311 (a study, not a secret)
        self._remaining = {job.name: job.duration_seconds for job in jobs}
        self._work_begins: dict[str, int] = {}  # by running job
        self._attempt_seconds: dict[str, int] = {}
        self._failing: set[str] = set()  # jobs whose present attempt ends in a failure

    def is_running(self, job: job_list.Job) -> bool:
        """Whether the job holds GPUs."""
        return job.name in self._work_begins

    def fails(self, job: job_list.Job) -> bool:
        """Whether the present attempt ends in a failure."""
        return job.name in self._failing

    def seconds(self, job: job_list.Job) -> int:
        """How long an attempt lasts: delays, and the work that is left or done before it fails."""
        if job.name not in self._attempt_seconds:
            self._attempt_seconds[job.name] = self._draw(job)
        return self._delay(job) + self._attempt_seconds[job.name]

    def start(self, job: job_list.Job, second: int) -> None:
        """The job holds its GPUs from now on."""
        self._work_begins[job.name] = second + self._delay(job)
        self._log.start(job.name, second)

    def end(self, job: job_list.Job, second: int) -> None:
        """The work is done."""
        del self._work_begins[job.name]
        self._log.end(job.name, second)

    def interrupt(self, job: job_list.Job, second: int, what: str) -> None:
        """The job loses its GPUs; the work up to its last checkpoint is kept."""
        worked = max(0, second - self._work_begins.pop(job.name))
        checkpoint = self._study.checkpoint_seconds
        saved = worked // checkpoint * checkpoint if checkpoint else 0
        saved = min(saved, self._remaining[job.name] - 1)
        self._remaining[job.name] -= saved
        self._attempt_seconds.pop(job.name, None)
        self._failing.discard(job.name)
        self._log.interrupt(job.name, second, what=what, lost_seconds=worked - saved)

    def _delay(self, job: job_list.Job) -> int:
        restart = self._study.restart_seconds if self._log.has_started(job.name) else 0
        return self._study.provisioning_seconds + restart

    def _draw(self, job: job_list.Job) -> int:
        remaining = self._remaining[job.name]
        mean_gpu_hours = self._study.failure_mean_gpu_hours
        if mean_gpu_hours is None:
            return remaining
        until_failure = self._random.expovariate(job.gpus / (mean_gpu_hours * HOUR))
        if until_failure >= remaining:
            return remaining
        self._failing.add(job.name)
        return max(1, int(until_failure))
