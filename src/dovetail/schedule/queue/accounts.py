"""Keeps each queue's quota, fair share and charges: a tree of accounts, charged from the leaf to the root.

Given the queues a decision may use. Work without a queue has an account as well, with no quota and a share of
whatever is left. Never places, never compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.kubetypes.custom import queues
from dovetail.quantity import quantity
from dovetail.schedule import pod_order
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.amounts import ENDLESS, Amounts, Bounds

NO_QUEUE: Final = ""  # the account of work that names no queue


def display_name(queue: str) -> str:
    """The name of an account in messages."""
    return f"queue {queue}" if queue != NO_QUEUE else "work without a queue"


class Account:
    """One queue."""

    __slots__ = (
        "allocatable",
        "charged",
        "children",
        "created",
        "fair",
        "fixed",
        "is_bounded",
        "limit",
        "name",
        "parent",
        "priority",
        "queue",
        "quota",
        "requested",
        "waiting",
        "weight",
    )

    def __init__(self, name: str, queue: queues.Queue | None, *, enforces: bool) -> None:
        spec = queue.spec if queue is not None else queues.QueueSpec()
        self.name = name
        self.queue = queue
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.priority = spec.priority
        self.created = pod_order.instant(
            queue.metadata.creation_timestamp if queue is not None else None
        )
        shares = {amounts.canonical_name(name): share for name, share in spec.resources.items()}
        self.quota: Bounds = {name: _bound(name, share.quota, 0) for name, share in shares.items()}
        limits = {name: _bound(name, share.limit, ENDLESS) for name, share in shares.items()}
        self.limit: Bounds = {name: limit for name, limit in limits.items() if limit < ENDLESS}
        self.weight: Mapping[str, float] = {name: share.weight for name, share in shares.items()}
        if spec.power_cap_watts is not None:
            self.limit = {**self.limit, amounts.POWER: spec.power_cap_watts}
        if not enforces:
            self.quota = self.limit = {}
        self.is_bounded = bool(self.limit)  # it, or an ancestor, has a limit
        self.charged: Amounts = {}
        self.fixed: Amounts = {}  # charged by non-preemptible work
        self.waiting: Amounts = {}
        self.requested: Amounts = {}  # charged and waiting, when shares were divided
        self.fair: dict[str, float] = {}
        self.allocatable: dict[str, float] = {}

    def lineage(self) -> Iterator[Account]:
        """The account, its parent, and so on to the root."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def quota_of(self, name: str) -> float:
        """Its quota; without end where none is set."""
        return self.quota.get(name, ENDLESS)

    def limit_of(self, name: str) -> float:
        """Its limit; without end where none is set."""
        return self.limit.get(name, ENDLESS)


class Accounts:
    """All accounts of one decision."""

    def __init__(
        self, queue_by_name: Mapping[str, queues.Queue], *, enforces: bool, capacity: Amounts
    ) -> None:
        self.capacity = capacity
        self.by_name = {
            name: Account(name, queue, enforces=enforces) for name, queue in queue_by_name.items()
        }
        self.roots: list[Account] = []
        for name, queue in queue_by_name.items():
            account = self.by_name[name]
            parent = self.by_name.get(queue.spec.parent) if queue.spec.parent else None
            account.parent = parent
            siblings = self.roots if parent is None else parent.children
            siblings.append(account)
        for account in self.by_name.values():
            account.is_bounded = any(ancestor.limit for ancestor in account.lineage())

        without_queue = self.by_name[NO_QUEUE] = Account(NO_QUEUE, None, enforces=enforces)
        bounded = {name for account in self.by_name.values() for name in account.quota}
        if queue_by_name:
            without_queue.quota = dict.fromkeys(bounded, 0)
        self.roots.append(without_queue)
        self.resources = tuple(sorted(bounded | {amounts.CPU, amounts.MEMORY, amounts.GPU}))

    def charge(self, queue: str, cost: Mapping[str, int], *, is_fixed: bool, sign: int = 1) -> None:
        """Charges a queue and all its ancestors, or takes the charge back."""
        for account in self.by_name[queue].lineage():
            amounts.add(account.charged, cost, sign=sign)
            if is_fixed:
                amounts.add(account.fixed, cost, sign=sign)

    def wait(self, queue: str, cost: Mapping[str, int]) -> None:
        """Adds the demand of pending work of the queue."""
        for account in self.by_name[queue].lineage():
            amounts.add(account.waiting, cost)


def _bound(name: str, amount: quantity.Quantity | None, default: float) -> float:
    if amount is None:
        return default
    if amount.nanos >= queues.UNLIMITED.nanos:
        return ENDLESS
    return amount.nanos * amounts.scale(name) // 10**9
