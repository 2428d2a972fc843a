"""Reads fields of untyped trees: a field that is absent or of another type reads as empty.

Given trees of objects that other programs wrote, so every type may be wrong. Never raises, never changes a tree.
"""

from __future__ import annotations

import datetime
from typing import Any

from dovetail import timestamps

Tree = dict[str, Any]


def value_at(tree: Any, *path: str) -> Any:
    """What stands at the end of the path; None where a step is missing or no object."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def text_at(tree: Any, *path: str) -> str:
    """Text, or nothing."""
    value = value_at(tree, *path)
    return value if isinstance(value, str) else ""


def number_at(tree: Any, *path: str) -> int:
    """A whole number, or 0."""
    value = value_at(tree, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def time_at(tree: Any, *path: str) -> datetime.datetime | None:
    """A time in UTC, or None."""
    try:
        moment = timestamps.parse_or_none(text_at(tree, *path))
        return None if moment is None else moment.astimezone(datetime.UTC)
    except OverflowError:  # a time next to the end of the calendar
        return None


def is_true(tree: Any, *path: str) -> bool:
    """Whether the field is the boolean true."""
    return value_at(tree, *path) is True


def tree_at(tree: Any, *path: str) -> Tree:
    """An object, or an empty one."""
    value = value_at(tree, *path)
    return value if isinstance(value, dict) else {}


def trees_at(tree: Any, *path: str) -> list[Tree]:
    """The objects of a list; other items are left out."""
    value = value_at(tree, *path)
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def texts_at(tree: Any, *path: str) -> list[str]:
    """The texts of a list; other items are left out."""
    value = value_at(tree, *path)
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def condition(tree: Any, type_: str, *path: str) -> Tree:
    """The condition of a type; an empty tree where there is none. They stand under status.conditions by default."""
    for item in trees_at(tree, *(path or ("status", "conditions"))):
        if text_at(item, "type") == type_:
            return item
    return {}
