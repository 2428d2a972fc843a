"""Runs the engine event by event at one size, in a process of its own; prints the figures as JSON.

Jobs arrive and end in virtual time. Each arrival, and each end while work waits, is one decision about every pending
pod, without a bound on steps; its plan is carried out at once. Latency is the processor time of `decide`; events per
second count applying the events and carrying out plans as well, but not making the objects.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import batch_run, scale_jobs
from bench.batch_worlds import GPUS, Devices, Site
from bench.scale_jobs import Job, Jobs, Objects
from dovetail.model import plan
from dovetail.schedule import decide as cycle
from dovetail.world.events import Changed, Deleted

MOST_IN_A_ROW = 4  # decisions after one event, where evictions make room


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is run."""

    gpus: int
    jobs: int  # that arrive after the start
    load: float = 0.8
    seed: int = 1
    limit_seconds: float = 600.0  # processor time of the engine; then the run ends early


class Run:
    """A cluster, its jobs, and what the engine took so far."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        began = time.process_time()
        self.site = Site(settings.gpus // GPUS, Devices.CLAIMS)
        for name in scale_jobs.QUEUES:
            self.site.queue(name, settings.gpus // len(scale_jobs.QUEUES))
        self.build_seconds = time.process_time() - began
        self._jobs: dict[str, tuple[Job, Objects]] = {}  # by pod
        self._waiting: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self.seconds = 0.0
        self.latencies: list[float] = []
        self.counts: Counter[str] = Counter()

    def fill(self) -> float:
        """Starts what runs at the beginning, in one decision; returns how long that took."""
        jobs = Jobs(self._settings.gpus, load=self._settings.load, seed=self._settings.seed)
        for job in jobs.at_start():
            self._submit(job)
        before = self.seconds
        self._decide(0.0)
        self.latencies.clear()
        self._arriving = jobs.arriving(self._settings.jobs)
        return self.seconds - before

    def live(self) -> None:
        """Lets all jobs arrive, and all that end before the last arrival end."""
        for job in self._arriving:
            objects = scale_jobs.objects_of(job)
            while self._ends and self._ends[0][0] <= job.arrives:
                self._end(*heapq.heappop(self._ends))
            self.counts["arrivals"] += 1
            self._submit(job, objects)
            self._decide(job.arrives)
            if self.seconds > self._settings.limit_seconds:
                break

    def _submit(self, job: Job, objects: Objects | None = None) -> None:
        objects = objects or scale_jobs.objects_of(job)
        pod_id = objects.pod.metadata.uid
        self._jobs[pod_id] = (job, objects)
        self._waiting.add(pod_id)
        with self._timed():
            self.site.world.apply(Changed(objects.claim))
            self.site.world.apply(Changed(objects.pod))

    def _end(self, now: float, pod_id: str) -> None:
        if pod_id not in self._jobs:
            return  # evicted before
        self.counts["ends"] += 1
        self._remove(pod_id)
        if self._waiting:
            self._decide(now)

    def _remove(self, pod_id: str) -> Job:
        job, objects = self._jobs.pop(pod_id)
        with self._timed():
            self.site.world.apply(Deleted(objects.pod))
            self.site.world.apply(Deleted(objects.claim))
        return job

    def _decide(self, now: float) -> None:
        for _ in range(MOST_IN_A_ROW):
            began = time.process_time()
            decided = cycle.decide(self.site.world, now=scale_jobs.instant(now))
            took = time.process_time() - began
            self.seconds += took
            self.latencies.append(took)
            self._carry_out(decided, now)
            if not decided.evictions:
                return

    def _carry_out(self, decided: plan.Plan, now: float) -> None:
        for placement in decided.placements:
            job, objects = self._jobs[placement.pod.uid]
            (allocation,) = placement.allocations
            placed = scale_jobs.bound(objects, allocation.result, placement.node, now)
            self._jobs[placement.pod.uid] = (job, placed)
            self._waiting.discard(placement.pod.uid)
            heapq.heappush(self._ends, (now + job.runs, placement.pod.uid))
            self.counts["starts"] += 1
            with self._timed():
                self.site.world.apply(Changed(placed.claim))
                self.site.world.apply(Changed(placed.pod))
        for eviction in decided.evictions:
            job = self._remove(eviction.pod.uid)
            self.counts["evictions"] += 1
            self._submit(job._replace(restarts=job.restarts + 1))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began

    @property
    def running(self) -> int:
        """Jobs that run."""
        return len(self._jobs) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)


def measured(settings: Settings, *, settles: bool = True) -> dict[str, Any]:
    """The figures of one size; with `settles`, the collector is set as the scheduler sets it."""
    run = Run(settings)
    if settles:
        batch_run.settle()
    fill_seconds = run.fill()
    if settles:
        batch_run.settle()
    running_at_start, before = run.running, run.seconds
    run.live()
    seconds = run.seconds - before
    events = run.counts["arrivals"] + run.counts["ends"]
    overlaps = run.site.world.overlaps()
    figures = {
        "gpus": settings.gpus,
        "jobs": run.counts["arrivals"],
        "runningAtStart": running_at_start,
        "running": run.running,
        "waiting": run.waiting,
        "evictions": run.counts["evictions"],
        "events": events,
        "decisions": len(run.latencies),
        "engineSeconds": round(seconds, 2),
        "eventsPerSecond": round(events / seconds, 1),
        "latencyMs": _percentiles(run.latencies),
        "fillSeconds": round(fill_seconds, 2),
        "buildSeconds": round(run.build_seconds, 2),
        "peakMiB": _peak_mib(),
    }
    if run.counts["arrivals"] < settings.jobs:
        figures["cutAfterSeconds"] = settings.limit_seconds
    return figures | ({"wrong": f"devices given twice: {overlaps[0]}"} if overlaps else {})


def _peak_mib() -> int:
    """The most memory that this program had resident; `getrusage` would count the parent's from before the start."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ranked = sorted(seconds)

    def at(part: float) -> float:
        return round(1000 * ranked[min(int(part * len(ranked)), len(ranked) - 1)], 2)

    return {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)}


if __name__ == "__main__":
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    print(msgspec.json.encode(measured(settings)).decode())
