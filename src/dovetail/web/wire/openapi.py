"""Describes the HTTP interface as an OpenAPI 3.1 document, made from the structs of its endpoints.

Given the endpoints. What the document says about parameters and results is what decodes and encodes them. Never
describes pages or files.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

import dovetail
from dovetail.web import endpoints, problems
from dovetail.web.wire import parameters

ROOT: Final = endpoints.ROOT
_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")
_STATUSES: Final = {
    400: "a parameter cannot be used",
    401: "sign in first",
    403: "not allowed",
    404: "there is no such thing, or none that the user may see",
    413: "the body is too long",
    421: "the Host header names another server",
    422: "refused by the cluster",
    429: "too many requests",
    503: "not now; Retry-After says when",
}

Tree = dict[str, Any]


class Operation(NamedTuple):
    """What one method of one path does."""

    path: str
    method: str
    tree: Tree


def document(given: Sequence[endpoints.Endpoint], more: Iterable[Operation]) -> Tree:
    """The whole description. `more` are the paths that are no endpoints."""
    schemas = _Schemas([problems.Problem, *_types(given)])
    paths: Tree = {}
    for endpoint in given:
        operation = _operation(endpoint, schemas)
        paths.setdefault(endpoint.full_path, {})[endpoint.method.lower()] = operation
    for other in more:
        paths.setdefault(other.path, {})[other.method] = other.tree
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dovetail",
            "version": dovetail.__version__,
            "description": "What runs on the GPUs of a cluster, what waits, and why.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "dovetail"},
            },
        },
        "security": [{"bearer": []}, {"session": []}],
    }


def operation(
    name: str,
    summary: str,
    *,
    content: Tree,
    body: Tree | None = None,
    status: int = 200,
    parameters_: Sequence[Tree] = (),
) -> Tree:
    """One operation with the problems that every one of them may have."""
    described: Tree = {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters_),
        "responses": {str(status): {"description": "done", "content": content}} | _refusals(),
    }
    if body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return described


CONFIRMATION: Final[Tree] = {
    "name": "Dovetail-Request",
    "in": "header",
    "required": True,
    "schema": {"const": "1"},
    "description": "no other site can send it",
}


class _Schemas:
    """The schemas of all types, made together: of two structs with the same name each gets its own."""

    def __init__(self, types: Sequence[Any]) -> None:
        self._types = types
        self._schemas, self.components = msgspec.json.schema_components(
            types, schema_hook=_schema_of_other, ref_template=_REFERENCE
        )

    def of(self, type_: Any) -> Tree:
        """The schema of a type, by reference where it is a struct."""
        return self._schemas[self._types.index(type_)]


def _types(given: Sequence[endpoints.Endpoint]) -> Iterator[Any]:
    """Everything that `document` needs a schema of."""
    yield from _hints(parameters.PageParams).values()
    for endpoint in given:
        yield endpoint.result
        if endpoint.method == "GET":
            yield from _hints(endpoint.params).values()
        else:
            yield endpoint.params


def _hints(params: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(params, include_extras=True)


def _schema_of_other(kind: type) -> Tree:
    """Quantities and the like are sent as text."""
    return {"type": "string"}


def _operation(endpoint: endpoints.Endpoint, schemas: _Schemas) -> Tree:
    content: Tree = {"application/json": {"schema": schemas.of(endpoint.result)}}
    in_path = _PATH_PARAMETER.findall(endpoint.path)
    described: list[Tree] = []
    body: Tree | None = None
    if endpoint.method == "GET":
        described = _parameters(endpoint.params, in_path, schemas)
    else:
        body = schemas.of(endpoint.params)
        described = [CONFIRMATION]
    if endpoint.is_list:
        described += _parameters(parameters.PageParams, (), schemas)
        content["text/csv"] = {"schema": {"type": "string"}}
    name = f"{endpoint.method.lower()}{_PATH_PARAMETER.sub('', endpoint.path).title()}"
    return operation(
        re.sub(r"\W", "", name),
        endpoint.summary,
        content=content,
        body=body,
        parameters_=described,
    )


def _parameters(
    params: type[msgspec.Struct], in_path: Sequence[str], schemas: _Schemas
) -> list[Tree]:
    hints = _hints(params)
    described: list[Tree] = []
    for field in msgspec.structs.fields(params):
        is_in_path = field.encode_name in in_path
        schema = dict(schemas.of(hints[field.name]))
        if not field.required and isinstance(field.default, str | int | float | bool):
            schema["default"] = field.default
        described.append(
            {
                "name": field.encode_name,
                "in": "path" if is_in_path else "query",
                "required": is_in_path or field.required,
                "schema": schema,
            }
        )
    return described


def _refusals() -> Tree:
    schema = {"$ref": _REFERENCE.format(name="Problem")}
    content = {problems.MEDIA_TYPE: {"schema": schema}}
    refusals: Tree = {
        str(status): {"description": text, "content": content} for status, text in _STATUSES.items()
    }
    refusals["304"] = {"description": "as it was: see If-None-Match"}
    return refusals
