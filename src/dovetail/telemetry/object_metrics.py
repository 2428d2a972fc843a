"""The text of all series of a cluster's objects, kept up to date event by event.

Given objects as a watch delivers them. Each object's lines are rendered when it changes and kept; a scrape joins them,
and joins again only families that changed. So a scrape costs the copying of text, not the reading of objects. Never
asks the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.model import exposition
from dovetail.model.exposition import Family, Series
from dovetail.telemetry import gang_counts, object_series, promise_series, waiting_pods

KINDS: Final = (
    registry.CLAIM,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.POD,
    registry.QUEUE,
    registry.INTENT,
)
OPTIONAL: Final = (registry.QUEUE.name, registry.INTENT.name)  # not every cluster serves them
OWN: Final = (
    Family("dovetail_exporter_objects", "gauge", "Objects that the exporter knows, by kind."),
    Family("dovetail_exporter_synced", "gauge", "1 while the watch of the kind is current."),
)

Key = tuple[str, str]
Render = Callable[[Any], Iterator[Series]]


class ObjectMetrics:
    """Lines of all objects, by family."""

    def __init__(self, *, has_partitions: bool = False) -> None:
        self._renderers: dict[str, Render] = {
            registry.CLAIM.name: object_series.of_claim,
            registry.SLICE.name: lambda slice_: object_series.of_slice(
                slice_, has_partitions=has_partitions
            ),
            registry.DEVICE_CLASS.name: object_series.of_class,
            registry.QUEUE.name: object_series.of_queue,
        }
        self._lines: dict[str, dict[Key, bytes]] = {
            family.name: {} for family in object_series.FAMILIES
        }
        self._names: dict[str, dict[Key, tuple[str, ...]]] = {kind.name: {} for kind in KINDS}
        self._joined: dict[str, bytes] = {}
        self.gangs = gang_counts.GangCounts()
        self._waiting = waiting_pods.WaitingPods()
        self._promises = promise_series.PromiseSeries()
        self._is_synced = dict.fromkeys((kind.name for kind in KINDS), False)

    def feed(self, kind: registry.Kind) -> ObjectFeed:
        """Where the watch of a kind delivers."""
        return ObjectFeed(self, kind)

    def changed(self, kind: registry.Kind, item: Any) -> None:
        """An object as it is now."""
        key = (item.metadata.namespace, item.metadata.name)
        if kind is registry.POD:
            self.gangs.changed(item)
            self._waiting.changed(item)
            self._names[kind.name][key] = ()
            return
        if kind is registry.INTENT:
            self._promises.changed(item)
            self._names[kind.name][key] = ()
            return
        self._remove(kind, key)
        by_family: dict[str, list[str]] = {}
        for name, labels, value in self._renderers[kind.name](item):
            by_family.setdefault(name, []).append(exposition.line(name, labels, value))
        for name, lines in by_family.items():
            self._lines[name][key] = "".join(lines).encode()
            self._joined.pop(name, None)
        self._names[kind.name][key] = tuple(by_family)

    def deleted(self, kind: registry.Kind, item: Any) -> None:
        """An object that is gone."""
        key = (item.metadata.namespace, item.metadata.name)
        if isinstance(item, pods.Pod):
            self.gangs.deleted(item)
            self._waiting.deleted(item)
        if isinstance(item, intents.Intent):
            self._promises.deleted(item)
        self._remove(kind, key)

    def replaced(self, kind: registry.Kind, objects: Iterable[Any]) -> None:
        """These are all objects of the kind."""
        listed = list(objects)
        if kind is registry.POD:
            self.gangs.clear()
            self._waiting.clear()
            self._names[kind.name].clear()
        if kind is registry.INTENT:
            self._promises.replaced(listed)
        present = {(item.metadata.namespace, item.metadata.name) for item in listed}
        for key in [key for key in self._names[kind.name] if key not in present]:
            self._remove(kind, key)
        for item in listed:
            self.changed(kind, item)
        self._is_synced[kind.name] = True

    def set_synced(self, kind: registry.Kind, is_synced: bool) -> None:
        """Whether the watch of the kind is current."""
        self._is_synced[kind.name] = is_synced

    def synced_kinds(self) -> dict[str, bool]:
        """By kind, those that every cluster serves."""
        return {
            name: is_synced for name, is_synced in self._is_synced.items() if name not in OPTIONAL
        }

    def text(self) -> bytes:
        """All families that have series."""
        parts: list[bytes] = []
        for family in object_series.FAMILIES:
            if self._lines[family.name]:
                parts.append(self._family_text(family))
        gangs = exposition.text(gang_counts.FAMILIES, self.gangs.series())
        waiting = exposition.text(waiting_pods.FAMILIES, self._waiting.series())
        promises = exposition.text(promise_series.FAMILIES, self._promises.series())
        own = exposition.text(OWN, self._own_series())
        return b"".join((*parts, *map(str.encode, (gangs, waiting, promises, own))))

    def _family_text(self, family: Family) -> bytes:
        joined = self._joined.get(family.name)
        if joined is None:
            joined = family.head.encode() + b"".join(self._lines[family.name].values())
            self._joined[family.name] = joined
        return joined

    def _own_series(self) -> Iterator[Series]:
        for kind in KINDS:
            labels = {"kind": kind.name}
            yield Series("dovetail_exporter_objects", labels, len(self._names[kind.name]))
            yield Series("dovetail_exporter_synced", labels, int(self._is_synced[kind.name]))

    def _remove(self, kind: registry.Kind, key: Key) -> None:
        for name in self._names[kind.name].pop(key, ()):
            if self._lines[name].pop(key, None) is not None:
                self._joined.pop(name, None)


class ObjectFeed:
    """The events of one kind: what a watch calls."""

    def __init__(self, metrics: ObjectMetrics, kind: registry.Kind) -> None:
        self._metrics = metrics
        self._kind = kind

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        """A complete list."""
        self._metrics.replaced(self._kind, objects)

    def changed(self, item: Any, /) -> None:
        """A new object or state."""
        self._metrics.changed(self._kind, item)

    def deleted(self, item: Any, /) -> None:
        """It is gone."""
        self._metrics.deleted(self._kind, item)

    def broken(self, reason: str, /) -> None:
        """What is shown may be old."""
        self._metrics.set_synced(self._kind, False)

    def restored(self) -> None:
        """The watch goes on where it was."""
        self._metrics.set_synced(self._kind, True)

    def unreadable(self, name: str, problem: str, /) -> None:
        """An object that cannot be read has no series."""
