"""Schemas of resources, for `dovetail explain`: found by a path of fields, and written out as kubectl writes them.

Given an OpenAPI v3 document with references between its schemas. Raises InputError for a field that is not there, with
those that are. Never reads a cluster, never prints.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.tables import missing_names

WIDTH: Final = 80
KIND_EXTENSION: Final = "x-kubernetes-group-version-kind"
_REFERENCE: Final = "#/components/schemas/"
_MOST_DEPTH: Final = 12  # schemas may contain themselves: JSONSchemaProps

Tree = dict[str, Any]


class Identity(NamedTuple):
    """A kind: group, version, kind."""

    group: str
    version: str
    kind: str


class Schemas:
    """The schemas of one document."""

    def __init__(self, document: Tree) -> None:
        self._by_name: Tree = (document.get("components") or {}).get("schemas") or {}

    def of_kind(self, identity: Identity) -> Tree | None:
        """The schema of a kind; None if the document has none."""
        for schema in self._by_name.values():
            for each in schema.get(KIND_EXTENSION) or ():
                if Identity(each["group"], each["version"], each["kind"]) == identity:
                    return self.resolved(schema)
        return None

    def resolved(self, schema: Tree) -> Tree:
        """The schema behind a reference; what stands beside the reference comes first."""
        seen = 0
        while seen < _MOST_DEPTH:
            seen += 1
            references = [schema, *(schema.get("allOf") or ())]
            target = next((each["$ref"] for each in references if "$ref" in each), None)
            if target is None:
                return schema
            beside = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            schema = self._by_name.get(str(target).removeprefix(_REFERENCE), {}) | beside
        return schema

    def below(self, schema: Tree) -> Tree:
        """The object whose fields a path goes on with: the items of lists, the values of maps."""
        current = self.resolved(schema)
        for _ in range(_MOST_DEPTH):
            if "items" in current:
                current = self.resolved(current["items"])
            elif isinstance(current.get("additionalProperties"), dict):
                current = self.resolved(current["additionalProperties"])
            else:
                break
        return current

    def field(self, schema: Tree, path: Sequence[str], *, start: str) -> Tree:
        """The schema at the end of a path."""
        current, place = schema, start
        for name in path:
            properties = self.below(current).get("properties") or {}
            if name not in properties:
                known = ", ".join(sorted(properties)) or "none"
                hint = missing_names.near_words(name, properties) or f"; its fields: {known}"
                raise errors.InputError(f'{place} has no field "{name}"{hint}')
            current, place = properties[name], f"{place}.{name}"
        return self.resolved(current)

    def type_of(self, schema: Tree) -> str:
        """The type as kubectl writes it: <string>, <[]Object>, <map[string]string>."""
        resolved = self.resolved(schema)
        if "items" in resolved:
            return f"[]{self.type_of(resolved['items'])}"
        extra = resolved.get("additionalProperties")
        if isinstance(extra, dict):
            return f"map[string]{self.type_of(extra)}"
        if resolved.get("x-kubernetes-int-or-string") or resolved.get("format") == "int-or-string":
            return "IntOrString"
        written = str(resolved.get("type") or "")
        return "Object" if written in ("object", "") else written


def lines_of(
    schemas: Schemas,
    identity: Identity,
    schema: Tree,
    path: Sequence[str],
    *,
    is_recursive: bool,
) -> list[str]:
    """The page about a kind or one of its fields."""
    lines = [f"GROUP:      {identity.group}"] if identity.group else []
    lines += [f"KIND:       {identity.kind}", f"VERSION:    {identity.version}", ""]
    if path:
        lines += [f"FIELD: {path[-1]} <{schemas.type_of(schema)}>", ""]
    lines += ["DESCRIPTION:", *_described(_description(schemas, schema))]
    if schema.get("enum"):
        lines += [f"    one of: {', '.join(map(str, schema['enum']))}"]
    inner = schemas.below(schema)
    if inner.get("properties"):
        lines += ["", "FIELDS:", *_fields(schemas, inner, is_recursive=is_recursive, depth=0)]
    return lines


def _fields(schemas: Schemas, schema: Tree, *, is_recursive: bool, depth: int) -> Iterator[str]:
    required = schema.get("required") or ()
    indent = "  " * (depth + 1)
    for name, field in sorted((schema.get("properties") or {}).items()):
        mark = " -required-" if name in required else ""
        yield f"{indent}{name}  <{schemas.type_of(field)}>{mark}"
        inner = schemas.below(field)
        if is_recursive:
            if depth < _MOST_DEPTH:
                yield from _fields(schemas, inner, is_recursive=True, depth=depth + 1)
            continue
        description = _description(schemas, field)
        yield from _described(description) if description else ()
        yield ""


def _description(schemas: Schemas, schema: Tree) -> str:
    own = str(schemas.resolved(schema).get("description") or "")
    return own or str(schemas.below(schema).get("description") or "")


def _described(description: str) -> list[str]:
    paragraphs = (description or "<no description>").split("\n\n")
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(" ".join(paragraph.split()), WIDTH - 4)
    return [f"    {line}" for line in lines]
