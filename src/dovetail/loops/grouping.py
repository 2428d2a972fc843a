"""Tells the picture about gangs: follows the objects that own pods, as far as the server serves them, and reads them.

Given how to ask what is served and how to follow a kind. Kinds that are installed later are found, those that are taken
away are forgotten. The picture is not whole before the first lists are read; a kind that cannot be listed holds it up
for a bounded time only, since a broken operator must not keep everybody waiting. Never writes, never decides.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from dovetail.loops import forest, picture
from dovetail.model import gangs, kinds, meta
from dovetail.model.workloads import owners, reading
from dovetail.ports import clock as clocks
from dovetail.ports import failures

ASK_SECONDS: Final = 15.0  # between two looks at what is served: well within what a gang waits for its owner
PATIENCE_SECONDS: Final = 10.0  # for the first lists
PAUSE_SECONDS: Final = 0.05

OwnerKey = tuple[str, str, str]  # kind, namespace, name
_PARENTS: Final = frozenset(kind.name for kind in kinds.PARENTS)


class Book:
    """Owners in, gangs out: tells a gang once it is known, again when it differs, and when its owner is gone."""

    def __init__(self, told: picture.Taker) -> None:
        self._told = told
        self._gangs: dict[OwnerKey, gangs.Gang] = {}  # as told
        self._keys: dict[str, set[OwnerKey]] = {}  # by kind, every owner that is there
        self._parents: dict[str, meta.ObjectMeta] = {}  # by uid
        self._uids: dict[OwnerKey, str] = {}  # of parents
        self._children: dict[str, dict[OwnerKey, owners.Owner]] = {}  # by the uid of what made them
        self._makers: dict[OwnerKey, str] = {}  # and that uid
        self._forest = forest.Forest()  # native groups
        self.listed: set[str] = set()  # kinds whose objects are all known

    def changed(self, kind: kinds.Kind, found: Any) -> None:
        """An owner is there, or differs."""
        key = _key(kind, found)
        self._keys.setdefault(kind.name, set()).add(key)
        if isinstance(found, owners.Parent):
            self._uids[key] = found.metadata.uid
            self._parents[found.metadata.uid] = found.metadata
            self._read_children(found.metadata.uid)
            return
        maker = _maker(found)
        if maker:
            self._makers[key] = maker
            self._children.setdefault(maker, {})[key] = found
        if kind.name in forest.NATIVE:
            self._read_native(self._forest.put(key, found))
        else:
            self._read(key, found)

    def deleted(self, kind: kinds.Kind, found: Any) -> None:
        """An owner is gone."""
        self._gone(_key(kind, found))

    def remain(self, kind: str, present: Collection[OwnerKey]) -> None:
        """Of a kind these are all there are."""
        self._forget_others(kind, present)
        self.listed.add(kind)
        if kind == kinds.COMPOSITE.name:
            self._read_native(self._forest.serve(is_served=True))

    def dropped(self, kind: str) -> None:
        """A kind is no longer served."""
        if kind == kinds.COMPOSITE.name:
            self._read_native(self._forest.serve(is_served=False))
        self._forget_others(kind, ())
        self.listed.discard(kind)

    def all(self) -> list[gangs.Gang]:
        """Every gang there is."""
        return [*self._gangs.values()]

    def _forget_others(self, kind: str, present: Collection[OwnerKey]) -> None:
        for key in sorted(self._keys.get(kind, set()).difference(present)):
            self._gone(key)

    def _gone(self, key: OwnerKey) -> None:
        self._keys.get(key[0], set()).discard(key)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._parents.pop(uid, None)
            self._read_children(uid)
            return
        maker = self._makers.pop(key, None)
        if maker is not None:
            del self._children[maker][key]
            if not self._children[maker]:
                del self._children[maker]
        if key[0] in forest.NATIVE:
            self._read_native(self._forest.drop(key))
        else:
            self._tell(key, None)

    def _read_children(self, uid: str) -> None:
        for key, child in self._children.get(uid, {}).items():
            self._read(key, child)

    def _read_native(self, keys: Iterable[OwnerKey]) -> None:
        for key in keys:
            self._tell(key, self._forest.gang_of(key, self._parents.get(self._makers.get(key, ""))))

    def _read(self, key: OwnerKey, found: owners.Owner) -> None:
        """The gang of an owner, with what is asked of whatever made it."""
        if key[0] in forest.NATIVE:
            self._read_native((key,))
        else:
            self._tell(key, reading.gang_of(found, self._parents.get(self._makers.get(key, ""))))

    def _tell(self, key: OwnerKey, gang: gangs.Gang | None) -> None:
        before = self._gangs.get(key)
        if gang is not None and gang != before:
            self._gangs[key] = gang
            self._told.changed(kinds.GANG, gang)
        elif gang is None and before is not None:
            del self._gangs[key]
            self._told.deleted(kinds.GANG, before)


class Inbox:
    """What watches told and nobody has read yet, in order: long lists are read in small portions."""

    def __init__(self, book: Book, clock: clocks.Clock) -> None:
        self._book = book
        self._clock = clock
        self._entries: deque[Callable[[], None]] = deque()
        self._arrived = asyncio.Event()

    def replaced(self, kind: kinds.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """Everything there is of a kind."""
        present = set()
        for found in objects:
            present.add(_key(kind, found))
            self._entries.append(functools.partial(self._book.changed, kind, found))
        self._put(functools.partial(self._book.remain, kind.name, present))

    def changed(self, kind: kinds.Kind, found: Any) -> None:
        """An owner is there, or differs."""
        self._put(functools.partial(self._book.changed, kind, found))

    def deleted(self, kind: kinds.Kind, found: Any) -> None:
        """An owner is gone."""
        self._put(functools.partial(self._book.deleted, kind, found))

    def dropped(self, kind: kinds.Kind) -> None:
        """A kind is no longer served."""
        self._put(functools.partial(self._book.dropped, kind.name))

    async def pump(self) -> None:
        """Reads what arrived, for ever."""
        while True:
            await self._arrived.wait()
            until = self._clock.monotonic() + picture.PORTION_SECONDS
            while self._entries and self._clock.monotonic() < until:
                self._entries.popleft()()
            if not self._entries:
                self._arrived.clear()
            await asyncio.sleep(0)

    def _put(self, entry: Callable[[], None]) -> None:
        self._entries.append(entry)
        self._arrived.set()


class Grouping:
    """Follows what is served, for ever."""

    def __init__(
        self,
        told: picture.Taker,
        clock: clocks.Clock,
        *,
        served: Callable[[], Awaitable[tuple[kinds.Kind, ...]]],
        follow: Callable[[kinds.Kind, picture.Feed], Coroutine[Any, Any, None]],
        trouble: Callable[[str, str], None],
    ) -> None:
        self.book = Book(told)
        self._inbox = Inbox(self.book, clock)
        self._told = told
        self._clock = clock
        self._served = served
        self._follow = follow
        self._trouble = trouble
        self._following: dict[kinds.Kind, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled. Ends with an error where a watch does: none ends by itself."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inbox.pump())
            await self._first_lists(group)
            self._told.replaced(kinds.GANG, self.book.all(), "")
            while True:
                await self._clock.sleep(ASK_SECONDS)
                await self._look(group)

    async def _look(self, group: asyncio.TaskGroup) -> bool:
        """Begins to follow what is new, and ends what is gone; whether the server said what there is."""
        try:
            there = await self._served()
        except failures.ApiFailure as failure:
            self._trouble(kinds.GANG.name, f"discovery: {failure}")
            return False
        for kind in [kind for kind in self._following if kind not in there]:
            self._following.pop(kind).cancel()
            self._inbox.dropped(kind)
        for kind in there:
            if kind not in self._following:
                feed = picture.Feed(self._inbox, kind, trouble=self._trouble)
                self._following[kind] = group.create_task(self._follow(kind, feed))
        return True

    async def _first_lists(self, group: asyncio.TaskGroup) -> None:
        """Waits until all is listed, or long enough."""
        until = self._clock.monotonic() + PATIENCE_SECONDS
        while not await self._look(group) and self._clock.monotonic() < until:
            await self._clock.sleep(PAUSE_SECONDS)
        while self._unlisted() and self._clock.monotonic() < until:
            await self._clock.sleep(PAUSE_SECONDS)
        for name in self._unlisted():
            self._trouble(name, "not listed yet: gangs of this kind are read when it is")

    def _unlisted(self) -> list[str]:
        return [kind.name for kind in self._following if kind.name not in self.book.listed]


def _key(kind: kinds.Kind, found: Any) -> OwnerKey:
    return kind.name, found.metadata.namespace, found.metadata.name


def _maker(found: owners.Owner) -> str:
    """The uid of what made an owner, where that may ask for something."""
    for one in found.metadata.owner_references:
        if one.controller and one.kind in _PARENTS:
            return one.uid
    return ""
