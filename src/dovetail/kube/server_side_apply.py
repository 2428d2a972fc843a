"""Server-side apply of whole objects: discovers kinds, reads and lists objects, applies, dry-runs and deletes them.

Given a transport and objects as trees. Writes with one field manager, so that the server knows which fields are ours.
Never decides what to apply or to delete.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import codec, registry
from dovetail.ports import api, failures

MANAGER: Final = "dovetail-install"
APPLY_SECONDS: Final = 30.0
ATTEMPTS: Final = 5
RETRY_SECONDS: Final = 1.0

_JSON: Final = "application/json"
_NO_SUCH_FIELD: Final = "field not declared in schema"
_BRIEF_LIST: Final = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
Tree = dict[str, Any]


class _Resource(msgspec.Struct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


class _List(msgspec.Struct):
    items: list[Tree] | None = None


async def served(over: transport.Transport, api_version: str) -> tuple[registry.Kind, ...]:
    """The kinds that the server serves in a group and version; none if it does not serve the version."""
    root = "/apis" if "/" in api_version else "/api"
    try:
        body = await _asked(over, "GET", f"{root}/{api_version}", doing=f"look for {api_version}")
    except failures.Missing:
        return ()
    resources = msgspec.json.decode(body, type=_ResourceList).resources
    return tuple(
        registry.Kind(api_version, resource.kind, resource.name, resource.namespaced, codec.Generic)
        for resource in resources
        if "/" not in resource.name
    )


async def read(over: transport.Transport, target: api.Target) -> Tree | None:
    """The object; None if it does not exist."""
    try:
        body = await _asked(over, "GET", paths.of(target), doing=f"get {target}")
    except failures.Missing:
        return None
    return dict(msgspec.json.decode(body))


async def listed(
    over: transport.Transport, kind: registry.Kind, *, namespace: str = "", selector: str = ""
) -> list[Tree]:
    """The objects of a kind that the labels select, metadata only, so that no secret is read."""
    params = {"labelSelector": selector} if selector else {}
    place = paths.collection(kind, namespace)
    body = await _asked(
        over, "GET", place, params=params, accept=_BRIEF_LIST, doing=f"list {kind.plural}"
    )
    return msgspec.json.decode(body, type=_List).items or []


async def apply(
    over: transport.Transport,
    target: api.Target,
    tree: Tree,
    *,
    is_rehearsal: bool = False,
    is_forced: bool = False,
) -> Tree:
    """The object after applying, or as it would be. Raises Conflict if another manager owns a field that differs."""
    params = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    params |= {"force": "true"} if is_forced else {}
    params |= {"dryRun": "All"} if is_rehearsal else {}
    body = await _asked(
        over,
        "PATCH",
        paths.of(target),
        params=params,
        body=msgspec.json.encode(tree),
        doing=f"apply {target}",
    )
    return dict(msgspec.json.decode(body))


async def delete(over: transport.Transport, target: api.Target, *, uid: str) -> None:
    """Deletes exactly this object. Raises Missing if it is gone already."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    body = msgspec.json.encode(options)
    await _asked(
        over, "DELETE", paths.of(target), body=body, content_type=_JSON, doing=f"delete {target}"
    )


async def _asked(
    over: transport.Transport,
    method: str,
    path: str,
    *,
    doing: str,
    params: dict[str, str] | None = None,
    body: bytes | None = None,
    accept: str = _JSON,
    content_type: str = _APPLY,
) -> bytes:
    """The response. Every request here is idempotent, so transient failures are retried."""
    attempt = 1
    while True:
        try:
            answer = await over.request(
                method,
                path,
                params=params,
                body=body,
                content_type=content_type,
                accept=accept,
                timeout=APPLY_SECONDS,
            )
            if answer.is_success:
                return answer.body
            raise _failure(answer, doing)
        except (failures.Throttled, failures.Unavailable) as failure:
            if attempt == ATTEMPTS:
                raise
            attempt += 1
            await asyncio.sleep(failure.retry_after or RETRY_SECONDS)


def _failure(answer: transport.Answer, doing: str) -> failures.ApiFailure:
    """The failure of a response. Servers report unknown fields as an internal error."""
    failure = status_errors.failure_of(
        answer.status, answer.body, headers=answer.headers, doing=doing
    )
    if _NO_SUCH_FIELD in str(failure):
        return failures.Refused(str(failure), status=answer.status, reason=failure.reason)
    return failure
