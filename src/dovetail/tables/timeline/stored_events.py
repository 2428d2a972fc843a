"""The events among a cluster's objects, in either of the two forms in which servers store and print them.

Given a set of objects. What cannot be read as an event is passed over. Never writes one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from dovetail import errors, timestamps
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import api_events


def events_of(objects: object_set.ObjectSet) -> Iterator[api_events.Event]:
    """All events, by namespace and name."""
    for stored in objects.listed(registry.EVENT.unique_name):
        event = event_of(stored)
        if event is not None:
            yield event


def event_of(stored: codec.Stored) -> api_events.Event | None:
    """The event, as events.k8s.io/v1 has it."""
    known: object = stored.struct
    if isinstance(known, api_events.Event):
        return known
    try:
        tree = stored.tree
        if tree.get("apiVersion") == "v1":
            tree = api_events.from_core(tree)
        return codec.decode_struct(api_events.Event, codec.encode_tree(tree))
    except errors.InputError:
        return None


def time_of(event: api_events.Event) -> datetime.datetime | None:
    """When it happened last."""
    series = event.series.last_observed_time if event.series is not None else None
    written = (
        series,
        event.event_time,
        event.deprecated_last_timestamp,
        event.metadata.creation_timestamp,
    )
    times = (timestamps.parse_or_none(each) for each in written)
    return next((time for time in times if time is not None), None)
