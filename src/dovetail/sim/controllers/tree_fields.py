"""Reads fields of objects kept as trees, where any part of the path may be absent or null.

Given a tree and a path; returns what is there, or an empty mapping, an empty list, zero. Never changes a tree.
"""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]


def mapping(tree: Tree, *path: str) -> Tree:
    """The mapping at a path; an empty one if it is absent."""
    value: Any = tree
    for name in path:
        value = value.get(name)
        if value is None:
            return {}
    result: Tree = value
    return result


def entries(tree: Tree, *path: str) -> list[Any]:
    """The list at a path; an empty one if it is absent."""
    value = mapping(tree, *path[:-1]).get(path[-1])
    return [] if value is None else list(value)


def number(tree: Tree, *path: str) -> int:
    """The number at a path; zero if it is absent."""
    value = mapping(tree, *path[:-1]).get(path[-1])
    return 0 if value is None else int(value)
