"""What a structural schema changes in a custom resource: fields it does not know go, defaults come.

Given the OpenAPI v3 schema of one version of a CustomResourceDefinition and a tree; returns a new tree. The rules are
those of apiextensions-apiserver (structural pruning and defaulting). Never refuses anything.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]

# Every object has them, whatever its schema says.
_OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


class Pruned(NamedTuple):
    """A tree without the fields that its schema does not know, and their paths."""

    tree: Any
    unknown: list[str]


def pruned(schema: Tree, tree: Tree) -> Pruned:
    """The tree of a whole object without unknown fields."""
    unknown: list[str] = []
    kept = _pruned(schema, tree, "", unknown, is_object=True)
    return Pruned(kept, unknown)


def defaulted(schema: Tree, value: Any) -> Any:
    """The value with the defaults of absent fields. Fields that are null and must not be count as absent."""
    if isinstance(value, list):
        items = schema.get("items")
        return [defaulted(items, item) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value

    filled = dict(value)
    properties: Tree = schema.get("properties") or {}
    for name, below in properties.items():
        if filled.get(name) is None and not below.get("nullable"):
            filled.pop(name, None)
        if name not in filled and "default" in below:
            filled[name] = copy.deepcopy(below["default"])
        if name in filled:
            filled[name] = defaulted(below, filled[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for name in filled.keys() - properties.keys():
            filled[name] = defaulted(additional, filled[name])
    return filled


def _pruned(schema: Tree, value: Any, path: str, unknown: list[str], *, is_object: bool) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        is_embedded = bool(items.get("x-kubernetes-embedded-resource"))
        return [
            _pruned(items, item, f"{path}[{index}]", unknown, is_object=is_embedded)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value

    properties: Tree = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    kept: Tree = {}
    for name, item in value.items():
        place = f"{path}.{name}" if path else name
        if is_object and name in _OBJECT_FIELDS:
            kept[name] = item
        elif isinstance(below := properties.get(name, additional), dict):
            is_embedded = bool(below.get("x-kubernetes-embedded-resource"))
            kept[name] = _pruned(below, item, place, unknown, is_object=is_embedded)
        elif keeps_unknown or additional:
            kept[name] = item
        else:
            unknown.append(place)
    return kept
