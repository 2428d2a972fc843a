"""Merges an applied manifest into a live object, the way `kubectl apply` does it with three trees.

What the manifest says wins; what it said last time and says no longer goes; what others wrote stays. Lists
are whole values. Given plain trees, returns a new one. Never looks at field meanings.
"""

from typing import Any, Final

Tree = dict[str, Any]

KEYS: Final = {"conditions": "type", "reservedFor": "uid"}  # lists of a status that an API server merges item by item


def merged(live: Tree, applied: Tree, *, before: Tree) -> Tree:
    """The live tree after `applied`, where `before` is what was applied last time (empty if never)."""
    result = dict(live)
    for name in before.keys() - applied.keys():
        result.pop(name, None)
    for name, wanted in applied.items():
        result[name] = _merged_value(live.get(name), wanted, before=before.get(name))
    return result


def completed(live: Tree, patch: Tree) -> Tree:
    """A strategic merge patch that only adds, as the merge patch that says the same: keyed lists keep other items."""
    result = dict(patch)
    for name, wanted in patch.items():
        have = live.get(name)
        if isinstance(wanted, dict) and isinstance(have, dict):
            result[name] = completed(have, wanted)
        elif name in KEYS and isinstance(wanted, list) and isinstance(have, list):
            result[name] = _by_key(have, wanted, KEYS[name])
    return result


def _by_key(have: list[Tree], wanted: list[Tree], key: str) -> list[Tree]:
    """What is there in its order, changed where it is wanted otherwise, then what is new."""
    found = {one[key]: one for one in have}
    for one in wanted:
        found[one[key]] = found.get(one[key], {}) | one
    return list(found.values())


def _merged_value(live: Any, wanted: Any, *, before: Any) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return merged(live, wanted, before=before if isinstance(before, dict) else {})
    if isinstance(live, list) and isinstance(wanted, list) and wanted == before:
        return live  # unchanged in the manifest: what the server filled in stays
    return wanted
