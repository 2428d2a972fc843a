"""Merges an applied manifest into a live object, the way `kubectl apply` does it with three trees.

Fields of the manifest win; fields that were in the last manifest and no longer are get removed; fields of other writers
stay. Lists are replaced as a whole. Given plain trees, returns a new one. Knows nothing about the meaning of fields.
"""

from typing import Any, Final

Tree = dict[str, Any]

# Lists of a status that an API server merges item by item, and the field that identifies an item.
KEYS: Final = {"conditions": "type", "reservedFor": "uid"}


def merged(live: Tree, applied: Tree, *, before: Tree) -> Tree:
    """The live tree after `applied`, where `before` is what was applied last time (empty if never)."""
    result = dict(live)
    for name in before.keys() - applied.keys():
        result.pop(name, None)
    for name, applied_value in applied.items():
        result[name] = _merged_value(live.get(name), applied_value, before=before.get(name))
    return result


def as_merge_patch(live: Tree, patch: Tree) -> Tree:
    """Turns a strategic merge patch that only adds into a merge patch: keyed lists keep their other items."""
    result = dict(patch)
    for name, patch_value in patch.items():
        have = live.get(name)
        if isinstance(patch_value, dict) and isinstance(have, dict):
            result[name] = as_merge_patch(have, patch_value)
        elif name in KEYS and isinstance(patch_value, list) and isinstance(have, list):
            result[name] = _by_key(have, patch_value, KEYS[name])
    return result


def _by_key(have: list[Tree], applied: list[Tree], key: str) -> list[Tree]:
    """The existing items in their order, updated, then the new ones."""
    by_key = {entry[key]: entry for entry in have}
    for entry in applied:
        by_key[entry[key]] = by_key.get(entry[key], {}) | entry
    return list(by_key.values())


def _merged_value(live: Any, applied: Any, *, before: Any) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict):
        return merged(live, applied, before=before if isinstance(before, dict) else {})
    if isinstance(live, list) and isinstance(applied, list) and applied == before:
        return live  # unchanged in the manifest: keep the server's defaults
    return applied
