"""Merges an applied manifest into a live object, the way `kubectl apply` does it with three trees.

What the manifest says wins; what it said last time and says no longer goes; what others wrote stays. Lists
are whole values. Given plain trees, returns a new one. Never looks at field meanings.
"""

from typing import Any

Tree = dict[str, Any]


def merged(live: Tree, applied: Tree, *, before: Tree) -> Tree:
    """The live tree after `applied`, where `before` is what was applied last time (empty if never)."""
    result = dict(live)
    for name in before.keys() - applied.keys():
        result.pop(name, None)
    for name, wanted in applied.items():
        result[name] = _merged_value(live.get(name), wanted, before=before.get(name))
    return result


def _merged_value(live: Any, wanted: Any, *, before: Any) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return merged(live, wanted, before=before if isinstance(before, dict) else {})
    if isinstance(live, list) and isinstance(wanted, list) and wanted == before:
        return live  # unchanged in the manifest: what the server filled in stays
    return wanted
