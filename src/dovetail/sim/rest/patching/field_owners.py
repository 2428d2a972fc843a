"""Server-side apply: merges what an applier wants, removes what it no longer wants, and keeps who owns which field.

Ownership is kept in metadata.managedFields in upstream's format, for objects that were applied once or whose creator
gave its name. A field
of another owner with another value is a conflict unless the applier forces it. Given plain trees, returns new ones.
Never stores anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.sim.rest import status_answers
from dovetail.sim.rest.patching import list_keys

Tree = dict[str, Any]
Path = tuple[str, ...]
Fields = frozenset[Path]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
_SELF: Final = "."
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Fields that belong to the server or name the object: no manager owns them.
_UNOWNED: Final = frozenset(
    {("f:apiVersion",), ("f:kind",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
    }
)


class Manager(NamedTuple):
    """Who wrote, how, in which version, and where."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class Owners(NamedTuple):
    """Who owns what in one object, with the time each set was last changed."""

    fields: dict[Manager, Fields]
    times: dict[Manager, str]


def applied(
    live: Tree | None,
    wanted: Tree,
    manager: Manager,
    *,
    force: bool,
    now: str,
    schema: Any = None,
) -> Tree:
    """The object after an apply. Raises Conflict for fields of other owners, unless forced."""
    base: Tree = live or {}
    owners = owners_of(base) if _is_tracked(base) else _before_first_apply(base, manager, schema)
    wanted_fields = fields_of(wanted, schema)
    others = {other: fields for other, fields in owners.fields.items() if other != manager}

    contested = dict(_conflicts(others, wanted_fields, base, wanted, schema))
    if contested and not force:
        raise _conflict(contested)
    for other, paths in contested.items():
        others[other] = others[other] - set(paths)

    result = _merged(base, wanted, schema)
    owned_by_others = frozenset().union(*others.values()) if others else frozenset()
    dropped = owners.fields.get(manager, frozenset()) - wanted_fields
    for path in _removable(dropped, owned_by_others):
        result = _without(result, path)
    return _recorded(result, others | {manager: wanted_fields}, owners, now)


def created(tree: Tree, manager: Manager, *, now: str, schema: Any = None) -> Tree:
    """A new object that its writer owns. One of which the writer is not named stays untracked until it is applied."""
    fields = frozenset(path for path in fields_of(tree, schema) if path[0] != "f:status")
    return _recorded(tree, {manager: fields}, Owners({}, {}), now)


def _is_tracked(tree: Tree) -> bool:
    """Whether owners are recorded, or kubectl applied the object by itself: then it takes its own fields over."""
    metadata = tree.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    return bool(metadata.get("managedFields")) or _LAST_APPLIED in annotations


def _before_first_apply(live: Tree, manager: Manager, schema: Any) -> Owners:
    """One owner for everything an object held before it was first applied, as upstream names it."""
    if not live:
        return Owners({}, {})
    fields = frozenset(path for path in fields_of(live, schema) if path[0] != "f:status")
    first = Manager("before-first-apply", UPDATE, manager.api_version)
    created_at = str((live.get("metadata") or {}).get("creationTimestamp"))
    return Owners({first: fields}, {first: created_at})


def _removable(dropped: Fields, owned_by_others: Fields) -> Iterator[Path]:
    """What is removed, in order: whole items first, because their fields say which items they are."""
    remaining = sorted(dropped - owned_by_others)
    kept_items = {path[: at + 1] for path in owned_by_others for at in range(len(path))}
    for path in remaining:
        if path[-1] == _SELF and path[:-1] not in kept_items:
            yield path
    for path in remaining:
        if path[-1] != _SELF and not _is_key_field(path):
            yield path


def _is_key_field(path: Path) -> bool:
    """Whether a field identifies its item: it goes with the item only."""
    is_in_item = len(path) > 1 and path[-2].startswith("k:")
    return is_in_item and path[-1][2:] in msgspec.json.decode(path[-2][2:])


