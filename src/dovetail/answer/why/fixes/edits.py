"""Edits of trees that rules are made of: replace a value, drop it, rename a key, set it.

Each checks that the tree holds what it is about, and returns the same tree otherwise: pods of one gang may differ.
Never changes a tree in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.answer.why.fixes import tree_paths
from dovetail.answer.why.fixes.proposals import Edit
from dovetail.answer.why.fixes.tree_paths import Path, Tree


def replacing(path: Path, old: Any, new: Any) -> Edit:
    """Another value where the old one is."""

    def edit(tree: Tree) -> Tree:
        if tree_paths.at(tree, path) != old:
            return tree
        result: Tree = tree_paths.with_value(tree, path, new)
        return result

    return edit


def setting(path: Path, value: Any) -> Edit:
    """A value, whatever was there."""

    def edit(tree: Tree) -> Tree:
        result: Tree = tree_paths.with_value(tree, path, value)
        return result

    return edit


def dropping(path: Path, old: Any) -> Edit:
    """Without a value, where it is there."""

    def edit(tree: Tree) -> Tree:
        if tree_paths.at(tree, path) != old:
            return tree
        result: Tree = tree_paths.without(tree, path)
        return result

    return edit


def renaming(base: Path, key: str, new_key: str) -> Edit:
    """A key of an object under another name, in its old place."""

    def edit(tree: Tree) -> Tree:
        entries = tree_paths.at(tree, base)
        if not isinstance(entries, dict) or key not in entries:
            return tree
        renamed = {new_key if name == key else name: value for name, value in entries.items()}
        result: Tree = tree_paths.with_value(tree, base, renamed)
        return result

    return edit


def appending(path: Path, item: Any) -> Edit:
    """One more item in a list."""

    def edit(tree: Tree) -> Tree:
        result: Tree = tree_paths.appended(tree, path, item)
        return result

    return edit


def filtering(path: Path, keeps: Callable[[Any], bool]) -> Edit:
    """A list without some of its items; nothing changes where it has none of these."""

    def edit(tree: Tree) -> Tree:
        items = tree_paths.at(tree, path)
        if not isinstance(items, list) or all(map(keeps, items)):
            return tree
        result: Tree = tree_paths.with_value(tree, path, [item for item in items if keeps(item)])
        return result

    return edit


def in_turn(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(tree: Tree) -> Tree:
        for part in edits:
            tree = part(tree)
        return tree

    return edit
