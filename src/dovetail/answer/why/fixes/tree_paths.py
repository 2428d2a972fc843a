"""Fields of plain trees by path: reads them, and returns trees with one of them changed.

A path is made of field names and list positions. Never changes a tree in place: what lies along the path is copied,
everything else is shared.
"""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import codec

Tree = dict[str, Any]
Path = tuple[str | int, ...]


def tree_of(stored: codec.Stored) -> Tree:
    """An object as a plain tree without nulls, which mean nothing to Kubernetes."""
    result: Tree = _without_nulls(stored.tree)
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(own) for name, own in value.items() if own is not None}
    if isinstance(value, list):  # its other items keep their places
        return [{} if item is None else _without_nulls(item) for item in value]
    return value


def objects(tree: Any, path: Path) -> list[tuple[int, Tree]]:
    """The objects in the list at a path, with their places."""
    items = at(tree, path)
    if not isinstance(items, list):
        return []
    return [(place, item) for place, item in enumerate(items) if isinstance(item, dict)]


def at(tree: Any, path: Path) -> Any:
    """The value at a path; None where there is none."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(tree, list) or step >= len(tree):
                return None
            tree = tree[step]
        else:
            if not isinstance(tree, dict) or step not in tree:
                return None
            tree = tree[step]
    return tree


def with_value(tree: Any, path: Path, value: Any) -> Any:
    """The tree with this value at the path; missing objects on the way are made."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items = list(tree)
        items[step] = with_value(items[step], rest, value)
        return items
    fields = dict(tree) if isinstance(tree, dict) else {}
    fields[step] = with_value(fields.get(step), rest, value)
    return fields


def without(tree: Any, path: Path) -> Any:
    """The tree without the field or list item at the path. Objects and lists that are left empty go as well."""
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(tree, list) or step >= len(tree):
            return tree
        items = list(tree)
        if rest:
            items[step] = without(items[step], rest)
            return items
        return items[:step] + items[step + 1 :]
    if not isinstance(tree, dict) or step not in tree:
        return tree
    fields = dict(tree)
    if rest:
        fields[step] = without(fields[step], rest)
        if fields[step] in ({}, []):
            del fields[step]
    else:
        del fields[step]
    return fields


def appended(tree: Any, path: Path, item: Any) -> Any:
    """The tree with one more item at the end of the list at the path."""
    return with_value(tree, path, [*(at(tree, path) or ()), item])
