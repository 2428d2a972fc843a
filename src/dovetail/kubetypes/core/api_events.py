"""Event of events.k8s.io/v1, with the fields we write: something happened to an object, in words for its owner."""

import msgspec

from dovetail.kubetypes import meta

MAX_NOTE_BYTES = 1024  # events.k8s.io/v1
MAX_REASON_BYTES = 128


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
