"""Keeps the World equal to the API server's state, in whatever order and how often events arrive.

Given complete lists and single events, per kind; an object that is not newer than the stored one is dropped. Long lists
are processed in small portions, so that the event loop stays responsive. Calls listeners with each event and the object
before it. Never decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from dovetail.errors import StateError
from dovetail.kubetypes import meta, registry
from dovetail.model import gangs
from dovetail.ports import clock as clocks
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.informer")
PORTION_SECONDS: Final = 0.01
TOMBSTONES: Final = 50_000
# Of a resourceVersion, an unsigned 64-bit number; Python refuses to parse very long numbers.
MAX_VERSION_DIGITS: Final = 20
MAX_REMEMBERED: Final = 1_000  # unreadable objects, so that none is reported twice

# Where the World keeps the objects of a kind. Volumes are in its storage; slices are not kept whole.
_TABLES: Final[dict[str, Callable[[World], Mapping[Any, Any]]]] = {
    registry.CLAIM.name: lambda world: world.claims,
    registry.TEMPLATE.name: lambda world: world.templates,
    registry.NODE.name: lambda world: world.nodes,
    registry.DEVICE_CLASS.name: lambda world: world.classes,
    registry.TAINT_RULE.name: lambda world: world.rules,
    registry.QUEUE.name: lambda world: world.queues,
    registry.TOPOLOGY.name: lambda world: world.topologies,
}

Key = tuple[str, str]
Listener = Callable[[registry.Kind, events.Event, Any], None]  # kind, event, object before it


class Version(NamedTuple):
    """Which object a name refers to, and the version of our copy."""

    uid: str
    number: int


class _Listed(NamedTuple):
    kind: registry.Kind
    number: int
    keys: set[Key]


class _Observed(NamedTuple):
    kind: registry.Kind
    object: Any
    is_present: bool


class Informer:
    """The World and the versions it is made of."""

    def __init__(
        self,
        world: World,
        clock: clocks.Clock,
        listed: Iterable[registry.Kind] = registry.WATCHED,
        *,
        suspects: set[str] | None = None,  # uids of objects that made an earlier World raise
    ) -> None:
        self.world = world
        self._clock = clock
        self._versions: dict[str, dict[Key, Version]] = {kind.name: {} for kind in listed}
        self._gone: OrderedDict[str, int] = OrderedDict()  # uid -> version of the deletion
        self._backlog: deque[_Listed | _Observed] = deque()
        self._unsynced = {kind.name for kind in listed}
        self._listeners: list[Listener] = []
        self._suspects = set[str]() if suspects is None else suspects
        self._arrived = asyncio.Event()
        self.synced = asyncio.Event()  # set once every kind is listed and applied

    def add_kind(self, kind: registry.Kind) -> None:
        """Adds a kind; the informer is synced again once it is listed."""
        if kind.name not in self._versions:
            self._versions[kind.name] = {}
            self.mark_unsynced(kind)

    def listen(self, listener: Listener) -> None:
        """Calls the listener for every event from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Stops calling the listener."""
        self._listeners.remove(listener)

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """A complete list of a kind, at a resource version."""
        keys = set()
        for object_ in objects:
            keys.add(events.key_of(object_))
            self._backlog.append(_Observed(kind, object_, True))
        self._backlog.append(_Listed(kind, number_of(resource_version), keys))
        self._arrived.set()

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """An object was added or changed."""
        self._put(_Observed(kind, object_, True))

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """An object was deleted."""
        self._put(_Observed(kind, object_, False))

    def observe(self, kind: registry.Kind, object_: Any) -> None:
        """An object from the response to a write: applied at once, ahead of the backlog."""
        self._observe(_Observed(kind, object_, True))

    def mark_unsynced(self, kind: registry.Kind) -> None:
        """The kind's watch has a gap: its next list closes it."""
        self._unsynced.add(kind.name)
        self.synced.clear()

    async def pump(self) -> None:
        """Applies the backlog, a portion at a time, until cancelled."""
        while True:
            await self._arrived.wait()
            until = self._clock.monotonic() + PORTION_SECONDS
            while self._backlog and self._clock.monotonic() < until:
                self._take(self._backlog.popleft())
            if not self._backlog:
                self._arrived.clear()
            await asyncio.sleep(0)

    def _put(self, observed: _Observed) -> None:
        if self._backlog:  # keep the order within a kind
            self._backlog.append(observed)
        else:
            self._take(observed)

    def _take(self, entry: _Listed | _Observed) -> None:
        if isinstance(entry, _Observed):
            self._observe(entry)
            return

        # Drop what the list lacks, unless our copy is newer than the list.
        versions = self._versions[entry.kind.name]
        for key, version in [*versions.items()]:
            if key not in entry.keys and version.number <= entry.number:
                self._drop(entry.kind, key, entry.number)

        self._unsynced.discard(entry.kind.name)
        if not self._unsynced:
            self.synced.set()

    def _observe(self, observed: _Observed) -> None:
        """Applies one object, unless a newer state of it is known. Number 0 counts as newer than anything."""
        metadata: meta.ObjectMeta = observed.object.metadata
        key, number = events.key_of(observed.object), number_of(metadata.resource_version)
        if self._gone.get(metadata.uid, -1) >= number > 0:
            return

        versions = self._versions[observed.kind.name]
        current = versions.get(key)
        is_same_object = current is not None and current.uid == metadata.uid

        if not observed.is_present:
            if is_same_object:
                self._drop(observed.kind, key, number, last=observed.object)
            self._bury(metadata.uid, number)
            return

        if current is not None and is_same_object and current.number >= number > 0:
            return
        if current is not None and not is_same_object:
            if current.number > number > 0:
                return  # an older object of the same name
            self._drop(observed.kind, key, number)

        versions[key] = Version(metadata.uid, number)
        before = self._before(observed.kind, key, metadata.uid)
        self._apply(observed.kind, events.Changed(observed.object), before)

    def _drop(self, kind: registry.Kind, key: Key, number: int, *, last: Any = None) -> None:
        version = self._versions[kind.name].pop(key)
        self._bury(version.uid, number)
        before = self._before(kind, key, version.uid)
        gone = last if last is not None else before
        if gone is None:  # the World does not keep whole slices: their name suffices
            gone = kind.struct(
                metadata=meta.ObjectMeta(namespace=key[0], name=key[1], uid=version.uid)
            )
        self._apply(kind, events.Deleted(gone), before)

    def _bury(self, uid: str, number: int) -> None:
        self._gone[uid] = number
        if len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)

    def _before(self, kind: registry.Kind, key: Key, uid: str) -> Any:
        if kind.name == registry.POD.name:
            return self.world.pods.get(uid)
        if kind.name == gangs.KIND.name:
            return self.world.gangs.declared(key)
        table_of = _TABLES.get(kind.name)
        if table_of is None:
            return self.world.storage.find(kind.name, key)
        return table_of(self.world).get(key if kind.is_namespaced else key[1])

    def _apply(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        try:
            self.world.apply(event)
        except StateError:
            raise  # a bug in our own order of calls, not in the object
        except Exception as error:  # of any kind: one object must not block all others
            self._exclude(kind, event.object, error)
            return
        for listener in self._listeners:
            listener(kind, event, before)

    def _exclude(self, kind: registry.Kind, culprit: Any, error: Exception) -> None:
        """Excludes an object that makes the World raise.

        The first time, the error is raised, as the World may be half changed: the next tenure starts with a new World.
        If the object fails there as well, it is the cause, and is ignored from then on.
        """
        uid = culprit.metadata.uid
        if uid not in self._suspects:
            self._suspects.add(uid)
            raise error

        name = f"{culprit.metadata.namespace}/{culprit.metadata.name}"
        LOG.error(
            "informer.object.excluded: it makes the World raise and is ignored",
            exc_info=error,
            extra={"kind": kind.name, "object": name},
        )
        with contextlib.suppress(Exception):
            self.world.apply(events.Deleted(culprit))


class Receiver(Protocol):
    """Receives objects from a watch: the informer, or what builds gangs for it."""

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        """A complete list of a kind, at a resource version."""
        ...

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """An object was added or changed."""
        ...

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """An object was deleted."""
        ...


class Feed:
    """Passes the events of one kind's watch on to the informer."""

    def __init__(
        self, picture: Receiver, kind: registry.Kind, *, trouble: Callable[[str, str], None]
    ) -> None:
        self._picture = picture
        self._kind = kind
        self._trouble = trouble
        self._reported: set[int] = set()  # hashes of reported problems

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """A complete list."""
        self._picture.replaced(self._kind, objects, resource_version)

    def changed(self, object_: Any) -> None:
        """An object was added or changed."""
        self._picture.changed(self._kind, object_)

    def deleted(self, object_: Any) -> None:
        """An object was deleted."""
        self._picture.deleted(self._kind, object_)

    def broken(self, reason: str) -> None:
        """The watch is interrupted."""
        self._trouble(self._kind.name, reason)

    def unreadable(self, name: str, problem: str) -> None:
        """An object that cannot be decoded is ignored. Reported once, however often it changes."""
        report = hash((name, problem))
        if report in self._reported:
            return
        if len(self._reported) >= MAX_REMEMBERED:
            self._reported.clear()
        self._reported.add(report)
        # The first word becomes a metric label, so it must not contain names that users choose.
        self._trouble(self._kind.name, f"unreadable: {name}: {problem}")


def number_of(resource_version: str) -> int:
    """A resourceVersion as a number that grows; 0 if unreadable, which counts as newer than anything."""
    is_number = (
        resource_version.isascii()
        and resource_version.isdigit()
        and len(resource_version) <= MAX_VERSION_DIGITS
    )
    return int(resource_version) if is_number else 0
