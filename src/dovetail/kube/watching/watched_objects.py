"""Keeps the objects of some kinds as watches report them, and gives them out as sets, without listing them again.

Given a transport and kinds. A kind that the server does not serve is empty, and joins once it is installed. No set is
given out while a served kind is not listed or its watch is interrupted: a decision must not rest on half a cluster. An
object that does not decode takes part as far as it can be read. Never writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from dovetail.kube import discovery
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import codec, object_set, registry
from dovetail.ports import clock as clocks
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.watches")
DISCOVERY_SECONDS: Final = 60.0  # between two looks at which kinds are served
PAUSE_SECONDS: Final = 2.0  # after a look that failed
_TYPED: Final = (b'{"kind"', b'{"apiVersion"')


class Watched(NamedTuple):
    """The objects now, and the kinds that the server serves, each in the version that it does."""

    objects: object_set.ObjectSet
    served: Mapping[registry.Kind, registry.Kind]


class WatchedObjects:
    """An asynchronous context: watches while it is open."""

    def __init__(
        self, over: transport.Transport, kinds: Sequence[registry.Kind], clock: clocks.Clock
    ) -> None:
        self._over = over
        self._kinds = {(kind.group, kind.name): kind for kind in kinds}
        self._clock = clock
        self._kept: dict[registry.Kind, _KeptKind] = {}
        self._watches: dict[registry.Kind, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None
        self._has_looked = False
        self._failure: BaseException | None = None
        self._whole = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._running = self._started(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        running = [self._running] if self._running is not None else []
        await _ended(*running)
        await _ended(*self._watches.values())

    async def now(self) -> Watched:
        """The objects, once every kind that is served is listed and watched."""
        await self._whole.wait()
        if self._failure is not None:
            raise self._failure
        by_kind = {
            kind.unique_name: kept.ordered() for kind, kept in self._kept.items() if kept.objects
        }
        served = {self._kinds[kind.group, kind.name]: kind for kind in self._kept}
        return Watched(object_set.ObjectSet("", by_kind=by_kind), served)

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._take_end)
        return task

    def _take_end(self, task: asyncio.Task[None]) -> None:
        """All of this runs until it is cancelled: what ends, ends by an error."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._whole.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except failures.ApiFailure as failure:
                LOG.warning("watches.discovery.failed: tried again", extra={"why": str(failure)})
                await self._clock.sleep(PAUSE_SECONDS)
            else:
                await self._clock.sleep(DISCOVERY_SECONDS)

    async def _look(self) -> None:
        """Begins to watch kinds that are served now, and ends the watches of those that are not any more."""
        kinds = tuple(self._kinds.values())
        served = await discovery.present(self._over, kinds, registry.OLDER)
        for kind in [kind for kind in self._watches if kind not in served]:
            await _ended(self._watches.pop(kind))
            del self._kept[kind]
        for kind in served:
            if kind not in self._watches:
                self._watches[kind] = self._started(self._followed(kind))
        self._has_looked = True
        self._update()

    def _followed(self, kind: registry.Kind) -> Coroutine[Any, Any, None]:
        kept = self._kept[kind] = _KeptKind(kind, self._update)
        return watch.follow(
            self._over,
            kind,
            kept,
            clock=self._clock,
            restored=kept.restored,
            keep_document=kept.keep,
        )

    def _update(self) -> None:
        is_whole = self._has_looked and all(kept.is_current for kept in self._kept.values())
        if is_whole or self._failure is not None:
            self._whole.set()
        else:
            self._whole.clear()


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _KeptKind:
    """The objects of one kind."""

    def __init__(self, kind: registry.Kind, update: Callable[[], None]) -> None:
        self.is_current = False
        self.objects: dict[object_set.Key, codec.Stored] = {}
        self._kind = kind
        self._update = update
        self._ordered: dict[object_set.Key, codec.Stored] | None = None
        self._said = ""

    def ordered(self) -> dict[object_set.Key, codec.Stored]:
        """The objects by namespace and name; the same mapping until something changes."""
        if self._ordered is None:
            self._ordered = dict(sorted(self.objects.items()))
        return self._ordered

    def keep(self, item: Any, document: bytes) -> None:
        """An object with its document, before it is reported as listed or changed."""
        if not document.startswith(_TYPED):  # items of typed lists lack their types
            document = object_set.with_types(self._kind, document)
        self.objects[self._key(item)] = codec.Stored(item, document)
        self._ordered = None

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """What the list lacks is gone."""
        present = {self._key(item) for item in objects}
        self.objects = {key: kept for key, kept in self.objects.items() if key in present}
        self._ordered = None
        self._set_current(True)

    def changed(self, item: Any, /) -> None:
        """It is kept already, with its document."""

    def deleted(self, item: Any, /) -> None:
        """It is gone."""
        self.objects.pop(self._key(item), None)
        self._ordered = None

    def broken(self, reason: str, /) -> None:
        """What is kept may be old."""
        if reason != self._said:
            self._said = reason
            LOG.warning("watches.interrupted", extra={"kind": self._kind.name, "why": reason})
        self._set_current(False)

    def restored(self) -> None:
        """The watch goes on where it was."""
        self._said = ""
        self._set_current(True)

    def unreadable(self, name: str, problem: str, /) -> None:
        """It takes part as far as it can be read."""
        LOG.warning(
            "watches.unreadable", extra={"kind": self._kind.name, "why": f"{name}: {problem}"}
        )

    def _set_current(self, is_current: bool) -> None:
        self.is_current = is_current
        self._update()

    def _key(self, item: Any) -> object_set.Key:
        metadata = item.metadata
        return object_set.Key(self._kind.unique_name, metadata.namespace, metadata.name)
