"""The paths that are no endpoints, because they are about users, streams and writes: their structs and description."""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from dovetail.web import writing
from dovetail.web.wire import openapi

ROOT: Final = openapi.ROOT
# One event of the stream; `data` is JSON.
EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["hello", "change", "stale", "fresh"]},
        "data": {"type": "string"},
    },
}


class Session(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who asks, and about which cluster."""

    user: str
    cluster: str
    kind: str
    is_live: bool
    can_write: bool
    as_of: datetime.datetime | None
    version: int
    program: str
    stale_since: datetime.datetime | None = None


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The token of a link, or a bearer token of the cluster."""

    token: str


class SignedIn(msgspec.Struct, frozen=True):
    """Who signed in."""

    user: str


def operations() -> list[openapi.Operation]:
    """Their description."""
    confirmed = (openapi.CONFIRMATION,)
    stream = {"text/event-stream": {"schema": EVENT}}
    patch_list = {"type": "array", "items": {"type": "object"}}
    return [
        openapi.Operation(
            f"{ROOT}/session",
            "get",
            openapi.operation(
                "getSession", "who asks, and about which cluster", content=_json(Session)
            ),
        ),
        openapi.Operation(
            f"{ROOT}/session",
            "post",
            openapi.operation(
                "signIn",
                "exchange a token for a session cookie",
                content=_json(SignedIn),
                body=_schema(SignIn),
                parameters_=confirmed,
            ),
        ),
        openapi.Operation(
            f"{ROOT}/stream",
            "get",
            openapi.operation(
                "getStream", "server-sent events: which resources changed", content=stream
            ),
        ),
        openapi.Operation(
            f"{ROOT}/fixes",
            "post",
            openapi.operation(
                "carryOutFix",
                "carry out the patch of a fix, after a dry run of all of it",
                content=_json(writing.Done),
                body=patch_list,
                parameters_=confirmed,
            ),
        ),
        openapi.Operation(
            f"{ROOT}/work",
            "post",
            openapi.operation(
                "submitWork",
                "create the objects of a manifest, after a dry run of all of them",
                content=_json(writing.Done),
                body=_schema(writing.Work),
                status=201,
                parameters_=confirmed,
            ),
        ),
    ]


def _json(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": _schema(kind)}}


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a struct without structs in it."""
    _, components = msgspec.json.schema_components((kind,))
    return dict(components[kind.__name__])
