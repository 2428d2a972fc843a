"""Converts objects between the version in which they are stored and the other versions that are served.

Most versions differ in their name alone. Events are stored as events.k8s.io/v1 and served as core v1 too, where some
fields have other names. Given whole trees, returns new ones; never drops a field that has a place on the other side.
"""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import api_events
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import Served

Tree = dict[str, Any]


def is_core_event(served: Served) -> bool:
    """Whether objects need more than another apiVersion."""
    return served.kind.name == "Event" and served.api_version == "v1"


def document(served: Served, record: Record) -> bytes:
    """A stored object in the served version. Costs nothing in the stored one."""
    if served.is_stored_version:
        return record.document
    return codec.encode_tree(tree(served, record.tree))


def tree(served: Served, stored: Tree) -> Tree:
    """A stored tree in the served version."""
    if served.is_stored_version:
        return stored
    if is_core_event(served):
        return api_events.to_core(stored)
    return stored | {"apiVersion": served.api_version}


def stored(served: Served, sent: Tree) -> Tree:
    """A tree in the served version as it is stored. A wrong apiVersion stays, for the rules to refuse."""
    if served.is_stored_version:
        return sent
    converted = dict(sent)
    if converted.get("apiVersion", served.api_version) == served.api_version:
        converted["apiVersion"] = served.kind.api_version
    if is_core_event(served):
        for stored_name, core_name in api_events.CORE_NAMES:
            if core_name in converted:
                converted[stored_name] = converted.pop(core_name)
    return converted
