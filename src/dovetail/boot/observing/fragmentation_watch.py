"""Measures now and then how many free GPUs the observed mix of work cannot use, on a replica that follows a watch.

Given the events of an informer. Changes are collected, and brought to the replica only when it is measured: in a thread
of its own, one measurement at a time, so that neither a watch nor a scrape waits for the engine. The pause between two
measurements grows with what the last one took. Nothing is measured of clusters with too many nodes. Never decides
anything about the cluster.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from dovetail.answer.capacity import fragmentation
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import codec, object_set, registry
from dovetail.model import policy
from dovetail.ports import clock as clocks
from dovetail.world import events

LOG = logging.getLogger("dovetail.fragmentation")
PAUSE_SECONDS: Final = 60.0
PAUSE_FACTOR: Final = 9.0  # at most a tenth of the time is spent on measuring
MOST_NODES: Final = 4_000  # of more, a measurement takes too long
MICRO_PER_MILLI: Final = 1_000
# What the engine places copies by.
KINDS: Final = (
    registry.NAMESPACE,
    registry.NODE,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.CLAIM,
    registry.TEMPLATE,
    registry.POD,
)
_NO_DOCUMENT: Final = b"{}"  # the engine reads structs


class Measured(NamedTuple):
    """The unusable GPUs: in millionths by node; and with what is free by type and pool."""

    micro_gpu_by_node: dict[str, int]
    groups: fragmentation.Fragmentation


class FragmentationWatch:
    """Changes that wait, and the replica, which belongs to the thread."""

    def __init__(self, clock: clocks.Clock, *, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._changes: dict[object_set.Key, Edit] = {}
        self._unlisted: set[str] = set()
        self._replica: Replica | None = None
        self._due = 0.0
        self._is_too_large = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fragmentation")

    def observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        """An event, as informers call their listeners."""
        self.put(kind, event.object, is_there=isinstance(event, events.Changed))

    def put(self, kind: registry.Kind, item: Any, *, is_there: bool) -> None:
        """An object that came, changed or is gone."""
        if kind not in KINDS:
            return
        key = object_set.Key(kind.unique_name, item.metadata.namespace, item.metadata.name)
        self._changes[key] = Edit(key, codec.Stored(item, _NO_DOCUMENT) if is_there else None)

    def feed(self, kind: registry.Kind) -> FragmentationFeed:
        """Where the watch of a kind delivers, for processes without an informer."""
        self._unlisted.add(kind.name)
        return FragmentationFeed(self, kind)

    def note_listed(self, kind: registry.Kind) -> None:
        """All objects of the kind were delivered."""
        self._unlisted.discard(kind.name)

    @property
    def is_listed(self) -> bool:
        """Whether every feed has delivered a complete list."""
        return not self._unlisted

    @property
    def is_due(self) -> bool:
        """Whether something changed, and the pause after the last measurement is over."""
        return bool(self._changes) and self._clock.monotonic() >= self._due

    async def measure(self) -> Measured | None:
        """Measures now; None where the cluster is too large for that. Raises what the engine raises."""
        changes, self._changes = list(self._changes.values()), {}
        begun = self._clock.monotonic()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._measured, changes)
        finally:
            now = self._clock.monotonic()
            self._due = now + max(self._pause_seconds, PAUSE_FACTOR * (now - begun))

    def close(self) -> None:
        """Ends the thread once what it does is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _measured(self, changes: list[Edit]) -> Measured | None:
        """In the thread."""
        now = self._clock.now()
        if self._replica is None:
            self._replica = Replica(object_set.NOTHING, policy.DEFAULT, now)
        for change in changes:
            self._follow(self._replica, change, now)
        count = len(self._replica.world.nodes)
        if count > MOST_NODES:
            if not self._is_too_large:
                LOG.warning("fragmentation.left-out: too many nodes", extra={"nodes": count})
            self._is_too_large = True
            return None
        self._is_too_large = False
        mix = fragmentation.observed_mix(self._replica)
        measured = fragmentation.of_nodes(self._replica, mix)
        shapes = len(mix[: fragmentation.MOST_SHAPES])
        return Measured(
            micro_gpu_by_node={
                node: round(milli * MICRO_PER_MILLI)
                for node, milli in measured.unusable.items()
                if milli
            },
            groups=fragmentation.summary(self._replica.world, measured, shapes=shapes),
        )

    def _follow(self, replica: Replica, change: Edit, now: datetime.datetime) -> None:
        try:
            replica.follow((change,), now)
        except Exception as error:  # of any kind: one object must not keep all others out
            LOG.warning(
                "fragmentation.object: left out",
                extra={"object": str(change.key), "why": str(error)},
            )


class FragmentationFeed:
    """The events of one kind: what a watch calls. Finds what a new list lacks."""

    def __init__(self, target: FragmentationWatch, kind: registry.Kind) -> None:
        self._target = target
        self._kind = kind
        self._known: dict[tuple[str, str], Any] = {}

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """A complete list."""
        present = {(item.metadata.namespace, item.metadata.name) for item in objects}
        for key, item in list(self._known.items()):
            if key not in present:
                self.deleted(item)
        for item in objects:
            self.changed(item)
        self._target.note_listed(self._kind)

    def changed(self, item: Any, /) -> None:
        """A new object or state."""
        self._known[item.metadata.namespace, item.metadata.name] = item
        self._target.put(self._kind, item, is_there=True)

    def deleted(self, item: Any, /) -> None:
        """It is gone."""
        self._known.pop((item.metadata.namespace, item.metadata.name), None)
        self._target.put(self._kind, item, is_there=False)

    def broken(self, reason: str, /) -> None:
        """The next list closes the gap."""

    def restored(self) -> None:
        """The watch goes on where it was."""

    def unreadable(self, name: str, problem: str, /) -> None:
        """An object that cannot be read takes no part."""
