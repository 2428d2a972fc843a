"""PodDisruptionBudgets during evictions: which budget covers a pod, and how many evictions each still allows.

Given a function that lists budgets; it is called again for every plan. Pods under one budget are evicted one after the
other: an API server that receives several evictions at once may grant some and refuse the rest. Where budgets cannot be
read, all pods of a namespace count as covered by one. Never grants an eviction: the API server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.evict")
ALL_NAMESPACES: Final = ""  # in place of a namespace: all namespaces
REFRESH_SECONDS: Final = 10.0  # between two lists of all budgets
UNREAD_SECONDS: Final = 300.0  # until the next list where budgets could not be read
UNREAD: Final = ""  # the budget name of a namespace whose budgets cannot be read

# Lists the budgets of one namespace, or of all.
Listing = Callable[[str], Awaitable[Sequence[disruption_budgets.PodDisruptionBudget]]]
Name = tuple[str, str]  # namespace and name of a budget


async def no_budgets(namespace: str) -> Sequence[disruption_budgets.PodDisruptionBudget]:
    """Lists nothing, for clusters without budgets."""
    return ()


class Budgets:
    """The budgets that cover the pods of one plan."""

    def __init__(
        self, by_namespace: Mapping[str, Sequence[disruption_budgets.PodDisruptionBudget] | None]
    ) -> None:
        self._by_namespace = by_namespace  # None where the budgets could not be read
        self._allowed: dict[Name, int] = {}  # evictions left, for budgets that could be read
        for budgets in by_namespace.values():
            for budget in budgets or ():
                self._allowed[_name(budget)] = budget.status.disruptions_allowed

        self._locks: dict[Name, asyncio.Lock] = {}

    def budget_of(self, pod: pods.Pod) -> Name | None:
        """The budget that covers a pod, if any. The first of several: the server refuses such a pod anyway."""
        budgets = self._by_namespace.get(pod.metadata.namespace)
        if budgets is None:
            return pod.metadata.namespace, UNREAD

        for budget in budgets:
            if disruption_budgets.covers(budget, pod):
                return _name(budget)
        return None

    @contextlib.asynccontextmanager
    async def exclusive(self, victims: Iterable[pods.Pod]) -> AsyncIterator[None]:
        """Holds the budgets of these victims, so that no other task evicts under them meanwhile."""
        names = {name for pod in victims if (name := self.budget_of(pod)) is not None}
        async with contextlib.AsyncExitStack() as locks:
            for name in sorted(names):  # the same order for every task, so no two can deadlock
                await locks.enter_async_context(self._locks.setdefault(name, asyncio.Lock()))
            yield

    def over_limit(self, victims: Iterable[pods.Pod]) -> list[pods.Pod]:
        """The victims that exceed their budgets once the ones before them are evicted."""
        counts: Counter[Name] = Counter()
        excess: list[pods.Pod] = []

        for pod in victims:
            name = self._charged_to(pod)
            if name is None:
                continue

            counts[name] += 1
            if counts[name] > self._allowed[name]:
                excess.append(pod)
        return excess

    def record_eviction(self, pod: pods.Pod) -> None:
        """Records an eviction: the pod's budget allows one fewer."""
        name = self._charged_to(pod)
        if name is not None:
            self._allowed[name] -= 1

    def _charged_to(self, pod: pods.Pod) -> Name | None:
        """The budget whose count an eviction of this pod lowers."""
        name = self.budget_of(pod)
        if name not in self._allowed or not disruption_budgets.is_counted(pod):
            return None
        return name


class BudgetRefresher:
    """Refreshes the World's budgets often enough for decisions, in clusters that have queues."""

    def __init__(
        self,
        listing: Listing,
        world: World,
        clock: clocks.Clock,
        *,
        loosened: Callable[[], None] = lambda: None,
    ) -> None:
        self._listing = listing
        self._world = world
        self._clock = clock
        self._loosened = loosened  # called when a pod became evictable
        self._next = 0.0
        self._is_busy = False

    @property
    def is_due(self) -> bool:
        """Whether it is time to list again and no list is under way."""
        if not self._world.queues or self._is_busy:
            return False
        return self._clock.monotonic() >= self._next

    async def refresh(self) -> None:
        """Lists the budgets of the whole cluster. Keeps the previous ones where they cannot be read."""
        if not self.is_due:
            return

        self._is_busy = True
        try:
            budgets = await _listed(self._listing, ALL_NAMESPACES)
        finally:
            self._is_busy = False

        pause = REFRESH_SECONDS if budgets is not None else UNREAD_SECONDS
        self._next = self._clock.monotonic() + pause
        if budgets is not None and self._world.budget_protection.put(budgets):
            self._world.changes += 1
            self._loosened()


async def read(listing: Listing, namespaces: Iterable[str]) -> Budgets:
    """The budgets of these namespaces as they are now."""
    names = sorted(set(namespaces))
    budgets = await asyncio.gather(*(_listed(listing, name) for name in names))
    return Budgets(dict(zip(names, budgets, strict=True)))


async def _listed(
    listing: Listing, namespace: str
) -> Sequence[disruption_budgets.PodDisruptionBudget] | None:
    try:
        return await listing(namespace)
    except failures.Fenced:
        raise
    except failures.ApiFailure as failure:
        LOG.warning(
            "evict.budgets.unreadable: all pods of the namespace count as under one budget",
            extra={"namespace": namespace, "why": str(failure)},
        )
        return None


def _name(budget: disruption_budgets.PodDisruptionBudget) -> Name:
    return budget.metadata.namespace, budget.metadata.name
