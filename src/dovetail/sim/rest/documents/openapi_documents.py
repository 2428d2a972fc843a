"""OpenAPI v3: enough for kubectl to send field validation to the server, and for `kubectl explain`.

Schemas of kinds with structs come from the structs, those of custom resources from their definitions; other kinds have
the fields every object has. Strategic merge patches are not announced, so kubectl works them out from its own types.
Never reads an object.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from msgspec import inspect

from dovetail.kubetypes import codec, meta
from dovetail.sim.rest.documents.discovery_documents import DiscoveryDocuments
from dovetail.sim.server.builtin_kinds import Resource
from dovetail.sim.server.served_kinds import ServedKinds

Tree = dict[str, Any]

_EXTENSION: Final = "x-kubernetes-group-version-kind"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation")


class OpenApiDocuments:
    """The documents of one server."""

    def __init__(self, kinds: ServedKinds, discovery: DiscoveryDocuments) -> None:
        self._kinds = kinds
        self._discovery = discovery
        self._made: dict[str, bytes] = {}
        self._made_at = -1

    def index(self) -> bytes:
        """/openapi/v3: where the document of each group and version is."""
        paths = {}
        for api_version in self._discovery.api_versions():
            path = _path(api_version)
            digest = hashlib.sha256(self._document(api_version)).hexdigest()[:32].upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return msgspec.json.encode({"paths": paths})

    def document(self, path: str) -> bytes | None:
        """/openapi/v3/PATH."""
        api_version = path.removeprefix("apis/").removeprefix("api/")
        if api_version not in self._discovery.api_versions() or _path(api_version) != path:
            return None
        return self._document(api_version)

    def _document(self, api_version: str) -> bytes:
        if self._made_at != self._kinds.changes:
            self._made_at = self._kinds.changes
            self._made.clear()
        if api_version not in self._made:
            self._made[api_version] = msgspec.json.encode(self._tree(api_version))
        return self._made[api_version]

    def _tree(self, api_version: str) -> Tree:
        paths: Tree = {}
        schemas: Tree = {_META: _struct_schema(meta.ObjectMeta)}
        for resource in self._kinds.all():
            if api_version in resource.api_versions:
                identity = _identity(resource, api_version)
                paths[_object_path(resource, api_version)] = _operations(identity)
                name = f"{_reversed(api_version)}.{resource.kind.name}"
                schemas[name] = _schema(resource, api_version) | {_EXTENSION: [identity]}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.37.1"},
            "paths": paths,
            "components": {"schemas": schemas},
        }


def _path(api_version: str) -> str:
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def _object_path(resource: Resource, api_version: str) -> str:
    place = "/namespaces/{namespace}" if resource.kind.is_namespaced else ""
    return f"/{_path(api_version)}{place}/{resource.kind.plural}/{{name}}"


def _identity(resource: Resource, api_version: str) -> Tree:
    group, _, version = api_version.rpartition("/")
    return {"group": group, "version": version, "kind": resource.kind.name}


def _operations(identity: Tree) -> Tree:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in _QUERY
    ]
    operation = {
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        _EXTENSION: identity,
    }
    get = operation | {"x-kubernetes-action": "get"}
    return {"get": get, "patch": operation | {"parameters": parameters}}


def _reversed(api_version: str) -> str:
    """The prefix of schema names: io.k8s.api.apps.v1, dev.dovetail.v1alpha1."""
    group, _, version = api_version.rpartition("/")
    if "." not in group or group.endswith(".k8s.io"):
        return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}"
    return ".".join([*reversed(group.split(".")), version])


def _schema(resource: Resource, api_version: str) -> Tree:
    custom = dict(resource.schemas).get(api_version)
    if custom:
        schema: Tree = dict(custom)
        schema["properties"] = _object_fields() | (schema.get("properties") or {})
        return schema
    struct = resource.kind.struct
    if struct is not codec.Generic:
        return _struct_schema(struct)
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "description": f"{resource.kind.name}. This server stores its fields as they are sent.",
        "properties": _object_fields() | {"spec": spec, "status": spec},
    }


def _object_fields() -> Tree:
    return {
        "apiVersion": {"type": "string", "description": "The group and version of the object."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {
            "description": "The name, labels and life cycle of the object.",
            "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
        },
    }


def _struct_schema(struct: Any) -> Tree:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    description = (struct.__doc__ or "").strip()
    properties = {}
    for field in info.fields:
        if field.name == "metadata":
            properties["metadata"] = _object_fields()["metadata"]
        else:
            properties[field.encode_name] = _type_schema(field.type)
    return {"type": "object", "description": description, "properties": properties}


def _type_schema(type_: inspect.Type) -> Tree:
    match type_:
        case inspect.StructType(cls=cls):
            return _struct_schema(cls)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return {"type": "array", "items": _type_schema(item)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _type_schema(value)}
        case inspect.UnionType(types=types):
            return _type_schema(next(t for t in types if not isinstance(t, inspect.NoneType)))
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer"}
        case inspect.FloatType():
            return {"type": "number"}
        case inspect.RawType() | inspect.AnyType():
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case _:
            return {"type": "string"}
