"""Single requests about whole objects, for commands: read, create, apply, delete, and the server's own tables.

Given a transport, a target and trees. A refusal is a `Refusal` with the fields at fault, because commands show it
beside the file and line; everything else that goes wrong raises as `ports.failures` says. Never retries a write.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import registry
from dovetail.ports import api, failures

MANAGER: Final = "dovetail"  # whose fields the server takes applied ones for
SECONDS: Final = 30.0

_CONTESTED: Final = "FieldManagerConflict"  # metav1.CauseTypeFieldManagerConflict
_OWNER: Final = re.compile(r'conflict with "([^"]*)"')
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
_MERGE: Final = "application/merge-patch+json"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
REFUSED_STATUSES: Final = frozenset({400, 403, 404, 405, 409, 413, 415, 422})

Tree = dict[str, Any]


class Fault(NamedTuple):
    """One field of an object that the server refuses, or the whole object if it has no path."""

    field: str
    message: str
    owner: str = ""  # the field manager whose field it is, if that is why


class Refusal(NamedTuple):
    """What the server says against an object."""

    status: int
    reason: str
    faults: tuple[Fault, ...]

    @property
    def is_contested(self) -> bool:
        """Whether other field managers own the fields, and nothing else is wrong."""
        return all(fault.owner for fault in self.faults)

    @property
    def is_with_ourselves(self) -> bool:
        """Whether all of these fields were written by a create or an update of ours."""
        return all(fault.owner == MANAGER for fault in self.faults)


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""
    reason: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class Table(msgspec.Struct, frozen=True, rename="camel"):
    """The server's own table of objects. Tables of a watch name their columns in the first event only."""

    metadata: dict[str, Any] = {}
    column_definitions: tuple[dict[str, Any], ...] | None = ()
    rows: tuple[dict[str, Any], ...] = ()

    @property
    def version(self) -> str:
        """The version of the list, from which a watch goes on."""
        return str(self.metadata.get("resourceVersion") or "")


class TableEvent(NamedTuple):
    """One change of a watched table: ADDED, MODIFIED, DELETED or BOOKMARK, and the rows of the object."""

    type: str
    table: Table


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


async def read(over: transport.Transport, target: api.Target) -> Tree | None:
    """The object; None if it does not exist."""
    try:
        return await _tree(over, "GET", paths.of(target), doing=f"get {target}")
    except failures.Missing:
        return None


async def listed(
    over: transport.Transport,
    kind: registry.Kind,
    *,
    namespace: str = "",
    params: Mapping[str, str] | None = None,
) -> list[Tree]:
    """All objects of a kind that the selectors choose, as one list."""
    path = paths.collection(kind, namespace)
    tree = await _tree(over, "GET", path, doing=f"list {kind.plural}", params=params)
    types = {"apiVersion": kind.api_version, "kind": kind.name}
    return [types | item for item in tree.get("items") or ()]


async def table(
    over: transport.Transport,
    kind: registry.Kind,
    *,
    namespace: str = "",
    params: Mapping[str, str] | None = None,
) -> Table:
    """The server's table of a kind, with the columns that kubectl shows."""
    answer = await over.request(
        "GET", paths.collection(kind, namespace), params=params, accept=_TABLE, timeout=SECONDS
    )
    doing = f"list {kind.plural}"
    if not answer.is_success:
        raise status_errors.failure_of(
            answer.status, answer.body, headers=answer.headers, doing=doing
        )
    return msgspec.json.decode(answer.body, type=Table)


