"""What a structural schema refuses in a custom resource: types, required fields, enums, patterns, limits, lists.

Given the OpenAPI v3 schema of one version of a CustomResourceDefinition, a tree and the tree before the change; returns
problems in upstream's words. Values that a change leaves as they were pass, as upstream ratchets. Rules in CEL
(x-kubernetes-validations) are not evaluated. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dovetail import cache
from dovetail.kubetypes import field_errors
from dovetail.kubetypes.field_errors import FieldProblem
from dovetail.sim.server.schemas import value_formats

Tree = dict[str, Any]

_WIDTHS: Final = {"int32": 2**31, "int64": 2**63}
_ABSENT: Final = object()  # there was no such value before
_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": lambda value: _is_number(value),
}


def problems(schema: Tree, tree: Tree, old: Tree | None = None) -> list[FieldProblem]:
    """Everything that is wrong with an object, or with what changed in it."""
    return [*_problems(schema, tree, "", _ABSENT if old is None else old)]


def _problems(schema: Tree, value: Any, path: str, old: Any) -> Iterator[FieldProblem]:
    if old is not _ABSENT and value == old:
        return
    if value is None:
        if not schema.get("nullable") and "type" in schema:
            yield _wrong_type(path, schema["type"], None)
        return
    if not _has_type(schema, value):
        yield _wrong_type(path, _type_name(schema), value)
        if schema.get("type") == "integer" and _is_number(value):
            yield _unformatted(path, "integer (default format)")
        return

    yield from _of_any(schema, value, path)
    match value:
        case bool():
            pass
        case str():
            yield from _of_text(schema, value, path)
        case int() | float():
            yield from _of_number(schema, value, path)
        case list():
            yield from _of_list(schema, value, path, old)
        case dict():
            yield from _of_object(schema, value, path, old)
    yield from _of_junctors(schema, value, path)


def _of_any(schema: Tree, value: Any, path: str) -> Iterator[FieldProblem]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        supported = ", ".join(_json(each) for each in allowed)
        message = f"Unsupported value: {_json(value)}: supported values: {supported}"
        yield FieldProblem(field_errors.NOT_SUPPORTED, path, message)


def _of_text(schema: Tree, value: str, path: str) -> Iterator[FieldProblem]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        message = f"Too long: may not be more than {longest} bytes"
        yield FieldProblem(field_errors.TOO_LONG, path, message)
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    pattern = schema.get("pattern")
    if pattern is not None and not _matches(pattern, value):
        yield _invalid(path, value, f"should match '{pattern}'")
    form = str(schema.get("format") or "")
    if not value_formats.is_of_format(form, value):
        yield _invalid(path, value, f"must be of type {form}: {_json(value)}")


def _of_number(schema: Tree, value: float, path: str) -> Iterator[FieldProblem]:
    most, least = schema.get("maximum"), schema.get("minimum")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield _invalid(path, value, f"should be less than {_json(most)}")
        elif value > most:
            yield _invalid(path, value, f"should be less than or equal to {_json(most)}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield _invalid(path, value, f"should be greater than {_json(least)}")
        elif value < least:
            yield _invalid(path, value, f"should be greater than or equal to {_json(least)}")
    form = str(schema.get("format") or "")
    if form in _WIDTHS and not -_WIDTHS[form] <= value < _WIDTHS[form]:
        yield _unformatted(path, f"integer with format {form}")
    factor = schema.get("multipleOf")
    if factor and value % factor:
        yield _invalid(path, value, f"should be a multiple of {_json(factor)}")


def _of_list(schema: Tree, value: list[Any], path: str, old: Any) -> Iterator[FieldProblem]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield FieldProblem(field_errors.TOO_MANY, path, message)
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} items")
    yield from _repeated(schema, value, path)
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    before = _items_by_key(schema, old)
    for index, item in enumerate(value):
        key = _item_key(schema, item)
        old_item = _ABSENT if key is None else before.get(key, _ABSENT)
        yield from _problems(items, item, f"{path}[{index}]", old_item)


def _of_object(schema: Tree, value: Tree, path: str, old: Any) -> Iterator[FieldProblem]:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield FieldProblem(field_errors.TOO_MANY, path, message)
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} properties")
    required = [*(schema.get("required") or ())]
    if schema.get("x-kubernetes-embedded-resource"):
        required += [name for name in ("apiVersion", "kind") if name not in required]
    for name in required:
        if name not in value:
            yield FieldProblem(field_errors.REQUIRED, _below(path, name), "Required value")

    properties: Tree = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    before: Tree = old if isinstance(old, dict) else {}
    for name, item in value.items():
        below = properties.get(name, additional)
        if isinstance(below, dict):
            yield from _problems(below, item, _below(path, name), before.get(name, _ABSENT))


def _of_junctors(schema: Tree, value: Any, path: str) -> Iterator[FieldProblem]:
    """allOf, anyOf, oneOf and not. Structural schemas have them beside the fields, never instead of them."""
    choices = schema.get("allOf") or ()
    failed = [each for each in choices if not _passes(each, value, path)]
    for each in failed:
        yield from _problems(each, value, path, _ABSENT)
    if failed:
        found = ". None validated" if len(failed) == len(choices) else ""
        yield _unfit(path, f"must validate all the schemas (allOf){found}")

    choices = schema.get("anyOf") or ()
    if choices and not any(_passes(each, value, path) for each in choices):
        yield _unfit(path, "must validate at least one schema (anyOf)")
        yield from _problems(choices[0], value, path, _ABSENT)  # to say what would help

    choices = schema.get("oneOf") or ()
    count = sum(_passes(each, value, path) for each in choices)
    if choices and count != 1:
        found = f"{count} valid alternatives" if count else "none valid"
        yield _unfit(path, f"must validate one and only one schema (oneOf). Found {found}")
    if choices and not count:
        yield from _problems(choices[0], value, path, _ABSENT)
    if "not" in schema and _passes(schema["not"], value, path):
        yield _unfit(path, "must not validate the schema (not)")


def _passes(schema: Tree, value: Any, path: str) -> bool:
    return not any(True for _ in _problems(schema, value, path, _ABSENT))


# Lists whose items have an identity


def _repeated(schema: Tree, value: list[Any], path: str) -> Iterator[FieldProblem]:
    if schema.get("x-kubernetes-list-type") not in ("set", "map"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        key = _item_key(schema, item)
        if key in seen:
            message = f"Duplicate value: {_json(_key_fields(schema, item))}"
            yield FieldProblem(field_errors.DUPLICATE, f"{path}[{index}]", message)
        seen.append(key)


def _items_by_key(schema: Tree, value: Any) -> Tree:
    if not isinstance(value, list):
        return {}
    keys = [_item_key(schema, item) for item in value]
    return {key: item for key, item in zip(keys, value, strict=True) if key is not None}


def _item_key(schema: Tree, item: Any) -> str | None:
    """What identifies an item of a set or of a map; None in other lists."""
    return None if (fields := _key_fields(schema, item)) is None else _json(fields)


def _key_fields(schema: Tree, item: Any) -> Any:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return item
        case "map" if isinstance(item, dict):
            names = schema.get("x-kubernetes-list-map-keys") or ()
            return {name: item.get(name) for name in names}
    return None


# Single values


def _has_type(schema: Tree, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, str) or _TYPES["integer"](value)
    check = _TYPES.get(str(schema.get("type")))
    return check is None or check(value)


def _type_name(schema: Tree) -> str:
    is_either = schema.get("x-kubernetes-int-or-string")
    return "integer,string" if is_either else str(schema.get("type"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong_type(path: str, expected: str, value: Any) -> FieldProblem:
    found = _type_of(value)
    message = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
    return FieldProblem("FieldValueTypeInvalid", path, message)


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name, check in _TYPES.items() if check(value))


def _invalid(path: str, value: Any, complaint: str) -> FieldProblem:
    message = f"Invalid value: {_json(value)}: {path} in body {complaint}"
    return FieldProblem(field_errors.INVALID, path, message)


def _unfit(path: str, complaint: str) -> FieldProblem:
    """A value that is wrong as a whole. Upstream names no field then, and says it in the message."""
    return FieldProblem(field_errors.INVALID, "<nil>", f'Invalid value: "": "{path}" {complaint}')


def _unformatted(path: str, expected: str) -> FieldProblem:
    message = f'Invalid value: "": Checked value must be of type {expected} in {path}'
    return FieldProblem(field_errors.INVALID, "<nil>", message)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@cache.remembered()
def _pattern(pattern: str) -> Any:
    """The compiled pattern; None if Go's syntax has it and ours does not."""
    import re2  # costs a tenth of a second, and few definitions have patterns

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _matches(pattern: str, value: str) -> bool:
    compiled = _pattern(pattern)
    return compiled is None or compiled.search(value) is not None
