"""Which of very many pods that wait alone a bounded decision sees: the most important, and those whose turn it is.

Given the jobs of pods alone as they come and go. Where they are few everybody is seen. Else each queue shows its first
ones and as many of those that had no turn in the round, so that no decision costs more because more wait; what the rest
waits for is counted without them. Never decides.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from dovetail.schedule.gangs.jobs import Lone
from dovetail.schedule.queues.amounts import Amounts
from dovetail.schedule.steps import Rounds

SEEN: Final = 2_048  # pods alone that one decision sees beside those it has to
Key = tuple[int, datetime.datetime, str]


class Crowd:
    """The pods that wait alone, by queue in their order."""

    def __init__(self) -> None:
        self.jobs: dict[str, Lone] = {}  # by id
        self._rows: dict[str, list[tuple[Key, Lone]]] = {}
        self._unsorted: set[str] = set()  # queues whose row is out of order
        self._gone = 0  # entries in rows of jobs that are no more

    def __len__(self) -> int:
        return len(self.jobs)

    def put(self, job: Lone) -> None:
        """A job waits."""
        self.drop(job.id)
        self.jobs[job.id] = job
        key = (-job.priority, job.created, job.name)
        self._rows.setdefault(job.queue, []).append((key, job))
        self._unsorted.add(job.queue)

    def drop(self, id_: str) -> None:
        """A job waits no more, or is another."""
        if self.jobs.pop(id_, None) is not None:
            self._gone += 1

    def clear(self) -> None:
        """Nobody waits."""
        self.jobs.clear()
        self._rows.clear()
        self._unsorted.clear()
        self._gone = 0

    def window(self, rounds: Rounds, order: Iterable[int]) -> list[Lone]:
        """The first of each queue, and the first of those that had no turn in the earliest step that lacks any."""
        rows = [self._row(queue) for queue in sorted(self._rows)]
        rows = [row for row in rows if row]
        share = max(SEEN // 2 // max(len(rows), 1), 1)
        shown: dict[str, Lone] = {job.id: job for row in rows for job in row[:share]}
        for step in order:
            late = [job for row in rows for job in _late(row, rounds, step=step, most=share)]
            if late:
                shown.update((job.id, job) for job in late)
                break
        return list(shown.values())

    def counts(self) -> Counter[str]:
        """By queue, how many there are."""
        return Counter({queue: len(self._row(queue)) for queue in self._rows})

    def lacks(self, rounds: Rounds, step: int, seen: Collection[str]) -> bool:
        """Whether anybody who is not seen had no turn in a step."""
        return any(not rounds.has_looked(job, step) for job in self.jobs.values() if job.id not in seen)

    def _row(self, queue: str) -> list[Lone]:
        row = self._rows[queue]
        if self._gone > len(self.jobs) // 2 + SEEN:
            for name, listed in self._rows.items():
                self._rows[name] = [entry for entry in listed if self.jobs.get(entry[1].id) is entry[1]]
            self._gone = 0
            row = self._rows[queue]
        if queue in self._unsorted:
            self._unsorted.discard(queue)
            row.sort(key=_key)
        return [job for _, job in row if self.jobs.get(job.id) is job] if self._gone else [job for _, job in row]


class Demand:
    """What the pods that wait alone ask for, counted as they come and go."""

    def __init__(self) -> None:
        self._costs: dict[str, tuple[str, Amounts]] = {}  # by job, its queue and what it costs at most
        self._counts: Counter[tuple[str, int]] = Counter()
        self._amounts: dict[int, Amounts] = {}

    def put(self, id_: str, queue: str, cost: Amounts) -> None:
        """A job asks for so much."""
        self.drop(id_)
        self._costs[id_] = (queue, cost)
        self._amounts[id(cost)] = cost
        self._counts[queue, id(cost)] += 1

    def drop(self, id_: str) -> None:
        """A job asks for nothing any more."""
        known = self._costs.pop(id_, None)
        if known is not None:
            self._counts[known[0], id(known[1])] -= 1

    def clear(self) -> None:
        """Prices are others now."""
        self._costs.clear()
        self._counts.clear()
        self._amounts.clear()

    def beside(self, seen: Iterable[str]) -> Iterator[tuple[str, Amounts, int]]:
        """By queue, what those who are not seen ask for, and how often."""
        counts = Counter(self._counts)
        for id_ in seen:
            known = self._costs.get(id_)
            if known is not None:
                counts[known[0], id(known[1])] -= 1
        for (queue, cost), count in counts.items():
            if count > 0:
                yield queue, self._amounts[cost], count


def _late(row: list[Lone], rounds: Rounds, *, step: int, most: int) -> list[Lone]:
    late: list[Lone] = []
    for job in row:
        if not rounds.has_looked(job, step):
            late.append(job)
            if len(late) >= most:
                break
    return late


def _key(entry: tuple[Key, Lone]) -> Key:
    return entry[0]
