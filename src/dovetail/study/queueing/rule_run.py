"""Runs a list of jobs under one of the queue rules in virtual time, from event to event.

Given the GPUs of the nodes, jobs, the assumptions of a study and a rule. Carries out what the rule says: starts, and
evictions that make room. Predictions come from jobs that have ended. Never reads a clock; chance comes from the seed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail import errors
from dovetail.study.queueing import (
    job_attempts,
    job_list,
    job_log,
    job_rules,
    node_room,
    past_runtimes,
    study_file,
)

Progress = Callable[[int, int], None]  # jobs that ended, of all
Group = tuple[str, int, int]  # jobs of one queue and shape: if the first has no room, none has


class _Entry(NamedTuple):
    rank: job_rules.Rank
    serial: int
    waiting: job_rules.Waiting


class RuleRun:
    """One run. Every event looks at the first job of each group only."""

    def __init__(
        self,
        gpus_by_node: Sequence[int],
        jobs: Sequence[job_list.Job],
        *,
        rule: job_rules.Rule,
        study: study_file.Study,
        seed: int = 0,
        past: past_runtimes.PastRuntimes | None = None,
    ) -> None:
        if study.node_loss is not None:
            raise errors.InputError("nodeLoss: only the policy dovetail knows lost nodes")
        self.log = job_log.Log(jobs)
        self._rule = rule
        self._jobs = {job.name: job for job in jobs}
        self._attempts = job_attempts.JobAttempts(jobs, study=study, seed=seed, log=self.log)
        self._past = past_runtimes.PastRuntimes() if past is None else past
        self._nodes = node_room.GpuNodes(gpus_by_node)
        self._view = _view(jobs, study, self._nodes.total)
        self._groups: dict[Group, list[_Entry]] = {}
        self._served: dict[str, int] = {}  # GPU-seconds before the present start
        self._arrivals = list(reversed(jobs))
        self._ends: list[tuple[int, int, str]] = []
        self._attempt: dict[str, int] = {}  # serial of the present attempt, by running job
        self._serial = itertools.count()

    def run(self, progress: Progress | None = None) -> job_log.Log:
        """Until all jobs have ended, or those that wait can never start."""
        while self.advance():
            self._schedule()
            self.settle()
            if progress is not None:
                progress(self.log.ended, len(self._jobs))
        return self.log

    # Steps, for those who decide themselves which job starts

    @property
    def view(self) -> job_rules.View:
        """The cluster as policies see it."""
        return self._view

    def advance(self) -> bool:
        """To the next end or submission; False where none is left."""
        second = self._next_second()
        if second is None:
            return False
        self._view.now = second
        self._end_due()
        self._submit_due()
        return True

    def settle(self) -> None:
        """All decisions of this second are made."""
        self.log.decided(self._view.now, self._nodes.counts())

    def first_waiting(self, count: int) -> list[job_rules.Waiting]:
        """The first waiting jobs in the order of the rule."""
        entries = itertools.chain.from_iterable(self._groups.values())
        first = heapq.nsmallest(count, entries, key=lambda entry: (entry.rank, entry.serial))
        return [entry.waiting for entry in first]

    def fits(self, job: job_list.Job) -> bool:
        """Whether all pods of the job have room now."""
        return self._nodes.fits(job.pods, job.gpus_per_pod)

    def start_waiting(self, waiting: job_rules.Waiting) -> None:
        """Starts a waiting job that fits, whatever the rule says."""
        job = waiting.job
        entries = self._groups[(job.queue, job.pods, job.gpus_per_pod)]
        entry = next(entry for entry in entries if entry.waiting is waiting)
        is_started = self._start(waiting)
        assert is_started, f"job {job.name} has no room"
        entries.remove(entry)
        heapq.heapify(entries)

    # Time

    def _next_second(self) -> int | None:
        seconds = [job.submit_seconds for job in self._arrivals[-1:]]
        seconds += [end for end, _, _ in self._ends[:1]]
        return min(seconds, default=None)

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self._view.now:
            second, serial, name = heapq.heappop(self._ends)
            if self._attempt.get(name) != serial:
                continue  # it was evicted since
            job = self._jobs[name]
            if self._attempts.fails(job):
                self._interrupt(self._view.running[name], job_log.FAILED)
                continue
            self._leave(self._view.running[name])
            self._attempts.end(job, second)
            self._view.demand[job.queue] -= job.gpus
            self._past.add(job)

    def _submit_due(self) -> None:
        while self._arrivals and self._arrivals[-1].submit_seconds <= self._view.now:
            job = self._arrivals.pop()
            self._view.demand[job.queue] += job.gpus
            self.log.submit(job.name)
            self._enqueue(job)

    def _enqueue(self, job: job_list.Job) -> None:
        waiting = job_rules.Waiting(
            job=job,
            predicted_seconds=self._past.predict(job),
            served_gpu_seconds=self._served.get(job.name, 0),
        )
        entries = self._groups.setdefault((job.queue, job.pods, job.gpus_per_pod), [])
        entry = _Entry(self._rule.job_rank(waiting), next(self._serial), waiting)
        heapq.heappush(entries, entry)

    # Decisions

    def _schedule(self) -> None:
        """Starts jobs in the order of the rule until none of the first ones of their groups can."""
        tried: set[Group] = set()
        spare: tuple[int, int] | None = None  # until when, and how many GPUs later jobs may use
        while (group := self._next_group(tried)) is not None:
            waiting = self._groups[group][0].waiting
            may_start = self._rule.may_start(waiting, self._view)
            if may_start and _is_harmless(waiting, spare, self._view.now) and self._start(waiting):
                heapq.heappop(self._groups[group])
                if spare is not None:
                    spare = _spent(spare, waiting, self._view.now)
                continue
            if self._rule.is_strict:
                return
            if self._rule.reserves and spare is None:
                spare = self._reservation(waiting)
            tried.add(group)

    def _next_group(self, tried: set[Group]) -> Group | None:
        best: tuple[float, job_rules.Rank, int] | None = None
        best_group = None
        for group, entries in self._groups.items():
            if not entries or group in tried:
                continue
            head = entries[0]
            rank = (self._rule.queue_rank(group[0], self._view), head.rank, head.serial)
            if best is None or rank < best:
                best, best_group = rank, group
        return best_group

    def _start(self, waiting: job_rules.Waiting) -> bool:
        job = waiting.job
        nodes = self._nodes.place(job.pods, job.gpus_per_pod)
        if nodes is None and self._rule.victims is not None:
            for victim in self._victims(waiting):
                self._interrupt(victim, job_log.EVICTED)
            nodes = self._nodes.place(job.pods, job.gpus_per_pod)
        if nodes is None:
            return False
        seconds = self._attempts.seconds(job)
        serial = next(self._serial)
        self._attempts.start(job, self._view.now)
        self._attempt[job.name] = serial
        heapq.heappush(self._ends, (self._view.now + seconds, serial, job.name))
        self._view.used[job.queue] += job.gpus
        self._view.running[job.name] = job_rules.Running(
            job=job,
            since=self._view.now,
            served_gpu_seconds=waiting.served_gpu_seconds,
            expected_end=self._view.now + waiting.predicted_seconds,
            nodes=nodes,
        )
        return True

    def _victims(self, waiting: job_rules.Waiting) -> list[job_rules.Running]:
        """The fewest of those that the rule offers, in its order, without which the job has room; else none."""
        assert self._rule.victims is not None
        job = waiting.job
        chosen: list[job_rules.Running] = []
        fits = False
        for victim in self._rule.victims(waiting, self._view):
            self._nodes.release(victim.nodes, victim.job.gpus_per_pod)
            chosen.append(victim)
            fits = self._nodes.fits(job.pods, job.gpus_per_pod)
            if fits:
                break
        needed = []
        for victim in reversed(chosen):
            self._nodes.take(victim.nodes, victim.job.gpus_per_pod)
            if fits and not self._nodes.fits(job.pods, job.gpus_per_pod):
                self._nodes.release(victim.nodes, victim.job.gpus_per_pod)
                needed.append(victim)
        for victim in needed:
            self._nodes.take(victim.nodes, victim.job.gpus_per_pod)
        return needed

    def _reservation(self, waiting: job_rules.Waiting) -> tuple[int, int]:
        """When the job is expected to have its GPUs, by count, and how many more are free then."""
        free = self._nodes.free_total
        end = self._view.now
        by_end = sorted(self._view.running.values(), key=lambda running: running.expected_end)
        for running in by_end:
            if free >= waiting.job.gpus:
                break
            free += running.job.gpus
            end = max(end, running.expected_end)
        return end, max(0, free - waiting.job.gpus)

    # Jobs

    def _interrupt(self, running: job_rules.Running, what: str) -> None:
        job = running.job
        served = (self._view.now - running.since) * job.gpus
        self._served[job.name] = running.served_gpu_seconds + served
        self._leave(running)
        self._attempts.interrupt(job, self._view.now, what)
        self._enqueue(job)

    def _leave(self, running: job_rules.Running) -> None:
        job = running.job
        self._nodes.release(running.nodes, job.gpus_per_pod)
        self._view.used[job.queue] -= job.gpus
        del self._view.running[job.name]
        del self._attempt[job.name]


def _view(jobs: Sequence[job_list.Job], study: study_file.Study, gpus: int) -> job_rules.View:
    quotas = {queue.name: queue.quota for queue in study.queues}
    weights = {queue.name: queue.weight for queue in study.queues}
    for queue in {job.queue for job in jobs} - set(quotas):
        # Jobs without a queue share what there is.
        quotas[queue], weights[queue] = (0 if study.queues else gpus), 1
    return job_rules.View(quotas, weights, gpus)


def _is_harmless(waiting: job_rules.Waiting, spare: tuple[int, int] | None, now: int) -> bool:
    """Whether the job leaves the reserved start of another one alone."""
    if spare is None:
        return True
    until, gpus = spare
    return now + waiting.predicted_seconds <= until or waiting.job.gpus <= gpus


def _spent(spare: tuple[int, int], started: job_rules.Waiting, now: int) -> tuple[int, int]:
    until, gpus = spare
    outlasts = now + started.predicted_seconds > until
    return until, gpus - started.job.gpus if outlasts else gpus
