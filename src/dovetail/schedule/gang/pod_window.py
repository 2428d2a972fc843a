"""Keeps pods that wait alone in order, and decides which of very many one decision sees.

Given the jobs of single pods as they come and go. Where they are few, all are seen. Else each queue shows its first
ones and as many of those that had no turn in the round, so that a decision costs no more because more pods wait.
The demand of the others is counted without looking at them. Never decides.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from dovetail.schedule.gang.jobs import SinglePodJob
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.step_budget import Rounds

SEEN: Final = 2_048  # single pods that one decision sees, besides those it has to
Key = tuple[int, datetime.datetime, str]
_Entry = tuple[Key, SinglePodJob]


class PendingPods:
    """The pods that wait alone, by queue in their order."""

    def __init__(self) -> None:
        self.jobs: dict[str, SinglePodJob] = {}  # by id
        self._rows: dict[str, list[_Entry]] = {}  # by queue
        self._unsorted: set[str] = set()  # queues whose row is out of order
        self._outdated = 0  # entries in rows of jobs that are gone or replaced

    def __len__(self) -> int:
        return len(self.jobs)

    def put(self, job: SinglePodJob) -> None:
        """Adds a job, or replaces it."""
        self.drop(job.id)
        self.jobs[job.id] = job
        key = (-job.priority, job.created, job.name)
        self._rows.setdefault(job.queue, []).append((key, job))
        self._unsorted.add(job.queue)

    def drop(self, job_id: str) -> None:
        """Removes a job. Its entry stays in the row until so many are outdated that the rows are cleaned up."""
        if self.jobs.pop(job_id, None) is not None:
            self._outdated += 1

    def window(self, rounds: Rounds, order: Iterable[int]) -> list[SinglePodJob]:
        """The first of each queue, and the first of those without a turn in the earliest action that lacks any."""
        all_rows = [self._row(queue) for queue in sorted(self._rows)]
        rows = [row for row in all_rows if row]
        share = max(SEEN // 2 // max(len(rows), 1), 1)
        shown: list[SinglePodJob] = []
        for row in rows:
            shown += row[:share]
        shown += _first_without_turn(rows, rounds, order, share)
        by_id = {job.id: job for job in shown}
        return list(by_id.values())

    def counts(self) -> Counter[str]:
        """By queue, how many there are."""
        return Counter({queue: len(self._row(queue)) for queue in self._rows})

    def lacks(self, rounds: Rounds, step: int, seen: Collection[str]) -> bool:
        """Whether any job that is not seen had no turn in an action."""
        return any(
            not rounds.had_turn(job, step) for job in self.jobs.values() if job.id not in seen
        )

    def _row(self, queue: str) -> list[SinglePodJob]:
        if self._outdated > len(self.jobs) // 2 + SEEN:
            self._clean_up()
        row = self._rows[queue]
        if queue in self._unsorted:
            self._unsorted.discard(queue)
            row.sort(key=_key)
        if not self._outdated:
            return [job for _, job in row]
        return [job for _, job in row if self.jobs.get(job.id) is job]

    def _clean_up(self) -> None:
        for queue, row in self._rows.items():
            self._rows[queue] = [entry for entry in row if self.jobs.get(entry[1].id) is entry[1]]
        self._outdated = 0


class PendingDemand:
    """What the pods that wait alone cost at most, counted as they come and go."""

    def __init__(self) -> None:
        self._by_job: dict[str, tuple[str, Amounts]] = {}  # its queue and its cost
        self._counts: Counter[tuple[str, int]] = Counter()  # by queue and identity of the cost
        self._costs: dict[int, Amounts] = {}  # by identity; equal costs are mostly one object

    def put(self, job_id: str, queue: str, cost: Amounts) -> None:
        """Adds the demand of a job, or replaces it."""
        self.drop(job_id)
        self._by_job[job_id] = (queue, cost)
        self._costs[id(cost)] = cost
        self._counts[queue, id(cost)] += 1

    def drop(self, job_id: str) -> None:
        """Removes the demand of a job."""
        demand = self._by_job.pop(job_id, None)
        if demand is not None:
            queue, cost = demand
            self._counts[queue, id(cost)] -= 1

    def unseen(self, seen: Iterable[str]) -> Iterator[tuple[str, Amounts, int]]:
        """The demand of the jobs that are not among `seen`: queue, cost, and how many jobs have that cost."""
        counts = Counter(self._counts)
        for job_id in seen:
            demand = self._by_job.get(job_id)
            if demand is not None:
                queue, cost = demand
                counts[queue, id(cost)] -= 1
        for (queue, cost_id), count in counts.items():
            if count > 0:
                yield queue, self._costs[cost_id], count


def _first_without_turn(
    rows: Iterable[list[SinglePodJob]], rounds: Rounds, order: Iterable[int], share: int
) -> list[SinglePodJob]:
    """For the earliest action that any of these jobs had no turn in, the first such jobs of each row."""
    for step in order:
        late = [job for row in rows for job in _without_turn(row, rounds, step, share)]
        if late:
            return late
    return []


def _without_turn(
    row: list[SinglePodJob], rounds: Rounds, step: int, most: int
) -> list[SinglePodJob]:
    """The first jobs of a row that had no turn in an action of this round."""
    late: list[SinglePodJob] = []
    for job in row:
        if not rounds.had_turn(job, step):
            late.append(job)
            if len(late) >= most:
                break
    return late


def _key(entry: _Entry) -> Key:
    return entry[0]
