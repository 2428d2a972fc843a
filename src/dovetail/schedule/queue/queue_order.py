"""Decides whose turn it is: between queues by their shares, within a queue by priority and age.

A queue is ranked together with the job it would start next. Victims come in the reverse order: a queue is ranked
without the pods it already lost and without the next ones. The order is total: names decide in the end. Never
places.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from dovetail.schedule import step_budget
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.accounts import Account, Accounts
from dovetail.schedule.queue.amounts import ENDLESS

Key = tuple[object, ...]
T = TypeVar("T")
_KEY: Final = operator.itemgetter(0)
_NO_VICTIM: Final = (None, None)  # of a queue that has nothing left to evict


def queue_key(
    account: Account, accounts: Accounts, job: Mapping[str, int], *, less: Mapping[str, int]
) -> Key:
    """Lower comes first. `job` is what it would start, `less` what counts as no longer charged."""
    charged = amounts.minus(account.charged, less) if less else account.charged
    due = account.allocatable
    is_over = exceeds_quota = uses_undue = False
    with_job = without = -ENDLESS
    for name in accounts.resources:  # one loop for all of it: this runs for every job
        own = charged.get(name, 0)
        then = own + job.get(name, 0)
        is_over = is_over or own > account.fair[name]
        exceeds_quota = exceeds_quota or then > account.quota.get(name, ENDLESS)
        uses_undue = uses_undue or (own > 0 and due[name] == 0)
        with_job = max(with_job, _share(account, accounts, name, then))
        without = max(without, _share(account, accounts, name, own))
    return (
        is_over,
        exceeds_quota,
        -account.priority,
        uses_undue,
        with_job,
        without,
        (due[amounts.GPU], due[amounts.CPU], due[amounts.MEMORY]),
        account.created,
        account.name,
    )


def _share(account: Account, accounts: Accounts, name: str, amount: int) -> float:
    """An amount as a part of what the account may have of one resource."""
    due = account.allocatable[name]
    if due == ENDLESS:
        due = accounts.capacity.get(name, 0)
        return amount / due if due else 0.0
    if due:
        return amount / due
    return amount / amounts.unit(name) * 1000  # nothing is due: any use ranks far behind


def dominant_share(account: Account, accounts: Accounts) -> float:
    """Its largest share over all resources."""
    charged = account.charged
    return max(_share(account, accounts, name, charged.get(name, 0)) for name in accounts.resources)


def job_key(job: Job) -> Key:
    """Lower comes first. Among jobs so old that age no longer counts the larger first: small ones would starve them.

    A job with a node kept for it comes before its equals: they must not get the capacity its victims leave.
    """
    size = job.next_cost().get(amounts.GPU, 0) if job.is_aged else 0
    return (
        -job.priority,
        not job.has_kept_node,
        job.fullness,
        not job.is_aged,
        -size,
        job.created,
        job.name,
    )


def victim_key(job: Job, gone: Collection[str], toll: Key) -> Key:
    """Higher is evicted first: idle ones, lower priority, more than the minimum, then by toll, the younger."""
    is_idle = job.idle_since is not None
    return (is_idle, -job.priority, job.fullness_without(gone), *toll, job.created, job.name)


class Reversed(Generic[T]):
    """Compares in reverse."""

    __slots__ = ("key",)

    def __init__(self, key: T) -> None:
        self.key = key

    def __lt__(self, other: Reversed[T]) -> bool:
        return bool(other.key < self.key)  # type: ignore[operator]


class JobQueue:
    """Jobs in the order of their queues and their own; each is taken out, and may be put back after its turn."""

    def __init__(self, accounts: Accounts, jobs: Iterable[Job]) -> None:
        self._accounts = accounts
        self._count = itertools.count()
        self._leaves: dict[str, _Row] = {}
        # By parent, None for the roots.
        self._heaps: dict[str | None, list[tuple[Key, int, Account]]] = {}
        self._listed: set[str] = set()
        by_queue: dict[str, list[Job]] = {}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        for name, queue_jobs in by_queue.items():
            self._leaves[name] = _Row(queue_jobs)
            for account in reversed([*accounts.by_name[name].lineage()]):
                self._list(account)

    def _list(self, account: Account) -> None:
        if account.name in self._listed:
            return
        self._listed.add(account.name)
        parent = account.parent.name if account.parent is not None else None
        self._heaps.setdefault(parent, []).append(((), 0, account))  # keyed once all are listed

    def _peek(self, account: Account) -> Job | None:
        """The job an account would start next."""
        own = self._leaves.get(account.name)
        if own is not None and (first := own.first()) is not None:
            return first
        heap = self._heaps.get(account.name)
        return self._peek(heap[0][2]) if heap else None

    def _keyed(self, account: Account) -> tuple[Key, int, Account] | None:
        job = self._peek(account)
        if job is None:
            return None
        return (
            queue_key(account, self._accounts, job.next_cost(), less={}),
            next(self._count),
            account,
        )

    def key_all(self) -> None:
        """Computes the whole order again, after charges changed in many places."""
        self._key_below(None)

    def _key_below(self, parent: str | None) -> None:
        for _, _, account in self._heaps.get(parent, ()):
            self._key_below(account.name)
        entries = [self._keyed(account) for _, _, account in self._heaps.get(parent, ())]
        heap = [entry for entry in entries if entry is not None]
        heapq.heapify(heap)
        self._heaps[parent] = heap

    def __iter__(self) -> Iterator[Job]:
        self.key_all()
        while True:
            path: list[Account] = []
            parent: str | None = None
            while heap := self._heaps.get(parent):
                _, _, account = heapq.heappop(heap)
                path.append(account)
                parent = account.name
            if not path:
                return
            yield self._leaves[path[-1].name].taken()
            for account in reversed(path):
                entry = self._keyed(account)
                if entry is not None:
                    above = account.parent.name if account.parent is not None else None
                    heapq.heappush(self._heaps[above], entry)

    def put_back(self, job: Job) -> None:
        """The job that was taken last has more to start."""
        self._leaves[job.queue].put_back(job)


class _Row:
    """The jobs of one queue in order: sorted once, as few come back."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        keyed = [(job_key(job), job) for job in jobs]
        self._sorted = sorted(keyed, key=_KEY, reverse=True)  # the last is next
        self._back: list[tuple[Key, int, Job]] = []
        self._count = itertools.count()

    def first(self) -> Job | None:
        """The next."""
        if self._is_back_first():
            return self._back[0][2]
        return self._sorted[-1][1] if self._sorted else None

    def taken(self) -> Job:
        """Takes the next out of the row."""
        if self._is_back_first():
            return heapq.heappop(self._back)[2]
        return self._sorted.pop()[1]

    def put_back(self, job: Job) -> None:
        """A job that was taken is in the row again."""
        heapq.heappush(self._back, (job_key(job), next(self._count), job))

    def _is_back_first(self) -> bool:
        return bool(self._back) and (not self._sorted or self._back[0][0] < self._sorted[-1][0])


