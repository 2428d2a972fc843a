"""Decides whose turn it is: between queues by what they are due, within a queue by priority and age.

A queue is judged together with the job it would start next; victims are found in the reverse order, a queue being
judged without those it already lost and without the next. Total: names decide in the end. Never places.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from dovetail.schedule import steps
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.accounts import Account, Accounts
from dovetail.schedule.queues.amounts import ENDLESS

Key = tuple[object, ...]
T = TypeVar("T")
_KEY: Final = operator.itemgetter(0)
_NOBODY: Final = (None, None)  # a queue that has nobody left to yield


def queue_key(account: Account, accounts: Accounts, job: Mapping[str, int], *, less: Mapping[str, int]) -> Key:
    """Lower comes first. `job` is what it would start, `less` what is to be taken as no longer charged."""
    held = amounts.minus(account.charged, less) if less else account.charged
    due = account.allocatable
    is_over = exceeds_quota = uses_undue = False
    with_job = without = -ENDLESS
    for name in accounts.resources:  # one round for all: this is asked for every job
        own = held.get(name, 0)
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


def _share(account: Account, accounts: Accounts, name: str, held: int) -> float:
    """The part of what it may have of one resource."""
    due = account.allocatable[name]
    if due == ENDLESS:
        due = accounts.capacity.get(name, 0)
        return held / due if due else 0.0
    return held / due if due else held / amounts.unit(name) * 1000


def dominant_share(account: Account, accounts: Accounts) -> float:
    """The largest part of what it may have that it uses."""
    return max(_share(account, accounts, name, account.charged.get(name, 0)) for name in accounts.resources)


def job_key(job: Job) -> Key:
    """Lower comes first. Among those whose age counts no more the larger, who starve behind the small otherwise.

    Whom a node is kept for comes before its equals: nobody else gets what pods leave that were ended for it.
    """
    size = job.asked().get(amounts.GPU, 0) if job.is_aged else 0
    return (-job.priority, not job.is_kept, job.fullness, not job.is_aged, -size, job.created, job.name)


def victim_key(job: Job, gone: Collection[str], toll: Key) -> Key:
    """Higher yields first: what is idle, the less important, what has more than its minimum, by toll, the younger."""
    is_idle = job.idle_since is not None
    return (is_idle, -job.priority, job.fullness_without(gone), *toll, job.created, job.name)


class Reversed(Generic[T]):
    """Compares the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: T) -> None:
        self.key = key

    def __lt__(self, other: Reversed[T]) -> bool:
        return bool(other.key < self.key)  # type: ignore[operator]


class Line:
    """Jobs in the order of their queues and their own; each is taken out, and may be put back when its turn is over."""

    def __init__(self, accounts: Accounts, jobs: Iterable[Job]) -> None:
        self._accounts = accounts
        self._count = itertools.count()
        self._leaves: dict[str, _Row] = {}
        self._heaps: dict[str | None, list[tuple[Key, int, Account]]] = {}  # by parent, None for the roots
        self._listed: set[str] = set()
        by_queue: dict[str, list[Job]] = {}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        for name, listed in by_queue.items():
            self._leaves[name] = _Row(listed)
            for account in reversed([*accounts.by_name[name].lineage()]):
                self._list(account)

    def _list(self, account: Account) -> None:
        if account.name in self._listed:
            return
        self._listed.add(account.name)
        parent = account.parent.name if account.parent is not None else None
        self._heaps.setdefault(parent, []).append(((), 0, account))  # keyed once everybody is there

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
        return queue_key(account, self._accounts, job.asked(), less={}), next(self._count), account

    def key_all(self) -> None:
        """Works out the order anew: charges changed in many places."""
        self._key_below(None)

    def _key_below(self, parent: str | None) -> None:
        for _, _, account in self._heaps.get(parent, ()):
            self._key_below(account.name)
        fresh = [entry for _, _, account in self._heaps.get(parent, ()) if (entry := self._keyed(account)) is not None]
        heapq.heapify(fresh)
        self._heaps[parent] = fresh

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
                    heapq.heappush(self._heaps[account.parent.name if account.parent is not None else None], entry)

    def put_back(self, job: Job) -> None:
        """The job that was taken last has more to start."""
        self._leaves[job.queue].put_back(job)


