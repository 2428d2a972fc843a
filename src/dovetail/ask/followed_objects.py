"""Keeps a set of objects equal to a cluster's, for views that follow changes: `get -w` and the live picture.

Given a transport and the lists a view needs. Recovers from every failure by itself and says what is wrong meanwhile.
Kinds the server does not serve must be left out by the caller. Never writes, never draws.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.boot import clocks
from dovetail.kube import read_objects
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import codec, object_set

Objects = dict[object_set.Key, codec.Stored]


class FollowedObjects:
    """The objects of some lists, as they are now. `changed` is set whenever they are not what they were."""

    def __init__(self, cluster: str) -> None:
        self.changed = asyncio.Event()
        self.trouble = ""  # why the view may be out of date; empty if it is not
        self._cluster = cluster
        self._by_read: dict[object_set.Read, Objects] = {}
        self._unsynced: set[object_set.Read] = set()
        self._synced = asyncio.Event()
        self._revision = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self, over: transport.Transport, reads: tuple[object_set.Read, ...]) -> None:
        """Starts to follow these lists, and returns when all of them were read once."""
        for read in reads:
            if read in self._by_read:
                continue
            self._by_read[read] = {}
            self._unsynced.add(read)
            self._synced.clear()
            work = watch.follow(
                over,
                read.kind,
                _Sink(self, read),
                clock=clocks.SystemClock(),
                namespace=read.namespace,
                params=read.params,
            )
            self._tasks.append(asyncio.create_task(work))
        if self._unsynced:
            await self._synced.wait()

    async def close(self) -> None:
        """Ends all watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def now(self) -> object_set.ObjectSet:
        """The objects as they are."""
        stored = [each for objects in self._by_read.values() for each in objects.values()]
        return object_set.of(self._cluster, stored, revision=self._revision)

    # What the sinks report

    def replace(self, read: object_set.Read, objects: Objects, version: str) -> None:
        """A complete list."""
        self._by_read[read] = objects
        self._note(version)
        self._unsynced.discard(read)
        if not self._unsynced:
            self._synced.set()

    def put(self, read: object_set.Read, stored: codec.Stored) -> None:
        """An object that is new or changed."""
        self._by_read[read][object_set.key_of(stored.struct)] = stored
        self._note(stored.struct.metadata.resource_version)

    def drop(self, read: object_set.Read, stored: codec.Stored) -> None:
        """An object that is gone."""
        self._by_read[read].pop(object_set.key_of(stored.struct), None)
        self._note(stored.struct.metadata.resource_version)

    def _note(self, version: str) -> None:
        self.trouble = ""
        self._revision = max(self._revision, read_objects.number_of(version))
        self.changed.set()


class _Sink:
    """Receives one watch. Views read structs only, so no document is kept."""

    def __init__(self, objects: FollowedObjects, read: object_set.Read) -> None:
        self._objects = objects
        self._read = read

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        stored = [codec.Stored(each, b"{}") for each in objects]
        by_key = {object_set.key_of(each.struct): each for each in stored}
        self._objects.replace(self._read, by_key, resource_version)

    def changed(self, item: Any, /) -> None:
        self._objects.put(self._read, codec.Stored(item, b"{}"))

    def deleted(self, item: Any, /) -> None:
        self._objects.drop(self._read, codec.Stored(item, b"{}"))

    def broken(self, reason: str, /) -> None:
        self._objects.trouble = reason
        self._objects.changed.set()

    def unreadable(self, name: str, problem: str, /) -> None:
        """Left out, as in a table."""
