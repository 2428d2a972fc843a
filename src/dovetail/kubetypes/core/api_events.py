"""Event of events.k8s.io/v1, with the fields we write: something happened to an object, in words for its owner.

Core v1 serves the same events with other names of some fields; both ways of that conversion are here.
"""

from typing import Any, Final

import msgspec

from dovetail.kubetypes import meta

API_VERSION: Final = "events.k8s.io/v1"
MAX_NOTE_BYTES = 1024  # events.k8s.io/v1
MAX_REASON_BYTES = 128

# The name in events.k8s.io/v1 and the name in core v1 of the same field.
CORE_NAMES: Final = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


class ObjectReference(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An object by name and identity."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class EventSeries(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How often the same happened, and when last."""

    count: meta.Int32 = 0
    last_observed_time: meta.Time | None = None


class EventSource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The component that reported an event, as older writers say it."""

    component: str = ""
    host: str = ""


class Event(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What happened to which object, and which component reports it."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    event_time: meta.Time | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
    series: EventSeries | None = None
    deprecated_source: EventSource | None = None
    deprecated_first_timestamp: meta.Time | None = None
    deprecated_last_timestamp: meta.Time | None = None
    deprecated_count: meta.Int32 = 0


def from_core(tree: dict[str, Any]) -> dict[str, Any]:
    """An event of core v1 as events.k8s.io/v1 has it; fields without a value are left out."""
    converted = {name: value for name, value in tree.items() if value is not None}
    converted["apiVersion"] = API_VERSION
    for name, core_name in CORE_NAMES:
        if core_name in converted:
            converted[name] = converted.pop(core_name)
    return converted


def to_core(tree: dict[str, Any]) -> dict[str, Any]:
    """An event of events.k8s.io/v1 as core v1 has it."""
    converted = tree | {"apiVersion": "v1"}
    for name, core_name in CORE_NAMES:
        if name in converted:
            converted[core_name] = converted.pop(name)
    converted.setdefault("source", {})
    if "series" in converted and "count" not in converted:
        converted["count"] = converted["series"].get("count")
    return converted
