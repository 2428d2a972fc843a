"""Counts the changes of a cluster and passes them on to open event streams, several changes as one.

Given the kinds of changed objects. Streams get at most four change events a second; a stream that cannot keep up gets
the newest state, not a backlog. Runs on one event loop. Never sends anything itself, never holds an object.
"""

from __future__ import annotations

import asyncio
import datetime
import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.kubetypes import gpu_stack_kinds, registry

SHORTEST_SECONDS: Final = 0.25  # between two change events
_WORK: Final = frozenset({"overview", "workloads", "timeline", "when", "why"})
_DEVICES: Final = frozenset({"overview", "fleet", "nodes", "devices", "capacity"})
# Which resources of the interface are made of a kind; of any other kind, work is.
_RESOURCES: Final = {
    registry.POD.unique_name: _WORK | _DEVICES | {"pods", "queues", "claims", "stack"},
    registry.CLAIM.unique_name: _WORK | _DEVICES | {"claims"},
    registry.NODE.unique_name: _WORK | _DEVICES | {"upgrades", "stack", "healing"},
    registry.SLICE.unique_name: _DEVICES | {"when", "why", "upgrades", "stack"},
    registry.TAINT_RULE.unique_name: _DEVICES | {"when", "why"},
    registry.DEVICE_CLASS.unique_name: frozenset({"capacity", "why", "devices"}),
    registry.QUEUE.unique_name: _WORK | {"queues", "capacity", "policy"},
    registry.TOPOLOGY.unique_name: frozenset({"policy", "fleet", "why"}),
    registry.EVENT.unique_name: frozenset({"overview", "timeline", "why"}),
    registry.STACK_UPGRADE.unique_name: frozenset({"upgrades"}),
    gpu_stack_kinds.DAEMON_SET.unique_name: _WORK | {"stack"},
    **dict.fromkeys(
        (kind.unique_name for kind in gpu_stack_kinds.OPERATOR_KINDS), frozenset({"stack"})
    ),
}
RESOURCES: Final = frozenset().union(_WORK, *_RESOURCES.values())


def new_boot() -> str:
    """The id of one run of the server: versions of another run mean nothing in it."""
    return secrets.token_hex(4)


class Change(NamedTuple):
    """Some resources are not what they were."""

    version: int
    resources: frozenset[str]


class Subscriber:
    """One open stream: what it was not sent yet."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.change: Change | None = None
        self.is_staleness_due = False

    def put(self, change: Change) -> None:
        """Adds a change to what is due."""
        before = self.change.resources if self.change is not None else frozenset()
        self.change = Change(change.version, change.resources | before)
        self.wake.set()


class ChangeFeed:
    """The version of the objects, and who follows it."""

    def __init__(self, boot: str = "") -> None:
        self.boot = boot or new_boot()
        self.version = 0
        self.announced = 0  # the version of the last change event
        self.stale_since: datetime.datetime | None = None
        self._subscribers: set[Subscriber] = set()
        self._resources: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = float("-inf")

    @property
    def subscribers(self) -> int:
        """How many streams are open."""
        return len(self._subscribers)

    def subscribe(self) -> Subscriber:
        """A new stream; pass it to `unsubscribe` when it ends."""
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """The stream has ended."""
        self._subscribers.discard(subscriber)

    def changed(self, kinds: Iterable[str]) -> None:
        """Objects of these kinds changed: a new version."""
        self.version += 1
        for kind in kinds:
            self._resources |= _RESOURCES.get(kind, _WORK)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time(), self._sent_at + SHORTEST_SECONDS)
            self._timer = loop.call_at(due, self._send)

    def stale(self, since: datetime.datetime) -> None:
        """The cluster cannot be reached."""
        if self.stale_since is None:
            self.stale_since = since
            self._wake_for_staleness()

    def fresh(self) -> None:
        """The cluster can be reached, and the objects are its newest."""
        if self.stale_since is not None:
            self.stale_since = None
            self._wake_for_staleness()

    def close(self) -> None:
        """Sends nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._timer = None
        self._sent_at = asyncio.get_running_loop().time()
        self.announced = self.version
        change = Change(self.version, frozenset(self._resources))
        self._resources.clear()
        for subscriber in self._subscribers:
            subscriber.put(change)

    def _wake_for_staleness(self) -> None:
        for subscriber in self._subscribers:
            subscriber.is_staleness_due = True
            subscriber.wake.set()