class VictimOrder:
    """Groups of pods of running jobs, in the order in which they would be evicted."""

    def __init__(
        self,
        accounts: Accounts,
        jobs: Iterable[Job],
        *,
        cost: Callable[[Job, tuple[str, ...]], Mapping[str, int]],
        toll: Callable[[Job], Key] = lambda job: (),
        spend: Callable[[int], None] = lambda steps: None,
    ) -> None:
        self._accounts = accounts
        self._cost = cost
        self._spend = spend  # counts the steps taken
        self._toll = toll  # what decides between jobs that are equal otherwise
        self._lost: dict[str, amounts.Amounts] = {}
        self._keys: dict[str, tuple[Key | None, Account | None]] = {}  # until the account changes
        self._rows: dict[str, list[tuple[Reversed[Key], int, Job]]] = {}
        self._count = itertools.count()
        self._offered: dict[str, set[str]] = {}  # by job, pods already offered
        for job in jobs:
            spend(1)
            key = victim_key(job, (), toll(job))
            self._rows.setdefault(job.queue, []).append((Reversed(key), next(self._count), job))
        for row in self._rows.values():
            heapq.heapify(row)

    def __iter__(self) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """The surplus pods of a job one by one, then the rest of it together."""
        while (leaf := self._last(self._accounts.roots)) is not None:
            _, _, job = heapq.heappop(self._rows[leaf.name])
            self._spend(step_budget.OFFERED + 3 * job.size // 16)  # passes over the members
            offered = self._offered.setdefault(job.id, set())
            portion = job.next_victims(offered)
            offered.update(portion)
            cost = self._cost(job, portion)
            for account in leaf.lineage():
                amounts.add(self._lost.setdefault(account.name, {}), cost)
                self._keys.pop(account.name, None)
            if job.next_victims(offered):
                key = victim_key(job, offered, self._toll(job))
                heapq.heappush(self._rows[leaf.name], (Reversed(key), next(self._count), job))
            yield job, portion

    def _last(self, siblings: Iterable[Account]) -> Account | None:
        """The leaf queue that loses next: at every level the one whose turn would come last."""
        able = [account for account in siblings if self._keys.get(account.name) != _NO_VICTIM]
        if len(able) == 1:
            return self._leaf(able[0])  # whatever its key is
        best: tuple[Key, Account] | None = None
        for account in able:
            key, leaf = self._key_of(account)
            if key is None or leaf is None:
                continue
            if best is None or best[0] < key:
                best = (key, leaf)
        return best[1] if best is not None else None

    def _key_of(self, account: Account) -> tuple[Key | None, Account | None]:
        entry = self._keys.get(account.name)
        if entry is None:
            entry = self._keys[account.name] = self._keyed(account)
        return entry

    def _leaf(self, account: Account) -> Account | None:
        leaf = account if self._rows.get(account.name) else self._last(account.children)
        if leaf is None:
            self._keys[account.name] = _NO_VICTIM
        return leaf

    def _keyed(self, account: Account) -> tuple[Key | None, Account | None]:
        leaf = self._leaf(account)
        if leaf is None:
            return _NO_VICTIM
        job = self._rows[leaf.name][0][2]
        portion = job.next_victims(self._offered.get(job.id, set()))
        cost = self._cost(job, portion)
        less = amounts.plus(self._lost.get(account.name, {}), cost)
        return queue_key(account, self._accounts, cost, less=less), leaf
