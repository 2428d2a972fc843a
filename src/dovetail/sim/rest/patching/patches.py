"""Patches as clients send them: JSON patch (RFC 6902) and strategic merge patch, applied to plain trees.

Given a tree and a patch, returns a new tree or refuses the patch in an API server's words. JSON merge patches are in
`sim.server.write_rules`. Never stores anything, never changes its input.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from dovetail.ports import failures
from dovetail.sim.rest import status_answers
from dovetail.sim.rest.patching import list_keys

Tree = dict[str, Any]

MAX_OPERATIONS: Final = 10_000  # of one JSON patch, as upstream
_DIRECTIVE: Final = "$patch"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"


class _Unfit(Exception):
    """An operation that does not fit the document."""


# JSON patch


def json_patched(tree: Tree, operations: Any) -> Tree:
    """The tree after all operations, or none of them."""
    if not isinstance(operations, list):
        raise status_answers.bad(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise failures.Refused(message, status=413, reason="RequestEntityTooLarge")
    result: Any = copy.deepcopy(tree)
    for operation in operations:
        try:
            result = _operated(result, operation)
        except (_Unfit, KeyError, TypeError, AttributeError) as error:
            raise _rejected(operation, error) from None
    if not isinstance(result, dict):
        raise status_answers.bad("a JSON patch must leave an object")
    return result


def _rejected(operation: Any, error: Exception) -> failures.Refused:
    reason = str(error) if isinstance(error, _Unfit) else f"malformed operation: {error}"
    message = (
        f"the server rejected our request due to an error in our request: {operation}: {reason}"
    )
    return failures.Refused(message, status=422, reason="Invalid")


def _operated(document: Any, operation: Tree) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _added(document, path, copy.deepcopy(operation["value"]))
        case "replace":
            _read(document, path)
            if not path:
                return operation["value"]
            return _added(_removed(document, path), path, copy.deepcopy(operation["value"]))
        case "remove":
            return _removed(document, path)
        case "move":
            source = _pointer(operation["from"])
            value = _read(document, source)
            return _added(_removed(document, source), path, value)
        case "copy":
            return _added(
                document, path, copy.deepcopy(_read(document, _pointer(operation["from"])))
            )
        case "test":
            if _read(document, path) != operation.get("value"):
                raise _Unfit("testing value failed")
            return document
        case other:
            raise _Unfit(f'unexpected kind "{other}"')


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise _Unfit(f'path "{text}" does not begin with "/"')
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for part in path:
        document = (
            document[_index(part, document)]
            if isinstance(document, list)
            else _field(document, part)
        )
    return document


def _field(document: Any, name: str) -> Any:
    if not isinstance(document, dict) or name not in document:
        raise _Unfit(f'path "{name}" does not exist')
    return document[name]


def _index(part: str, items: list[Any]) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise _Unfit(f'index "{part}" is out of bounds')
    return int(part)


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _read(document, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        is_end = last == "-" or last == str(len(parent))
        parent.insert(len(parent) if is_end else _index(last, parent), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _Unfit(f'"{last}" cannot be added to a plain value')
    return document


def _removed(document: Any, path: list[str]) -> Any:
    if not path:
        raise _Unfit("the whole document cannot be removed")
    parent = _read(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(path[-1], parent)]
    else:
        _field(parent, path[-1])
        del parent[path[-1]]
    return document


# Strategic merge patch


def strategic(tree: Tree, patch: Tree) -> Tree:
    """The tree after a strategic merge patch with the merge keys of built-in kinds."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        replacement: Tree = _without_directives(patch)
        return replacement
    if directive == "delete":
        return {}
    result = dict(tree)
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(result, name, value)
    _apply_directives(result, patch)
    return result


def _merge_field(result: Tree, name: str, value: Any) -> None:
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict):
        current = result.get(name)
        merged = strategic(current if isinstance(current, dict) else {}, value)
        if value.get(_DIRECTIVE) == "delete":
            result.pop(name, None)
        else:
            result[name] = merged
    elif isinstance(value, list):
        result[name] = _merged_list(name, result.get(name), value)
    else:
        result[name] = value


def _merged_list(name: str, current: Any, patch: list[Any]) -> list[Any]:
    existing = current if isinstance(current, list) else []
    if name in list_keys.SETS:
        return [*existing, *(value for value in patch if value not in existing)]
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [
            _without_directives(item) for item in patch if len(item) > 1 or _DIRECTIVE not in item
        ]
    key = list_keys.merge_key(name, [*existing, *patch])
    if not key:
        return [_without_directives(item) if isinstance(item, dict) else item for item in patch]
    return _merged_items(key, existing, patch)


def _merged_items(key: str, existing: list[Tree], patch: list[Tree]) -> list[Tree]:
    """Existing items in their order, changed or deleted, then new ones."""
    merged = {_identity(item, key): item for item in existing}
    for item in patch:
        identity = _identity(item, key)
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = strategic(merged.get(identity, {}), item)
    return list(merged.values())


def _identity(item: Tree, key: str) -> Any:
    if key not in item:
        raise status_answers.bad(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _apply_directives(result: Tree, patch: Tree) -> None:
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            if isinstance(result.get(field), list):
                result[field] = [item for item in result[field] if item not in value]
        elif name == _RETAIN:
            for field in result.keys() - set(value):
                del result[field]
        elif name.startswith(_ORDER):
            _order(result, name.removeprefix(_ORDER), value)


def _order(result: Tree, field: str, order: list[Any]) -> None:
    """Puts the listed items into their order; items the patch does not know keep their place behind them."""
    items = result.get(field)
    if not isinstance(items, list):
        return
    key = list_keys.merge_key(field, items)
    wanted = [entry.get(key) if key and isinstance(entry, dict) else entry for entry in order]
    ranks = {value: rank for rank, value in enumerate(wanted)}

    def rank(item: Any) -> int:
        return ranks.get(item.get(key) if key else item, len(ranks))

    result[field] = sorted(items, key=rank)


def _without_directives(patch: Any) -> Any:
    if isinstance(patch, dict):
        return {
            name: _without_directives(value)
            for name, value in patch.items()
            if not name.startswith("$") and value is not None
        }
    if isinstance(patch, list):
        return [_without_directives(item) for item in patch]
    return patch
