"""Removes old events, as an API server does: an event is for people who look now.

Given the object store; reads its clock. Never removes anything else.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.sim.server.object_store import ObjectStore, Record

LIFETIME: Final = datetime.timedelta(hours=1)  # kube-apiserver's --event-ttl


def expire(shelf: ObjectStore) -> int:
    """Removes events that were last seen more than an hour ago; returns how many. Linear in old events."""
    oldest = shelf.now() - LIFETIME
    old_keys = []
    for key, record in shelf.table(registry.EVENT).records.items():
        created_at = record.metadata.creation_timestamp
        if created_at is None or timestamps.parse_as_utc(created_at) > oldest:
            break  # records are in the order of their creation
        if _last_seen(record) <= oldest:
            old_keys.append(key)
    for key in old_keys:
        shelf.delete(registry.EVENT, key)
    return len(old_keys)


def _last_seen(record: Record) -> datetime.datetime:
    """When it was last observed; for an event without a series, when it was created."""
    tree = record.tree
    series = tree.get("series") or {}
    text = series.get("lastObservedTime") or tree.get("deprecatedLastTimestamp")
    return timestamps.parse_as_utc(text or record.metadata.creation_timestamp or "")
