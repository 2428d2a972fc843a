"""Watches the objects that own pods, for every kind the server has, and passes their gangs to the informer.

Given functions that discover the served kinds and that watch one. Kinds installed later are picked up, removed ones are
dropped. The informer is not synced before the first lists are read; a kind that cannot be listed delays it for a
bounded time only, since one broken operator must not hold up every pod. Never writes, never decides.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.live.informer import informer
from dovetail.model import gangs
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.world.owners import gang_builder

# Between two discoveries of served kinds: well below the time a gang waits for its owner.
DISCOVERY_SECONDS: Final = 15.0
PATIENCE_SECONDS: Final = 10.0  # for the first lists
PAUSE_SECONDS: Final = 0.05


class OwnerEvents:
    """Watch events not processed yet, in order: long lists are processed in small portions."""

    def __init__(self, builder: gang_builder.GangBuilder, clock: clocks.Clock) -> None:
        self._builder = builder
        self._clock = clock
        self._entries: deque[Callable[[], None]] = deque()
        self._arrived = asyncio.Event()

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """A complete list of a kind."""
        present = set()
        for owner in objects:
            present.add(gang_builder.owner_key(kind, owner))
            self._entries.append(functools.partial(self._builder.changed, kind, owner))
        self._put(functools.partial(self._builder.finish_list, kind.unique_name, present))

    def changed(self, kind: registry.Kind, owner: Any) -> None:
        """An owner was added or changed."""
        self._put(functools.partial(self._builder.changed, kind, owner))

    def deleted(self, kind: registry.Kind, owner: Any) -> None:
        """An owner is gone."""
        self._put(functools.partial(self._builder.deleted, kind, owner))

    def remove_kind(self, kind: registry.Kind) -> None:
        """The server no longer has the kind."""
        self._put(functools.partial(self._builder.remove_kind, kind.unique_name))

    async def pump(self) -> None:
        """Processes what arrived, until cancelled."""
        while True:
            await self._arrived.wait()
            until = self._clock.monotonic() + informer.PORTION_SECONDS
            while self._entries and self._clock.monotonic() < until:
                self._entries.popleft()()
            if not self._entries:
                self._arrived.clear()
            await asyncio.sleep(0)

    def _put(self, entry: Callable[[], None]) -> None:
        self._entries.append(entry)
        self._arrived.set()


class OwnerWatch:
    """Watches every served owner kind, until cancelled."""

    def __init__(
        self,
        receiver: informer.Receiver,
        clock: clocks.Clock,
        *,
        served: Callable[[], Awaitable[tuple[registry.Kind, ...]]],
        follow: Callable[[registry.Kind, informer.Feed], Coroutine[Any, Any, None]],
        trouble: Callable[[str, str], None],
    ) -> None:
        self.builder = gang_builder.GangBuilder(receiver)
        self._inbox = OwnerEvents(self.builder, clock)
        self._receiver = receiver
        self._clock = clock
        self._served = served
        self._follow = follow
        self._trouble = trouble
        self._following: dict[registry.Kind, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs until cancelled. Raises if a watch does: none ends by itself."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inbox.pump())
            await self._first_lists(group)
            self._receiver.replaced(gangs.KIND, self.builder.all_gangs(), "")
            while True:
                await self._clock.sleep(DISCOVERY_SECONDS)
                await self._look(group)

    async def _look(self, group: asyncio.TaskGroup) -> bool:
        """Starts watches of new kinds and ends those of removed ones; False where discovery failed."""
        try:
            served = await self._served()
        except failures.ApiFailure as failure:
            self._trouble(gangs.KIND.name, f"discovery: {failure}")
            return False

        for kind in [kind for kind in self._following if kind not in served]:
            self._following.pop(kind).cancel()
            self._inbox.remove_kind(kind)
        for kind in served:
            if kind not in self._following:
                feed = informer.Feed(self._inbox, kind, trouble=self._trouble)
                self._following[kind] = group.create_task(self._follow(kind, feed))
        return True

    async def _first_lists(self, group: asyncio.TaskGroup) -> None:
        """Waits until every served kind is listed, or the patience is over."""
        until = self._clock.monotonic() + PATIENCE_SECONDS
        while not await self._look(group) and self._clock.monotonic() < until:
            await self._clock.sleep(PAUSE_SECONDS)
        while self._unlisted() and self._clock.monotonic() < until:
            await self._clock.sleep(PAUSE_SECONDS)

        for name in self._unlisted():
            self._trouble(name, "not listed yet: its gangs are read once it is")

    def _unlisted(self) -> list[str]:
        names = [kind.unique_name for kind in self._following]
        return [name for name in names if name not in self.builder.listed]