class _Row:
    """The jobs of one queue in order: sorted once, for hardly anybody comes back."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._sorted = sorted(((job_key(job), job) for job in jobs), key=_KEY, reverse=True)  # the last is next
        self._back: list[tuple[Key, int, Job]] = []
        self._count = itertools.count()

    def first(self) -> Job | None:
        """The next."""
        if self._is_back_first():
            return self._back[0][2]
        return self._sorted[-1][1] if self._sorted else None

    def taken(self) -> Job:
        """The same, and out of the row."""
        return heapq.heappop(self._back)[2] if self._is_back_first() else self._sorted.pop()[1]

    def put_back(self, job: Job) -> None:
        """A job that was taken is in the row again."""
        heapq.heappush(self._back, (job_key(job), next(self._count), job))

    def _is_back_first(self) -> bool:
        return bool(self._back) and (not self._sorted or self._back[0][0] < self._sorted[-1][0])


class Victims:
    """Portions of running jobs in the order in which they would have to yield."""

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
        self._spend = spend  # told of steps taken
        self._toll = toll  # what decides between jobs that are equal otherwise
        self._lost: dict[str, amounts.Amounts] = {}
        self._keys: dict[str, tuple[Key | None, Account | None]] = {}  # until the account changes
        self._rows: dict[str, list[tuple[Reversed[Key], int, Job]]] = {}
        self._count = itertools.count()
        self._taken: dict[str, set[str]] = {}  # by job, pods already offered
        for job in jobs:
            spend(1)
            key = victim_key(job, (), toll(job))
            self._rows.setdefault(job.queue, []).append((Reversed(key), next(self._count), job))
        for row in self._rows.values():
            heapq.heapify(row)

    def __iter__(self) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """Surplus pods one by one, then what is left of a job together."""
        while (leaf := self._last(self._accounts.roots)) is not None:
            _, _, job = heapq.heappop(self._rows[leaf.name])
            self._spend(steps.OFFERED + 3 * job.size // 16)  # it passes over the members a few times
            taken = self._taken.setdefault(job.id, set())
            portion = job.portion(taken)
            taken.update(portion)
            cost = self._cost(job, portion)
            for account in leaf.lineage():
                amounts.add(self._lost.setdefault(account.name, {}), cost)
                self._keys.pop(account.name, None)
            if job.portion(taken):
                key = victim_key(job, taken, self._toll(job))
                heapq.heappush(self._rows[leaf.name], (Reversed(key), next(self._count), job))
            yield job, portion

    def _last(self, siblings: Iterable[Account]) -> Account | None:
        """The leaf that has to give next: at every level the queue whose turn would come last."""
        able = [account for account in siblings if self._keys.get(account.name) != _NOBODY]
        if len(able) == 1:
            return self._leaf(able[0])  # whatever its key is
        best: tuple[Key, Account] | None = None
        for account in able:
            known = self._keys.get(account.name)
            if known is None:
                known = self._keys[account.name] = self._keyed(account)
            if known[0] is not None and known[1] is not None and (best is None or best[0] < known[0]):
                best = (known[0], known[1])
        return best[1] if best is not None else None

    def _leaf(self, account: Account) -> Account | None:
        leaf = account if self._rows.get(account.name) else self._last(account.children)
        if leaf is None:
            self._keys[account.name] = _NOBODY
        return leaf

    def _keyed(self, account: Account) -> tuple[Key | None, Account | None]:
        leaf = self._leaf(account)
        if leaf is None:
            return _NOBODY
        job = self._rows[leaf.name][0][2]
        portion = job.portion(self._taken.get(job.id, set()))
        cost = self._cost(job, portion)
        less = amounts.plus(self._lost.get(account.name, {}), cost)
        return queue_key(account, self._accounts, cost, less=less), leaf
