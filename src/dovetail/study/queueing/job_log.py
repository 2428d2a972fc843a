"""What happened to every job of a run: its starts, interruptions and end, and the cluster's use at every event.

Given the jobs and what a run reports, in seconds since its beginning. Never judges, never reads a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.study.queueing import job_list, usage_curve

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


class Span(NamedTuple):
    """A job runs, or waits, from one second to another."""

    start: int
    end: int
    gpus: int
    queue: str


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
        self.lost_gpu_seconds: Counter[str] = Counter()  # by what interrupted the job
        self.evictions: Counter[str] = Counter()  # by queue
        self.runs: list[Span] = []
        self.curve = usage_curve.Curve()
        self._waits: list[Span] = []
        self._pod_sizes = {job.name: job.gpus_per_pod for job in jobs}
        self._waiting_since: dict[str, int] = {}
        self._running_since: dict[str, int] = {}
        self._waiting_sizes: Counter[int] = Counter()  # waiting jobs by GPUs of a pod
        self._waiting_gpus = 0
        self._used_gpus = 0

    @property
    def waiting_jobs(self) -> int:
        """Jobs that wait now."""
        return len(self._waiting_since)

    @property
    def waiting_gpus(self) -> int:
        """GPUs of all jobs that wait now."""
        return self._waiting_gpus

    def has_started(self, name: str) -> bool:
        """Whether the job started before now, and was interrupted since."""
        return bool(self.rows[name].interruptions)

    def submit(self, name: str) -> None:
        """The job waits from its submission on."""
        row = self.rows[name]
        self._wait(row, row.submit_s)

    def start(self, name: str, second: int) -> None:
        """The job holds its GPUs from now on."""
        row = self.rows[name]
        if row.first_start_s is None:
            row.first_start_s = second
        since = self._waiting_since.pop(name)
        if second > since:
            self._waits.append(Span(since, second, row.gpus, row.queue))
        row.waiting_s += second - since
        self._running_since[name] = second
        self._waiting_sizes[self._pod_sizes[name]] -= 1
        self._waiting_gpus -= row.gpus
        self._used_gpus += row.gpus
        self.starts += 1

    def interrupt(self, name: str, second: int, *, what: str, lost_seconds: int) -> None:
        """The job loses its GPUs and waits again."""
        row = self.rows[name]
        row.interruptions += 1
        row.lost_gpu_s += lost_seconds * row.gpus
        self.interruptions[what] += 1
        self.lost_gpu_seconds[what] += lost_seconds * row.gpus
        if what == EVICTED:
            self.evictions[row.queue] += 1
        self._leave(row, second)
        self._wait(row, second)

    def end(self, name: str, second: int) -> None:
        """The job is done."""
        row = self.rows[name]
        row.end_s = second
        self.ended += 1
        self._leave(row, second)

    def decided(self, second: int, free_nodes: Iterable[tuple[int, int]]) -> None:
        """All starts and evictions of this second are known; given how many nodes have so many free GPUs."""
        sizes = [size for size, jobs in self._waiting_sizes.items() if jobs]
        too_few = 0
        if sizes:
            smallest = min(sizes)
            too_few = sum(free * nodes for free, nodes in free_nodes if free < smallest)
        self.curve.note(
            second,
            usage_curve.Level(
                used_gpus=self._used_gpus,
                waiting_gpus=self._waiting_gpus,
                waiting_jobs=len(self._waiting_since),
                too_few_gpus=too_few,
            ),
        )

    def waits(self) -> list[Span]:
        """All waiting, of jobs that never started until the last event."""
        last = self.curve.last_second
        rest = [
            Span(since, last, self.rows[name].gpus, self.rows[name].queue)
            for name, since in self._waiting_since.items()
            if last > since
        ]
        return self._waits + rest

    def _wait(self, row: JobRow, second: int) -> None:
        self._waiting_since[row.name] = second
        self._waiting_sizes[self._pod_sizes[row.name]] += 1
        self._waiting_gpus += row.gpus

    def _leave(self, row: JobRow, second: int) -> None:
        self.runs.append(Span(self._running_since.pop(row.name), second, row.gpus, row.queue))
        self._used_gpus -= row.gpus
