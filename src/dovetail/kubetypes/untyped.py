"""Compares plain JSON trees with the structs they should fit: misfits, the meaning of null, changes.

Given a struct type and a tree as json or yaml yields it. Reports every misfit with its field path, reads null as
Kubernetes does (absent), and writes a changed struct over the tree it came from, so that unknown fields survive.
Never raises for bad data, never changes its input.
"""

import difflib
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from dovetail import cache
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.storage import volumes
from dovetail.quantity import quantity

MAX_PROBLEMS: Final = 50  # per object; a wrong indentation can make thousands

_UNMODELLED: Final = (
    meta.UNMODELLED
    | namespaces.UNMODELLED
    | nodes.UNMODELLED
    | pods.UNMODELLED
    | volumes.UNMODELLED
)
# Fields that identify a list item, best first; items are matched by the first that their type has.
_ITEM_KEYS: Final = (
    ("driver", "pool", "device", "shareID"),
    ("name",),
    ("uid",),
    ("type",),
    ("counterSet",),
    ("key",),
)


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """One place of a tree that does not fit, and why."""

    path: str
    message: str
    is_unknown_field: bool = False


def misfits(kind: type[msgspec.Struct], tree: object) -> list[Misfit]:
    """What the struct type cannot hold of the tree, unknown fields included, in document order; the first 50."""
    return [*itertools.islice(_misfits_of_struct(kind, tree, path=""), MAX_PROBLEMS)]


