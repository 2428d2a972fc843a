"""Conditions in the status of owners: reads them, and returns lists with one set or removed.

Given lists of conditions as trees and times as text; returns new lists. A condition of the same status and reason
stays as it is, so that a controller with nothing new to say writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.sim.controllers import tree_fields

Tree = dict[str, Any]


def condition_of(status: Tree, type_: str) -> Tree | None:
    """The condition of a type."""
    conditions: Iterable[Tree] = tree_fields.entries(status, "conditions")
    for entry in conditions:
        if entry.get("type") == type_:
            return entry
    return None


def is_true(status: Tree, type_: str) -> bool:
    """Whether the condition of a type is there and true."""
    entry = condition_of(status, type_)
    return entry is not None and entry.get("status") == "True"


def without(conditions: Iterable[Tree], type_: str) -> list[Tree]:
    """The conditions of other types."""
    return [entry for entry in conditions if entry.get("type") != type_]


def replaced(conditions: Iterable[Tree], condition: Tree) -> list[Tree]:
    """The conditions with this one last; unchanged if it has neither a new status nor a new reason."""
    entries = list(conditions)
    old = condition_of({"conditions": entries}, condition["type"])
    if old is None:
        return [*entries, condition]
    has_old_status = old.get("status") == condition["status"]
    if has_old_status and old.get("reason") == condition["reason"]:
        return entries
    if has_old_status and "lastTransitionTime" in old:
        condition = condition | {"lastTransitionTime": old["lastTransitionTime"]}
    return [*without(entries, condition["type"]), condition]


def compact(status: Tree, *, always: Iterable[str] = ()) -> Tree:
    """The status without zeros and empty fields, as Go leaves them out; those of `always` stay."""
    required = frozenset(always)
    return {
        name: value
        for name, value in status.items()
        if name in required or value not in (None, 0, "", [], {})
    }
