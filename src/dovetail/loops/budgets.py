"""Disruption budgets while pods are asked to end: whose they are, whose turn it is, and how many each still allows.

Given a way to list them, asked anew for every plan. Pods under one budget are asked one after the other: a server that
is asked for several at once lets some go although the others then may not. Where budgets cannot be read, all pods of a
namespace count as under one. Never says that a pod may go: the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from dovetail.model import budgets, pods
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.evict")
EVERYWHERE: Final = ""  # instead of a namespace: all of them
LOOK_SECONDS: Final = 10.0  # between two looks at all budgets
UNREAD_SECONDS: Final = 300.0  # until the next look where they could not be read
UNREAD: Final = ""  # the name under which a namespace counts whose budgets cannot be read

Listing = Callable[[str], Awaitable[Sequence[budgets.PodDisruptionBudget]]]  # those of a namespace, or all
Name = tuple[str, str]  # of a budget, with its namespace


async def none(namespace: str) -> Sequence[budgets.PodDisruptionBudget]:
    """Where nobody makes any."""
    return ()


class Budgets:
    """The budgets over the pods of one plan."""

    def __init__(self, known: Mapping[str, Sequence[budgets.PodDisruptionBudget] | None]) -> None:
        self._known = known
        self._left = {
            _name(one): one.status.disruptions_allowed for found in known.values() for one in found or ()
        }  # as far as could be read
        self._locks: dict[Name, asyncio.Lock] = {}

    def over(self, pod: pods.Pod) -> Name | None:
        """The budget of a pod, if it has one. Of several the first: the server refuses such a pod anyway."""
        found = self._known.get(pod.metadata.namespace)
        if found is None:
            return pod.metadata.namespace, UNREAD
        return next((_name(one) for one in found if budgets.covers(one, pod)), None)

    @contextlib.asynccontextmanager
    async def turn(self, wanted: Iterable[pods.Pod]) -> AsyncIterator[None]:
        """Nobody else asks for pods under the budgets of these meanwhile."""
        names = {name for pod in wanted if (name := self.over(pod)) is not None}
        async with contextlib.AsyncExitStack() as held:
            for name in sorted(names):  # in one order for all, so that nobody waits for each other
                await held.enter_async_context(self._locks.setdefault(name, asyncio.Lock()))
            yield

    def beyond(self, wanted: Iterable[pods.Pod]) -> list[pods.Pod]:
        """Those of these pods that, after the others, are more than their budgets allow."""
        counted: Counter[Name] = Counter()
        found: list[pods.Pod] = []
        for pod in wanted:
            name = self.over(pod)
            if name is None or name not in self._left or not budgets.is_counted(pod):
                continue
            counted[name] += 1
            if counted[name] > self._left[name]:
                found.append(pod)
        return found

    def went(self, pod: pods.Pod) -> None:
        """A pod is ending, and its budget is the smaller for it."""
        name = self.over(pod)
        if name is not None and name in self._left and budgets.is_counted(pod):
            self._left[name] -= 1


class Lookout:
    """Keeps the World's picture of budgets fresh enough for decisions, where there are queues to ask for it."""

    def __init__(
        self, listing: Listing, world: World, clock: clocks.Clock, *, loosened: Callable[[], None] = lambda: None
    ) -> None:
        self._listing = listing
        self._world = world
        self._clock = clock
        self._loosened = loosened  # called when a pod may go that could not before
        self._next = 0.0
        self._is_busy = False

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again, and nobody does."""
        return bool(self._world.queues) and not self._is_busy and self._clock.monotonic() >= self._next

    async def look(self) -> None:
        """Lists the budgets of the whole cluster. Where they cannot be read, those that are known stay."""
        if not self.is_due:
            return
        self._is_busy = True
        try:
            found = await _listed(self._listing, EVERYWHERE)
        finally:
            self._is_busy = False
        self._next = self._clock.monotonic() + (LOOK_SECONDS if found is not None else UNREAD_SECONDS)
        if found is not None and self._world.shields.put(found):
            self._world.changes += 1
            self._loosened()


async def read(listing: Listing, namespaces: Iterable[str]) -> Budgets:
    """The budgets of these namespaces as they are now."""
    asked = sorted(set(namespaces))
    found = await asyncio.gather(*(_listed(listing, one) for one in asked))
    return Budgets(dict(zip(asked, found, strict=True)))


async def _listed(listing: Listing, namespace: str) -> Sequence[budgets.PodDisruptionBudget] | None:
    try:
        return await listing(namespace)
    except failures.Fenced:
        raise
    except failures.ApiFailure as failure:
        LOG.warning("budgets are not read", extra={"namespace": namespace, "why": str(failure)})
        return None


def _name(budget: budgets.PodDisruptionBudget) -> Name:
    return budget.metadata.namespace, budget.metadata.name