def without_nulls(kind: type[msgspec.Struct], tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with null fields left out and null items at their zero value; free-form JSON stays."""
    fields = _fields(kind)
    result = {}
    for name, value in tree.items():
        if name not in fields:
            result[name] = value
        elif value is not None:
            result[name] = _filled(fields[name], value)
    return result


def overlaid(
    kind: type[msgspec.Struct], changed: dict[str, Any], original: dict[str, Any]
) -> dict[str, Any]:
    """The original tree with the new values of the modelled fields. What the struct does not model stays."""
    result = dict(original)
    for name, field_type in _fields(kind).items():
        if name in changed:
            result[name] = _overlaid_value(field_type, changed[name], original.get(name))
        elif name in original:
            remainder = _unknown_remainder(field_type, original[name])
            if original[name] and not remainder:
                del result[name]
            else:
                result[name] = remainder
    return result


def join(path: str, name: str) -> str:
    """The path of a field below another."""
    return f"{path}.{name}" if path else name


def shown(value: object) -> str:
    """A value as messages show it: short, and in the words of YAML."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return f'"{value[:40]}..."' if len(value) > 40 else f'"{value}"'
        case _:
            return str(value)[:40]


@cache.remembered()
def _fields(kind: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def _misfits_of_struct(kind: type[msgspec.Struct], tree: object, *, path: str) -> Iterator[Misfit]:
    if not isinstance(tree, dict):
        yield Misfit(path, f"expected a mapping, got {shown(tree)}")
        return
    fields = _fields(kind)
    unmodelled = _UNMODELLED.get(kind, frozenset())
    for name, value in tree.items():
        if name in fields:
            yield from _misfits_of_value(fields[name], value, path=join(path, name))
        elif name not in unmodelled:
            message = _unknown(str(name), fields.keys() | unmodelled)
            yield Misfit(join(path, str(name)), message, is_unknown_field=True)


def _misfits_of_value(expected: inspect.Type, value: object, *, path: str) -> Iterator[Misfit]:
    if value is None:  # absent, wherever it stands
        return
    match _essence(expected):
        case inspect.StructType(cls=cls):
            yield from _misfits_of_struct(cls, value, path=path)
        case inspect.VarTupleType(item_type=item_type):
            yield from _misfits_of_list(item_type, value, path=path)
        case inspect.DictType(value_type=value_type):
            yield from _misfits_of_map(value_type, value, path=path)
        case scalar:
            message = _scalar_misfit(scalar, value)
            if message:
                yield Misfit(path, message)


def _misfits_of_list(expected: inspect.Type, value: object, *, path: str) -> Iterator[Misfit]:
    if not isinstance(value, list):
        yield Misfit(path, f"expected a list, got {shown(value)}")
        return
    for index, item in enumerate(value):
        yield from _misfits_of_value(expected, item, path=f"{path}[{index}]")


def _misfits_of_map(expected: inspect.Type, value: object, *, path: str) -> Iterator[Misfit]:
    if not isinstance(value, dict):
        yield Misfit(path, f"expected a mapping, got {shown(value)}")
        return
    for key, item in value.items():
        yield from _misfits_of_value(expected, item, path=f"{path}[{key}]")


def _scalar_misfit(expected: inspect.Type, value: object) -> str | None:
    match expected:
        case inspect.StrType(pattern=pattern):
            return _text_misfit(pattern, value)
        case inspect.BoolType():
            if isinstance(value, bool):
                return None
            return f"expected true or false, got {shown(value)}"
        case inspect.IntType():
            return _number_misfit(expected, value)
        case inspect.CustomType():
            return _quantity_misfit(value)
        case _:
            return None


def _text_misfit(pattern: str | None, value: object) -> str | None:
    if not isinstance(value, str):
        return f"expected text, got {shown(value)}; quote it"
    if pattern is not None and re.search(pattern, value) is None:
        return f"expected a time such as 2026-01-31T08:00:00Z, got {shown(value)}"
    return None


def _number_misfit(expected: inspect.IntType, value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"expected a whole number, got {shown(value)}"
    low, high = expected.ge, expected.le
    is_too_low = low is not None and value < low
    is_too_high = high is not None and value > high
    if is_too_low or is_too_high:
        return f"expected a whole number from {low} to {high}, got {value}"
    return None


def _quantity_misfit(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return f"expected a quantity such as 80Gi or 500m, got {shown(value)}"
    try:
        quantity.from_wire(value)
    except ValueError as error:
        return f"expected a quantity such as 80Gi or 500m: {error}"
    return None


def _unknown(name: str, candidates: set[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if not close:
        close = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    message = f'unknown field "{name}"'
    return f'{message}; did you mean "{close[0]}"?' if close else message


def _essence(expected: inspect.Type) -> inspect.Type:
    """The type behind an optional one."""
    if isinstance(expected, inspect.UnionType):
        return next(option for option in expected.types if not isinstance(option, inspect.NoneType))
    return expected


def _filled(expected: inspect.Type, value: Any) -> Any:
    match _essence(expected):
        case inspect.StructType(cls=cls) if isinstance(value, dict):
            return without_nulls(cls, value)
        case inspect.VarTupleType(item_type=item_type) if isinstance(value, list):
            return [_filled_item(item_type, item) for item in value]
        case inspect.DictType(value_type=item_type) if isinstance(value, dict):
            return {key: _filled_item(item_type, item) for key, item in value.items()}
        case _:
            return value


def _filled_item(expected: inspect.Type, item: Any) -> Any:
    return _filled(expected, _zero(expected) if item is None else item)


def _zero(expected: inspect.Type) -> Any:
    match _essence(expected):
        case inspect.StrType():
            return ""
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 0
        case inspect.CustomType():
            return "0"
        case inspect.VarTupleType():
            return []
        case _:
            return {}


def _overlaid_value(expected: inspect.Type, changed: Any, original: Any) -> Any:
    match _essence(expected):
        case inspect.StructType(cls=cls) if isinstance(original, dict):
            return overlaid(cls, changed, original)
        case inspect.VarTupleType(item_type=item_type) if isinstance(original, list):
            return _overlaid_items(_essence(item_type), changed, original)
        case inspect.DictType(value_type=item_type) if isinstance(original, dict):
            return {
                key: _overlaid_value(item_type, item, original.get(key))
                for key, item in changed.items()
            }
        case _:
            return changed


def _overlaid_items(item_type: inspect.Type, changed: list[Any], original: list[Any]) -> list[Any]:
    if not isinstance(item_type, inspect.StructType):
        return changed
    names = _item_key(item_type.cls)
    if names is None:
        # No field identifies the items. With another length an unknown field could land on the wrong item, which is
        # worse than losing it.
        if len(changed) != len(original):
            return changed
        pairs = zip(changed, original, strict=True)
        return [_overlaid_value(item_type, item, before) for item, before in pairs]

    by_key: dict[tuple[str, ...], list[Any]] = {}
    for before in original:
        if isinstance(before, dict):
            by_key.setdefault(_identity(before, names), []).append(before)
    result = []
    for item in changed:
        matching = by_key.get(_identity(item, names))
        before = matching.pop(0) if matching else None
        result.append(_overlaid_value(item_type, item, before))
    return result


def _item_key(kind: type[msgspec.Struct]) -> tuple[str, ...] | None:
    """The fields that identify items of this type."""
    fields = _fields(kind)
    for names in _ITEM_KEYS:
        if all(name in fields for name in names):
            return names
    return None


def _identity(item: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(item.get(name) or "") for name in names)


def _unknown_remainder(expected: inspect.Type, original: Any) -> Any:
    """What stays of a field whose new value is its default: empty values, and unknown fields of a struct."""
    if not original:
        return original
    if isinstance(expected, inspect.StructType) and isinstance(original, dict):
        return overlaid(expected.cls, {}, original)
    return None


def path_first(error: msgspec.ValidationError) -> str:
    """msgspec's message with the path first: `rules[0].steps[1].after: expected ...`."""
    message, _, place = str(error).partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    message = message.replace("`", "").replace("Expected", "expected", 1).replace("Object", "it", 1)
    return f"{path}: {message}" if path else message