async def watched_table(
    over: transport.Transport,
    kind: registry.Kind,
    *,
    namespace: str = "",
    params: Mapping[str, str],
    since: str,
) -> AsyncIterator[TableEvent]:
    """The changes of a table after a version, until the server ends the watch. Raises Expired for one too old."""
    asked = dict(params) | {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true"}
    path = paths.collection(kind, namespace)
    async for line in over.lines(path, asked, accept=_TABLE):
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            raise failures.Expired(f"watch {kind.plural}: {status.message}", status=410)
        yield TableEvent(event.type, msgspec.json.decode(event.object, type=Table))


async def create(
    over: transport.Transport, target: api.Target, tree: Tree, *, is_rehearsal: bool = False
) -> Tree | Refusal:
    """The created object, or as it would be; a generated name is the server's choice."""
    params = {"fieldManager": MANAGER, "fieldValidation": "Strict"} | _dry_run(is_rehearsal)
    return await _write(over, "POST", paths.of(target), tree, params=params, content_type=_JSON)


async def apply(
    over: transport.Transport,
    target: api.Target,
    tree: Tree,
    *,
    is_rehearsal: bool = False,
    is_forced: bool = False,
) -> Tree | Refusal:
    """The object after a server-side apply, or as it would be. Fields of other managers are taken over by force only.

    What we wrote ourselves without applying it, by a create or a patch, is taken over in any case.
    """
    params = {"fieldManager": MANAGER, "fieldValidation": "Strict"} | _dry_run(is_rehearsal)
    forced = params | {"force": "true"}
    path = paths.of(target)
    first = forced if is_forced else params
    answer = await _write(over, "PATCH", path, tree, params=first, content_type=_APPLY)
    if isinstance(answer, Refusal) and answer.is_with_ourselves and not is_forced:
        return await _write(over, "PATCH", path, tree, params=forced, content_type=_APPLY)
    return answer


async def patch(over: transport.Transport, target: api.Target, change: Tree) -> Tree | Refusal:
    """The object after a JSON merge patch."""
    params = {"fieldManager": MANAGER}
    path = paths.of(target)
    return await _write(over, "PATCH", path, change, params=params, content_type=_MERGE)


async def delete(
    over: transport.Transport,
    target: api.Target,
    *,
    grace_seconds: int | None = None,
    propagation: str = "Background",
) -> Tree | None:
    """Deletes an object; returns the answer, or None if it was gone already."""
    options: Tree = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
    }
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    try:
        return await _tree(
            over,
            "DELETE",
            paths.of(target),
            doing=f"delete {target}",
            body=msgspec.json.encode(options),
        )
    except failures.Missing:
        return None


def _dry_run(is_rehearsal: bool) -> dict[str, str]:
    return {"dryRun": "All"} if is_rehearsal else {}


async def _write(
    over: transport.Transport,
    method: str,
    path: str,
    tree: Tree,
    *,
    params: Mapping[str, str],
    content_type: str,
) -> Tree | Refusal:
    answer = await over.request(
        method,
        path,
        params=params,
        body=msgspec.json.encode(tree),
        content_type=content_type,
        timeout=SECONDS,
    )
    if answer.is_success:
        return dict(msgspec.json.decode(answer.body))
    if answer.status in REFUSED_STATUSES:
        return _refusal(answer)
    raise status_errors.failure_of(
        answer.status, answer.body, headers=answer.headers, doing=f"{method} {path}"
    )


def _refusal(answer: transport.Answer) -> Refusal:
    try:
        status = msgspec.json.decode(answer.body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refusal(answer.status, "", (Fault("", f"HTTP status {answer.status}"),))
    causes = status.details.causes if status.details is not None else ()
    faults = tuple(map(_fault, causes))
    return Refusal(answer.status, status.reason, faults or (Fault("", status.message),))


def _fault(cause: _Cause) -> Fault:
    if cause.reason != _CONTESTED:
        return Fault(cause.field, cause.message)
    quoted = _OWNER.search(cause.message)
    owner = quoted[1] if quoted else cause.message
    return Fault(cause.field.removeprefix("."), cause.message, owner)


async def _tree(
    over: transport.Transport,
    method: str,
    path: str,
    *,
    doing: str,
    params: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Tree:
    answer = await over.request(method, path, params=params, body=body, timeout=SECONDS)
    if not answer.is_success:
        raise status_errors.failure_of(
            answer.status, answer.body, headers=answer.headers, doing=doing
        )
    return dict(msgspec.json.decode(answer.body))
