"""Watches the objects that own pods, for every kind the server has, and passes their gangs to the informer.

Given functions that discover the served kinds and that watch one. Kinds installed later are picked up, removed ones are
dropped. The informer is not synced before the first lists are read; a kind that cannot be listed delays it for a
bounded time only, since one broken operator must not hold up every pod. Never writes, never decides.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.workloads import owners
from dovetail.live.gangs import native_tree
from dovetail.live.informer import informer
from dovetail.model import gangs
from dovetail.model.workloads import owner_gangs
from dovetail.ports import clock as clocks
from dovetail.ports import failures

# Between two discoveries of served kinds: well below the time a gang waits for its owner.
DISCOVERY_SECONDS: Final = 15.0
PATIENCE_SECONDS: Final = 10.0  # for the first lists
PAUSE_SECONDS: Final = 0.05

OwnerKey = tuple[str, str, str]  # unique name of the kind, namespace, name
_PARENTS: Final = frozenset(kind.name for kind in registry.PARENTS)


class GangBuilder:
    """Owners in, gangs out: passes on a gang when it appears, when it changes, and when its owner is gone."""

    def __init__(self, receiver: informer.Receiver) -> None:
        self._receiver = receiver
        self._gangs: dict[OwnerKey, gangs.Gang] = {}  # as passed on
        self._keys: dict[str, set[OwnerKey]] = {}  # every owner, by kind
        self._parents: dict[str, meta.ObjectMeta] = {}  # by uid
        self._uids: dict[OwnerKey, str] = {}  # of parents
        self._children: dict[str, dict[OwnerKey, owners.Owner]] = {}  # owners by their parent's uid
        self._makers: dict[OwnerKey, str] = {}  # each owner's parent uid
        self._forest = native_tree.GroupTrees()
        self.listed: set[str] = set()  # kinds that have been listed

    def changed(self, kind: registry.Kind, owner: Any) -> None:
        """An owner was added or changed."""
        key = _key(kind, owner)
        self._keys.setdefault(kind.unique_name, set()).add(key)

        if isinstance(owner, owners.Parent):
            self._uids[key] = owner.metadata.uid
            self._parents[owner.metadata.uid] = owner.metadata
            self._read_children(owner.metadata.uid)
            return

        parent_uid = _parent_uid(owner)
        if parent_uid:
            self._makers[key] = parent_uid
            self._children.setdefault(parent_uid, {})[key] = owner
        if key[0] in native_tree.NATIVE:
            self._read_native(self._forest.put(key, owner))
        else:
            self._read(key, owner)

    def deleted(self, kind: registry.Kind, owner: Any) -> None:
        """An owner is gone."""
        self._gone(_key(kind, owner))

    def finish_list(self, kind: str, present: Collection[OwnerKey]) -> None:
        """A list of the kind was read: every other owner of it is gone."""
        self._forget_others(kind, present)
        self.listed.add(kind)
        if kind == registry.COMPOSITE.name:
            self._read_native(self._forest.set_served(is_served=True))

    def remove_kind(self, kind: str) -> None:
        """The server no longer has the kind."""
        if kind == registry.COMPOSITE.name:
            self._read_native(self._forest.set_served(is_served=False))
        self._forget_others(kind, ())
        self.listed.discard(kind)

    def all_gangs(self) -> list[gangs.Gang]:
        """Every gang."""
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

        parent_uid = self._makers.pop(key, None)
        if parent_uid is not None:
            del self._children[parent_uid][key]
            if not self._children[parent_uid]:
                del self._children[parent_uid]
        if key[0] in native_tree.NATIVE:
            self._read_native(self._forest.drop(key))
        else:
            self._pass_on(key, None)

    def _read_children(self, uid: str) -> None:
        for key, child in self._children.get(uid, {}).items():
            self._read(key, child)

    def _read_native(self, keys: Iterable[OwnerKey]) -> None:
        for key in keys:
            self._pass_on(key, self._forest.gang_of(key, self._parent_of(key)))

    def _read(self, key: OwnerKey, owner: owners.Owner) -> None:
        """Builds the owner's gang; its parent's annotations apply to it, too."""
        if key[0] in native_tree.NATIVE:
            self._read_native((key,))
        else:
            self._pass_on(key, owner_gangs.gang_of(owner, self._parent_of(key)))

    def _parent_of(self, key: OwnerKey) -> meta.ObjectMeta | None:
        return self._parents.get(self._makers.get(key, ""))

    def _pass_on(self, key: OwnerKey, gang: gangs.Gang | None) -> None:
        """Passes on what differs from before."""
        before = self._gangs.get(key)
        if gang == before:
            return
        if gang is not None:
            self._gangs[key] = gang
            self._receiver.changed(gangs.KIND, gang)
        elif before is not None:
            del self._gangs[key]
            self._receiver.deleted(gangs.KIND, before)


class OwnerEvents:
    """Watch events not processed yet, in order: long lists are processed in small portions."""

    def __init__(self, builder: GangBuilder, clock: clocks.Clock) -> None:
        self._builder = builder
        self._clock = clock
        self._entries: deque[Callable[[], None]] = deque()
        self._arrived = asyncio.Event()

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """A complete list of a kind."""
        present = set()
        for owner in objects:
            present.add(_key(kind, owner))
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
        self.builder = GangBuilder(receiver)
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


def _key(kind: registry.Kind, owner: Any) -> OwnerKey:
    return kind.unique_name, owner.metadata.namespace, owner.metadata.name


def _parent_uid(owner: owners.Owner) -> str:
    """The uid of an owner's controller, where its kind may carry annotations for gangs."""
    for reference in owner.metadata.owner_references:
        if reference.controller and reference.kind in _PARENTS:
            return reference.uid
    return ""
