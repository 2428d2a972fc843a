"""Events about an object, newest first, of core v1 and of events.k8s.io alike.

Given the replica and the object. An event about an earlier object of the same name is left out. Never judges whether
what an event says still holds.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.kubetypes import codec, object_set, registry

_KINDS: Final = (registry.EVENT.unique_name, object_set.unique_kind("v1", "Event"))
_COMBINED: Final = (
    "(combined from similar events): "  # client-go, where many events differ slightly
)
_LONG_AGO: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class Event(NamedTuple):
    """What a component reported about an object."""

    about: str  # such as "Pod train/a"
    reason: str
    message: str
    source: str
    is_warning: bool
    times: int
    last: datetime.datetime | None

    @property
    def order(self) -> datetime.datetime:
        """When it was last reported; without a time, long ago."""
        return self.last or _LONG_AGO

    @property
    def line(self) -> str:
        """As evidence."""
        by = f" by {self.source}" if self.source else ""
        source = f"{self.about}, event {self.reason}{by}"
        return quoting.line(source, self.last, self.message, count=self.times)


def events_of(
    replica: Replica, kind: str, namespace: str, name: str, *, uid: str = ""
) -> tuple[Event, ...]:
    """The events about one object, newest first. Reads only the events that mention its name."""
    mention = name.encode(errors="replace")
    unique: dict[tuple[str, str], Event] = {}
    for event_kind in _KINDS:
        for stored in replica.listed(event_kind):
            if mention not in stored.document:
                continue
            tree = _tree_of(stored)
            if _is_about(tree, kind, namespace, name, uid):
                identity = (stored.struct.metadata.namespace, stored.struct.metadata.name)
                unique[identity] = _event(tree, codec.named(kind, namespace, name))
    return tuple(sorted(unique.values(), key=_newest_first, reverse=True))


def refused_creations(replica: Replica, namespace: str, pod: str) -> Iterator[tuple[str, str]]:
    """Kind and name of the objects whose events say that this pod could not be created, newest first."""
    mention = pod.encode(errors="replace")
    refusals: list[tuple[Event, str, str]] = []
    for event_kind in _KINDS:
        for stored in replica.listed(event_kind, namespace=namespace):
            if mention not in stored.document:
                continue
            tree = _tree_of(stored)
            event = _event(tree, "")
            subject = fields.tree_at(tree, "regarding") or fields.tree_at(tree, "involvedObject")
            words = event.message.replace('"', " ").split()
            if "Create" in event.reason and "Failed" in event.reason and pod in words:
                kind, name = fields.text_at(subject, "kind"), fields.text_at(subject, "name")
                refusals.append((event, kind, name))
    for _, kind, name in sorted(refusals, key=lambda item: _newest_first(item[0]), reverse=True):
        yield kind, name


def with_reason(events: tuple[Event, ...], *reasons: str) -> Iterator[Event]:
    """Those with one of the reasons, newest first."""
    return (event for event in events if event.reason in reasons)


def _newest_first(event: Event) -> tuple[datetime.datetime, str, str]:
    return event.order, event.reason, event.message


def _tree_of(stored: codec.Stored) -> Tree:
    try:
        return stored.tree
    except errors.InputError:
        return {}


def _is_about(tree: Tree, kind: str, namespace: str, name: str, uid: str) -> bool:
    subject = fields.tree_at(tree, "regarding") or fields.tree_at(tree, "involvedObject")
    if (fields.text_at(subject, "kind"), fields.text_at(subject, "name")) != (kind, name):
        return False
    if fields.text_at(subject, "namespace") not in ("", namespace):
        return False
    event_uid = fields.text_at(subject, "uid")
    return not uid or not event_uid or event_uid == uid


def _event(tree: Tree, about: str) -> Event:
    sources = (
        fields.text_at(tree, "reportingController"),
        fields.text_at(tree, "reportingComponent"),
        fields.text_at(tree, "source", "component"),
        fields.text_at(tree, "deprecatedSource", "component"),
    )
    return Event(
        about=about,
        reason=fields.text_at(tree, "reason"),
        message=(fields.text_at(tree, "note") or fields.text_at(tree, "message")).removeprefix(
            _COMBINED
        ),
        source=next(filter(None, sources), ""),
        is_warning=fields.text_at(tree, "type") == "Warning",
        times=max(
            fields.number_at(tree, "series", "count"),
            fields.number_at(tree, "count"),
            fields.number_at(tree, "deprecatedCount"),
            1,
        ),
        last=_last_time(tree),
    )


def _last_time(tree: Tree) -> datetime.datetime | None:
    times = (
        fields.time_at(tree, "series", "lastObservedTime"),
        fields.time_at(tree, "lastTimestamp"),
        fields.time_at(tree, "deprecatedLastTimestamp"),
        fields.time_at(tree, "eventTime"),
        fields.time_at(tree, "firstTimestamp"),
        fields.time_at(tree, "deprecatedFirstTimestamp"),
        fields.time_at(tree, "metadata", "creationTimestamp"),
    )
    return max(filter(None, times), default=None)