def updated(old: Tree, new: Tree, manager: Manager, *, now: str, schema: Any = None) -> Tree:
    """An object that was written otherwise: what changed now belongs to the writer. Untracked objects stay so."""
    owners = owners_of(old)
    if not owners.fields:
        return new
    before, after = fields_of(old, schema), fields_of(new, schema)
    changed = {
        path for path in after if path[-1] != _SELF and _value(new, path) != _value(old, path)
    }
    fields = {}
    for other, owned in owners.fields.items():
        fields[other] = (owned & after) - (changed if other != manager else set())
    if changed or not before <= after:
        fields[manager] = fields.get(manager, frozenset()) | frozenset(changed)
    return _recorded(new, fields, owners, now)


def _recorded(tree: Tree, fields: Mapping[Manager, Fields], before: Owners, now: str) -> Tree:
    """The object with its owners; a set that did not change keeps its time."""
    entries = []
    for manager, owned in fields.items():
        if not owned:
            continue
        is_unchanged = before.fields.get(manager) == owned
        time = before.times[manager] if is_unchanged else now
        entries.append(_entry(manager, owned, time))
    metadata = dict(tree.get("metadata") or {})
    metadata["managedFields"] = entries
    return tree | {"metadata": metadata}


def owners_of(tree: Tree) -> Owners:
    """The owners that an object records."""
    fields: dict[Manager, Fields] = {}
    times: dict[Manager, str] = {}
    for entry in (tree.get("metadata") or {}).get("managedFields") or ():
        manager = Manager(
            str(entry.get("manager")),
            str(entry.get("operation")),
            str(entry.get("apiVersion")),
            str(entry.get("subresource") or ""),
        )
        fields[manager] = frozenset(_decoded(entry.get("fieldsV1") or {}))
        times[manager] = str(entry.get("time"))
    return Owners(fields, times)


def _entry(manager: Manager, owned: Fields, time: str) -> Tree:
    entry: Tree = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _encoded(owned),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


# Sets of fields


def fields_of(tree: Tree, schema: Any = None) -> Fields:
    """The paths of everything a tree sets."""
    return frozenset(path for path in _paths(tree, (), schema) if not _is_unowned(path))


def _is_unowned(path: Path) -> bool:
    return path[:1] in _UNOWNED or path[:2] in _UNOWNED


def _paths(value: Any, at: Path, schema: Any, field: str = "") -> Iterator[Path]:
    if isinstance(value, dict) and value and not _is_atomic(schema):
        for name, item in value.items():
            yield from _paths(item, (*at, f"f:{name}"), _property(schema, name), name)
    elif isinstance(value, list) and field in list_keys.SETS:
        for item in value:
            yield (*at, f"v:{_json(item)}")
    elif isinstance(value, list) and (keys := _keys(field, value, schema)):
        for item in value:
            place = (*at, _item_key(item, keys))
            yield (*place, _SELF)
            yield from _paths(item, place, _items(schema))
    else:
        yield at


def _keys(field: str, items: list[Any], schema: Any) -> list_keys.Keys:
    if schema is not None:
        return list_keys.schema_keys(schema) or ()
    return list_keys.apply_keys(field, items)


def _item_key(item: Tree, keys: list_keys.Keys) -> str:
    defaults = {"protocol": "TCP"}
    identity = {key: item.get(key, defaults.get(key)) for key in keys}
    return (
        f"k:{_json({key: value for key, value in sorted(identity.items()) if value is not None})}"
    )


