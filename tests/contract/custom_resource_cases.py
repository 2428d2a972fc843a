"""A custom kind with one field for each rule of a structural schema, and specs that keep or break the rules."""

from __future__ import annotations

from typing import Any, NamedTuple

Tree = dict[str, Any]

GROUP = "schemas.example.com"
INTEGER = {"type": "integer"}
TEXT = {"type": "string"}
ENTRY = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "size": {"type": "integer", "default": 1, "minimum": 1}},
}

SPEC: Tree = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "above": {"type": "number", "minimum": 1, "exclusiveMinimum": True},
        "even": {"type": "integer", "multipleOf": 2},
        "flag": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "when": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "entries": {"type": "array", "maxItems": 2, "items": ENTRY},
        "some": {"type": "array", "minItems": 1, "items": TEXT},
        "unique": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "keyed": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": ENTRY,
        },
        "labels": {"type": "object", "additionalProperties": TEXT, "maxProperties": 2},
        "closed": {"type": "object"},
        "open": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": INTEGER},
        },
        "nested": {
            "type": "object",
            "required": ["must"],
            "properties": {"must": TEXT, "depth": {"type": "integer", "default": 7}},
        },
        "either": {
            "type": "object",
            "properties": {"a": INTEGER, "b": INTEGER},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "any": {
            "type": "object",
            "properties": {"a": INTEGER, "b": INTEGER},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "never": {"type": "string", "not": {"enum": ["bad"]}},
        "all": {"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^[a-z]"}]},
        "pair": {"type": "object", "minProperties": 1, "additionalProperties": INTEGER},
        "email": {"type": "string", "format": "email"},
        "size": {"type": "string", "format": "quantity"},
        "span": {"type": "string", "format": "duration"},
        "day": {"type": "string", "format": "date"},
        "id": {"type": "string", "format": "uuid"},
        "bytes": {"type": "string", "format": "byte"},
        "narrow": {"type": "integer", "format": "int32"},
        "address": {"type": "string", "format": "ipv4"},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": {"type": "object", "properties": {"n": INTEGER}}},
        },
    },
}


class Case(NamedTuple):
    """A spec to create. What Kubernetes 1.37 made of it is in `custom_resource_answers.json`."""

    name: str
    spec: Any


CASES = (
    Case("empty", {}),
    Case("plain", {"count": 3, "flag": True, "name": "abc", "port": "http"}),
    Case("number-port", {"port": 80}),
    Case("boolean-port", {"port": True}),
    Case("text-for-integer", {"count": "3"}),
    Case("fraction-for-integer", {"count": 1.5}),
    Case("whole-fraction", {"above": 2.0}),
    Case("number-for-text", {"name": 5}),
    Case("number-for-flag", {"flag": 1}),
    Case("list-for-object", {"nested": []}),
    Case("object-for-list", {"some": {}}),
    Case("spec-is-text", "x"),
    Case("too-small", {"count": 0}),
    Case("too-large", {"count": 6}),
    Case("not-above", {"above": 1}),
    Case("odd", {"even": 3}),
    Case("unknown-mode", {"mode": "lazy"}),
    Case("bad-pattern", {"name": "AB"}),
    Case("too-short", {"name": "a"}),
    Case("too-long", {"name": "abcde"}),
    Case("no-time", {"when": "yesterday"}),
    Case("time", {"when": "2026-01-02T03:04:05Z"}),
    Case("null", {"name": None}),
    Case("null-with-default", {"mode": None}),
    Case("allowed-null", {"maybe": None}),
    Case("unnamed-entry", {"entries": [{"size": 2}]}),
    Case("small-entry", {"entries": [{"name": "a", "size": 0}]}),
    Case("entries-get-defaults", {"entries": [{"name": "a"}, {"name": "b", "size": 3}]}),
    Case("too-many-entries", {"entries": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
    Case("none-of-some", {"some": []}),
    Case("repeated", {"unique": ["a", "b", "a"]}),
    Case("repeated-key", {"keyed": [{"name": "a"}, {"name": "a", "size": 2}]}),
    Case("labels", {"labels": {"a": "b"}}),
    Case("number-label", {"labels": {"a": 1}}),
    Case("too-many-labels", {"labels": {"a": "1", "b": "2", "c": "3"}}),
    Case("pruned", {"stranger": 1, "entries": [{"name": "a", "color": "red"}]}),
    Case("pruned-empty", {"closed": {"a": 1}}),
    Case("kept", {"open": {"a": 1, "known": 2}}),
    Case("kept-but-wrong", {"open": {"a": 1, "known": "x"}}),
    Case("lacks-nested", {"nested": {}}),
    Case("nested-default", {"nested": {"must": "x"}}),
    Case("neither", {"either": {}}),
    Case("both", {"either": {"a": 1, "b": 2}}),
    Case("one", {"either": {"a": 1}}),
    Case("not-any", {"any": {}}),
    Case("never", {"never": "bad"}),
    Case("all-of-none", {"all": "A"}),
    Case("part-of-all", {"all": "Ab"}),
    Case("long-duration", {"span": "1h30m"}),
    Case("empty-pair", {"pair": {}}),
    Case("no-email", {"email": "x"}),
    Case("no-quantity", {"size": "x"}),
    Case("no-duration", {"span": "x"}),
    Case("duration", {"span": "5m30s"}),
    Case("no-day", {"day": "2026-13-40"}),
    Case("no-id", {"id": "x"}),
    Case("no-bytes", {"bytes": "???"}),
    Case("too-wide", {"narrow": 2**40}),
    Case("no-address", {"address": "300.1.1.1"}),
    Case("template-without-type", {"template": {"spec": {"n": 1}}}),
    Case(
        "template",
        {
            "template": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a"},
                "spec": {"n": 1, "m": 2},
            }
        },
    ),
    Case("many-faults", {"count": 0, "mode": "x", "nested": {}}),
)


def definition(plural: str) -> Tree:
    """The kind; its plural is the test's own, because definitions are cluster-wide."""
    kind = plural.capitalize()
    state = {"type": "object", "properties": {"ready": INTEGER}}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": state}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": plural.removesuffix("s")},
            "versions": [version],
        },
    }
