"""Intent of dovetail.dev/v1alpha1: what a scheduler is about to do or has promised, stored for the next leader.

Each is one of four things: a gang whose pods are being bound; the start promised to a gang; the slot of a pod that was
moved, reserved for its replacement; devices of a pod that was removed by force. Written once: a change is a new Intent.
"""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import meta
from dovetail.quantity import quantity


class Member(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A pod, the node decided for it, and the claims that get devices for it."""

    pod: str = ""
    uid: str = ""
    node: str = ""
    claims: tuple[str, ...] = ()


class Promise(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """When a gang starts, and where. Devices are not part of it: at the promised start any that fit will do."""

    start: str = ""  # RFC 3339; empty if an earlier start was lost
    moved_from: str = ""  # the start promised before, if that was earlier
    cause: str = ""
    seats: tuple[Member, ...] = ()


class Device(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A device, or what is taken of one."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, quantity.Quantity] = {}


class Slot(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """The slot reserved for a pod that moves: a node, what the pod takes of it, and devices there."""

    pod: str = ""
    uid: str = ""
    owner: str = ""  # the uid of the controller that creates the replacement
    node: str = ""
    requests: dict[str, quantity.Quantity] = {}
    devices: tuple[Device, ...] = ()


class Quarantine(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Devices that a pod removed by force may still be using: kept out of use, and charged to its queue."""

    pod: str = ""
    uid: str = ""
    node: str = ""
    queue: str = ""
    seconds: meta.Int64 = 0  # for how long from the removal on
    devices: tuple[Device, ...] = ()


class IntentSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is under way or promised, and the deadline by which it ends either way.

    The members of a large gang are in several intents, which have a batch in common.
    """

    gang: str = ""
    attempt: meta.Int32 = 1
    deadline: str = ""  # RFC 3339
    members: tuple[Member, ...] = ()
    part: meta.Int32 = 1
    parts: meta.Int32 = 1
    batch: str = ""
    promise: Promise | None = None
    slot: Slot | None = None
    quarantine: Quarantine | None = None


class Intent(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Something a scheduler is about to do for a gang. Namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: IntentSpec = IntentSpec()
