"""What no policy can beat: lower bounds of the mean time from submission to end, and of the mean waiting.

Given jobs and a count of GPUs. The cluster counts as one machine that may be divided among jobs at will and at any
time: no nodes, no gangs, no queues, no cost of an eviction. Three bounds hold, and the largest is taken:

- every job takes its duration;
- shortest remaining GPU time first is best on such a machine if jobs could use all of it at once;
- a job that runs on no more than its own GPUs ends half its duration after the mean time of its work, at least, and the
  sum of these mean times is smallest if the smallest GPU time goes first, preemptively.

Pure.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from dovetail.study.queueing import job_list


class Bound(NamedTuple):
    """Seconds, as means over all jobs."""

    jct_s: float
    waiting_s: float


def bound(jobs: Sequence[job_list.Job], gpus: int) -> Bound:
    """The largest of the bounds. Jobs stand in the order of submission; n log n."""
    durations = math.fsum(job.duration_seconds for job in jobs)
    ends, _ = _one_machine(jobs, gpus, by_remaining=True)
    _, mean_times = _one_machine(jobs, gpus, by_remaining=False)
    submitted = math.fsum(job.submit_seconds for job in jobs)
    jct = max(durations, ends - submitted, mean_times + durations / 2 - submitted)
    waiting = max(0.0, jct - durations)
    return Bound(round(jct / len(jobs), 2), round(waiting / len(jobs), 2))


def _one_machine(
    jobs: Sequence[job_list.Job], gpus: int, *, by_remaining: bool
) -> tuple[float, float]:
    """The sum of the ends, and of the mean times of work, on a machine that serves one job at a time."""
    ends = mean_times = 0.0
    now = 0.0
    queue: list[list[float]] = []  # rank, serial, remaining seconds, all seconds
    arrivals = [
        (job.submit_seconds, job.gpus * job.duration_seconds / gpus, serial)
        for serial, job in enumerate(jobs)
    ]
    for index, (submitted, work, serial) in enumerate(arrivals):
        now = max(now, submitted)
        heapq.heappush(queue, [work, serial, work, work])
        until = arrivals[index + 1][0] if index + 1 < len(arrivals) else math.inf
        while queue and now < until:
            head = queue[0]
            portion = min(head[2], until - now)
            mean_times += portion / head[3] * (now + portion / 2)
            now += portion
            head[2] -= portion
            if head[2] <= 1e-9 or now < until:
                ends += now
                heapq.heappop(queue)
            elif by_remaining:
                heapq.heapreplace(queue, [head[2], *head[1:]])
    return ends, mean_times
