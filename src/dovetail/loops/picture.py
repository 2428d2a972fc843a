"""Keeps the World as the API server last told it, whatever order and number of times it was told.

Given whole lists and single changes, per kind; what is not newer than what is known is dropped. Long lists are taken
in small portions, so that nobody waits long. Tells a listener each change with what was there before. Never decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from dovetail.errors import StateError
from dovetail.model import kinds, meta
from dovetail.ports import clock as clocks
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.picture")
PORTION_SECONDS: Final = 0.01
TOMBSTONES: Final = 50_000
MOST_DIGITS: Final = 20  # of a version, an unsigned 64-bit number; Python refuses to read very long ones
MOST_REMEMBERED: Final = 1_000  # complaints about objects, so that none is made twice

Key = tuple[str, str]
Listener = Callable[[kinds.Kind, events.Event, Any], None]  # kind, what happened, what was there before


class Version(NamedTuple):
    """Which object a name stands for, and how new our copy is."""

    uid: str
    number: int


class _Listed(NamedTuple):
    kind: kinds.Kind
    number: int
    keys: set[Key]


class _One(NamedTuple):
    kind: kinds.Kind
    found: Any
    is_there: bool


class Picture:
    """The World and the versions it is made of."""

    def __init__(
        self,
        world: World,
        clock: clocks.Clock,
        listed: Iterable[kinds.Kind] = kinds.WATCHED,
        *,
        suspects: set[str] | None = None,  # uids of objects that a World tripped over before
    ) -> None:
        self.world = world
        self._clock = clock
        self._versions: dict[str, dict[Key, Version]] = {kind.name: {} for kind in listed}
        self._gone: OrderedDict[str, int] = OrderedDict()  # uid -> version of the deletion
        self._backlog: deque[_Listed | _One] = deque()
        self._unsynced = {kind.name for kind in listed}
        self._listeners: list[Listener] = []
        self._suspects = set[str]() if suspects is None else suspects
        self._arrived = asyncio.Event()
        self.synced = asyncio.Event()  # every kind was listed and taken in

    def admit(self, kind: kinds.Kind) -> None:
        """From now on this kind is part of the picture, which is whole again once it was listed."""
        if kind.name not in self._versions:
            self._versions[kind.name] = {}
            self.unsync(kind)

    def listen(self, listener: Listener) -> None:
        """Tells the listener every change from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Tells the listener nothing any more."""
        self._listeners.remove(listener)

    def replaced(self, kind: kinds.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """Everything there is of a kind, as of a version."""
        keys = set()
        for found in objects:
            keys.add(events.key_of(found))
            self._backlog.append(_One(kind, found, True))
        self._backlog.append(_Listed(kind, number_of(resource_version), keys))
        self._arrived.set()

    def changed(self, kind: kinds.Kind, found: Any) -> None:
        """An object is there, or differs."""
        self._put(_One(kind, found, True))

    def deleted(self, kind: kinds.Kind, found: Any) -> None:
        """An object is gone."""
        self._put(_One(kind, found, False))

    def saw(self, kind: kinds.Kind, found: Any) -> None:
        """An object as a write answered: counts at once, before anything that still waits to be taken in."""
        self._take_one(_One(kind, found, True))

    def unsync(self, kind: kinds.Kind) -> None:
        """The kind's feed has a gap: its next list makes it whole."""
        self._unsynced.add(kind.name)
        self.synced.clear()

    async def pump(self) -> None:
        """Takes in what waits, a portion at a time, for ever."""
        while True:
            await self._arrived.wait()
            until = self._clock.monotonic() + PORTION_SECONDS
            while self._backlog and self._clock.monotonic() < until:
                self._take(self._backlog.popleft())
            if not self._backlog:
                self._arrived.clear()
            await asyncio.sleep(0)

    def _put(self, one: _One) -> None:
        if self._backlog:  # keep the order within a kind
            self._backlog.append(one)
        else:
            self._take(one)

    def _take(self, entry: _Listed | _One) -> None:
        if isinstance(entry, _One):
            self._take_one(entry)
            return
        known = self._versions[entry.kind.name]
        for key, version in [*known.items()]:
            if key not in entry.keys and version.number <= entry.number:
                self._drop(entry.kind, key, entry.number)
        self._unsynced.discard(entry.kind.name)
        if not self._unsynced:
            self.synced.set()

    def _take_one(self, one: _One) -> None:
        metadata: meta.ObjectMeta = one.found.metadata
        key, number = events.key_of(one.found), number_of(metadata.resource_version)
        table = self._versions[one.kind.name]
        known = table.get(key)
        if self._gone.get(metadata.uid, -1) >= number > 0:
            return
        if known is not None and known.uid == metadata.uid and known.number >= number > 0 and one.is_there:
            return
        if not one.is_there:
            if known is not None and known.uid == metadata.uid:
                self._drop(one.kind, key, number, last=one.found)
            self._bury(metadata.uid, number)
            return
        if known is not None and known.uid != metadata.uid:
            if known.number > number > 0:
                return  # an older object of the same name
            self._drop(one.kind, key, number)
        table[key] = Version(metadata.uid, number)
        before = self._before(one.kind, key, metadata.uid)
        self._apply(one.kind, events.Changed(one.found), before)

    def _drop(self, kind: kinds.Kind, key: Key, number: int, *, last: Any = None) -> None:
        version = self._versions[kind.name].pop(key)
        self._bury(version.uid, number)
        before = self._before(kind, key, version.uid)
        gone = last if last is not None else before
        if gone is None:  # slices are not kept whole: their name suffices
            gone = kind.struct(metadata=meta.ObjectMeta(namespace=key[0], name=key[1], uid=version.uid))
        self._apply(kind, events.Deleted(gone), before)

    def _bury(self, uid: str, number: int) -> None:
        self._gone[uid] = number
        if len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)

    def _before(self, kind: kinds.Kind, key: Key, uid: str) -> Any:
        match kind.name:
            case "Pod":
                return self.world.pods.get(uid)
            case "ResourceClaim":
                return self.world.claims.get(key)
            case "Node":
                return self.world.nodes.get(key[1])
            case "DeviceClass":
                return self.world.classes.get(key[1])
            case "DeviceTaintRule":
                return self.world.rules.get(key[1])
            case "Queue":
                return self.world.queues.get(key[1])
            case "Topology":
                return self.world.topologies.get(key[1])
            case "Gang":
                return self.world.gangs.told(key)
            case _:
                return self.world.storage.find(kind.name, key)

    def _apply(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        try:
            self.world.apply(event)
        except StateError:
            raise  # it is about our own order of doing things, not about the object
        except Exception as error:  # whatever it is: one object must not keep all others from being seen
            self._leave_out(kind, event.object, error)
            return
        for listener in self._listeners:
            listener(kind, event, before)

    def _leave_out(self, kind: kinds.Kind, found: Any, error: Exception) -> None:
        """An object the World trips over.

        The first time it is raised, as the World may be half changed: a new tenure begins with another one. If the
        object fails there as well it is the cause, and does not exist for us from then on.
        """
        uid = found.metadata.uid
        if uid not in self._suspects:
            self._suspects.add(uid)
            raise error
        name = f"{found.metadata.namespace}/{found.metadata.name}"
        told = {"kind": kind.name, "object": name}
        LOG.error("an object cannot be taken in and is left out", exc_info=error, extra=told)
        with contextlib.suppress(Exception):
            self.world.apply(events.Deleted(found))


class Taker(Protocol):
    """Who is told about objects: a picture, or what a part of one is made of."""

    def replaced(self, kind: kinds.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """Everything there is of a kind, as of a version."""
        ...

    def changed(self, kind: kinds.Kind, found: Any) -> None:
        """An object is there, or differs."""
        ...

    def deleted(self, kind: kinds.Kind, found: Any) -> None:
        """An object is gone."""
        ...


class Feed:
    """What a watch of one kind tells, passed on to the picture."""

    def __init__(self, picture: Taker, kind: kinds.Kind, *, trouble: Callable[[str, str], None]) -> None:
        self._picture = picture
        self._kind = kind
        self._trouble = trouble
        self._told: set[int] = set()  # hashes of what was complained about

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """Everything there is."""
        self._picture.replaced(self._kind, objects, resource_version)

    def changed(self, found: Any) -> None:
        """One object."""
        self._picture.changed(self._kind, found)

    def deleted(self, found: Any) -> None:
        """One object."""
        self._picture.deleted(self._kind, found)

    def broken(self, reason: str) -> None:
        """The connection is lost for now."""
        self._trouble(self._kind.name, reason)

    def unreadable(self, name: str, problem: str) -> None:
        """An object that cannot be read: it does not exist for us. Said once, however often its owner touches it."""
        complaint = hash((name, problem))
        if complaint in self._told:
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told.add(complaint)
        # The word in front is what is counted by: names are their owners' to choose, and there is no end to them.
        self._trouble(self._kind.name, f"unreadable: {name}: {problem}")


def number_of(resource_version: str) -> int:
    """Versions grow; 0 where one cannot be read, which counts as newer than anything."""
    is_number = resource_version.isascii() and resource_version.isdigit() and len(resource_version) <= MOST_DIGITS
    return int(resource_version) if is_number else 0