def _is_atomic(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("x-kubernetes-map-type") == "atomic"


def _property(schema: Any, name: str) -> Any:
    """The schema of a field; None for built-in kinds, an empty one where a custom kind says nothing."""
    if schema is None:
        return None
    properties = schema.get("properties") or {}
    known = properties.get(name)
    if known is not None:
        return known
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else {}


def _items(schema: Any) -> Any:
    return None if schema is None else schema.get("items") or {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _encoded(paths: Iterable[Path]) -> Tree:
    tree: Tree = {}
    for path in sorted(paths):
        place = tree
        for part in path:
            place = place.setdefault(part, {})
    return tree


def _decoded(tree: Tree, at: Path = ()) -> Iterator[Path]:
    for name, below in tree.items():
        path = (*at, name)
        if below:
            yield from _decoded(below, path)
        else:
            yield path


# Values at paths


def _value(tree: Any, path: Path) -> Any:
    for part in path:
        if part == _SELF:
            return tree
        tree = _step(tree, part)
        if tree is None:
            return None
    return tree


def _step(tree: Any, part: str) -> Any:
    mark, text = part[:2], part[2:]
    if mark == "f:":
        return tree.get(text) if isinstance(tree, dict) else None
    if not isinstance(tree, list):
        return None
    wanted = msgspec.json.decode(text)
    for item in tree:
        if item == wanted if mark == "v:" else _is_item(item, wanted):
            return item
    return None


def _is_item(item: Any, wanted: Tree) -> bool:
    return isinstance(item, dict) and _item_key(item, tuple(wanted)) == f"k:{_json(wanted)}"


def _without(tree: Any, path: Path) -> Any:
    """The tree without one field or item, and without structs and lists that it leaves empty."""
    part = path[0]
    below = _step(tree, part) if part != _SELF else None
    if below is None:
        return tree
    is_last = len(path) == 1 or path[1:] == (_SELF,)
    rest = None if is_last else _without(below, path[1:])
    is_empty = is_last or (rest in ({}, []) and below not in ({}, []))
    if isinstance(tree, dict):
        result = dict(tree)
        name = part[2:]
        if is_empty:
            del result[name]
        else:
            result[name] = rest
        return result
    if is_empty:
        return [item for item in tree if item is not below]
    return [rest if item is below else item for item in tree]


def _merged(live: Any, wanted: Any, schema: Any, field: str = "") -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict) and not _is_atomic(schema):
        result = dict(live)
        for name, value in wanted.items():
            result[name] = _merged(live.get(name), value, _property(schema, name), name)
        return result
    if isinstance(live, list) and isinstance(wanted, list):
        if field in list_keys.SETS:
            return [*live, *(value for value in wanted if value not in live)]
        if keys := _keys(field, [*live, *wanted], schema):
            return _merged_items(live, wanted, keys, _items(schema))
    return wanted


def _merged_items(
    live: list[Tree], wanted: list[Tree], keys: list_keys.Keys, schema: Any
) -> list[Tree]:
    merged = {_item_key(item, keys): item for item in live}
    for item in wanted:
        key = _item_key(item, keys)
        merged[key] = _merged(merged.get(key), item, schema)
    return list(merged.values())


def _conflicts(
    others: Mapping[Manager, Fields], wanted_fields: Fields, live: Tree, wanted: Tree, schema: Any
) -> Iterator[tuple[Manager, list[Path]]]:
    for manager, fields in others.items():
        contested = [
            path
            for path in sorted(fields & wanted_fields)
            if path[-1] != _SELF and _value(live, path) != _value(wanted, path)
        ]
        if contested:
            yield manager, contested


def _conflict(contested: Mapping[Manager, list[Path]]) -> status_answers.Failed:
    """409, with a cause for every field, in upstream's words."""
    causes = []
    lines = []
    for manager, paths in contested.items():
        using = f" using {manager.api_version}" if manager.operation == UPDATE else ""
        lines.append(f'conflict with "{manager.name}"{using}: ' + ", ".join(map(shown, paths)))
        for path in paths:
            message = f'conflict with "{manager.name}"{using}'
            causes.append(
                {"reason": "FieldManagerConflict", "message": message, "field": shown(path)}
            )
    count = len(causes)
    plural = "conflict" if count == 1 else "conflicts"
    message = f"Apply failed with {count} {plural}: " + "; ".join(lines)
    return status_answers.Failed(message, status=409, reason="Conflict", causes=causes)


def shown(path: Path) -> str:
    """A path as messages show it: .spec.containers[name="a"].image"""
    parts = []
    for part in path:
        mark, text = part[:2], part[2:]
        if mark == "f:":
            parts.append(f".{text}")
        elif mark == "k:":
            identity = msgspec.json.decode(text)
            pairs = [f"{key}={_json(value)}" for key, value in identity.items()]
            parts.append(f"[{','.join(pairs)}]")
        elif mark == "v:":
            parts.append(f"[={text}]")
    return "".join(parts)
