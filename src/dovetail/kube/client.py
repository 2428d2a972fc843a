"""Reads and writes single objects on an API server, and lists all objects of a kind. Implements `ports.api.Api`.

Given a transport and, for a process that must lead to write, a fence. A write is sent only while the fence holds, and
waits no longer than it holds. Never retries: callers know which requests may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from dovetail.kube.http import paths, protobuf, status_errors, transport
from dovetail.kube.watching import decode
from dovetail.kubetypes import registry
from dovetail.ports import api, failures

REQUEST_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0  # kube-apiserver's own limit for a request
# Pages are sized to about this many bytes, because one page is scanned without yielding to the event loop.
PAGE_BYTES: Final = 4 << 20
FIRST_PAGE_ITEMS: Final = 100
PAGE_ITEMS: Final = 500  # as client-go; at most

_JSON: Final = "application/json"
_BRIEF: Final = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class Fence(Protocol):
    """Allows this process to write while it leads."""

    def check(self) -> None:
        """Raises failures.Fenced if writing is not allowed now."""
        ...

    def remaining(self) -> float:
        """The seconds for which writing stays allowed."""
        ...

    def mark_unanswered(self) -> None:
        """Records that a write got no response and may still arrive."""
        ...


class KubeApi:
    """The API of one server."""

    def __init__(
        self,
        transport: transport.Transport,
        *,
        fence: Fence | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        self._transport = transport
        self._fence = fence
        self._timeout = timeout

    async def get(self, target: api.Target) -> bytes:
        """The document."""
        return _checked(
            await self._transport.request("GET", paths.of(target), timeout=self._timeout),
            f"get {target}",
        )

    async def create(self, target: api.Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts a document to a collection or a subresource; returns the stored object."""
        return await self._write("POST", target, document, doing="create", accept=_accept(brief))

    async def patch(
        self, target: api.Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        """Sends a JSON merge patch; with `adds`, a strategic merge patch, which keeps other items of keyed lists."""
        content_type = _STRATEGIC_PATCH if adds else _MERGE_PATCH
        return await self._write(
            "PATCH", target, patch, doing="patch", accept=_accept(brief), content_type=content_type
        )

    async def protect(
        self, target: api.Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        """Adds a finalizer in the server's protobuf encoding, so that nothing else changes; returns the metadata."""
        answer = await self._transport.request(
            "GET", paths.of(target), accept=protobuf.CONTENT_TYPE, timeout=self._timeout
        )
        if not answer.is_success:
            raise status_errors.failure_of(
                answer.status, answer.body, headers=answer.headers, doing=f"get {target}"
            )
        identity = protobuf.identity_of(answer.body)
        if (identity.uid, identity.resource_version) != (
            uid,
            resource_version,
        ) or finalizer in identity.finalizers:
            raise failures.Conflict(
                f"put {target}: another writer was first", status=409, reason="Conflict"
            )
        document = protobuf.with_finalizer(answer.body, finalizer)
        return await self._write(
            "PUT",
            target,
            document,
            doing="put",
            accept=_accept(True),
            content_type=protobuf.CONTENT_TYPE,
        )

    async def delete(
        self, target: api.Target, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Deletes, if the uid and the version still match those given."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {name: value for name, value in conditions.items() if value}:
            options["preconditions"] = preconditions
        # The server returns the deleted object or a Status; metadata only is the smallest response.
        await self._write(
            "DELETE", target, msgspec.json.encode(options), doing="delete", accept=_accept(True)
        )

    async def evict(
        self,
        target: api.Target,
        *,
        uid: str,
        grace_seconds: int | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Evicts a pod; a rehearsal is a dry run."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": target.namespace, "name": target.name},
            "deleteOptions": options,
        }
        place = target._replace(subresource="eviction")
        dry_run = {"dryRun": "All"} if is_rehearsal else {}
        body = msgspec.json.encode(document)
        answer = await self._write("POST", place, body, doing="evict", accept=_JSON, params=dry_run)
        if (failure := status_errors.failure_inside(answer, doing=f"evict {target}")) is not None:
            raise failure

    async def _write(
        self,
        method: str,
        target: api.Target,
        body: bytes,
        *,
        doing: str,
        accept: str,
        content_type: str = _JSON,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        fence = self._fence
        seconds = self._timeout
        if fence is not None:
            fence.check()
            seconds = min(seconds, fence.remaining())
        try:
            answer = await self._transport.request(
                method,
                paths.of(target),
                params=_params(method, seconds) | dict(params or {}),
                body=body,
                content_type=content_type,
                accept=accept,
                timeout=seconds,
                guard=fence.check if fence is not None else None,
            )
            return _checked(answer, f"{doing} {target}")
        except (failures.Unavailable, asyncio.CancelledError):
            if fence is not None:
                fence.mark_unanswered()
            raise


async def list_all(
    transport: transport.Transport,
    kind: registry.Kind,
    *,
    namespace: str = "",
    params: dict[str, str] | None = None,
    unreadable: decode.Unreadable | None = None,
    keep_document: decode.KeepDocument = decode.keep_no_document,
    first_page: int = FIRST_PAGE_ITEMS,
) -> tuple[list[Any], str]:
    """All objects of a kind at one resource version, and that version.

    Reads pages of one consistent list. If its token expires before the last page, everything is listed again at once.
    Objects that cannot be read are passed to `unreadable` and left out.
    """
    pages = _Pages(
        transport,
        kind,
        namespace=namespace,
        params=params or {},
        unreadable=unreadable or _say_nothing,
        keep_document=keep_document,
    )
    try:
        return await pages.read(first_page)
    except failures.Expired:
        return await pages.read(0)


async def list_documents(
    transport: transport.Transport,
    kind: registry.Kind,
    *,
    namespace: str = "",
    params: dict[str, str] | None = None,
) -> tuple[list[bytes], str]:
    """All objects of a kind as the server wrote them, not decoded, and the version of the list."""
    pages = _Pages(
        transport, kind, namespace=namespace, params=params or {}, unreadable=_say_nothing
    )
    try:
        return await pages.read_raw(PAGE_ITEMS)
    except failures.Expired:
        return await pages.read_raw(0)


class _Pages:
    """One kind's list, page by page."""

    def __init__(
        self,
        transport: transport.Transport,
        kind: registry.Kind,
        *,
        namespace: str,
        params: dict[str, str],
        unreadable: decode.Unreadable,
        keep_document: decode.KeepDocument = decode.keep_no_document,
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._keep_document = keep_document
        self._path = paths.collection(kind, namespace)
        self._params = params
        self._unreadable = unreadable

    async def read(self, items: int) -> tuple[list[Any], str]:
        """Reads all pages, the first with this many items; 0 requests everything at once."""
        objects: list[Any] = []
        version = ""
        async for page in self._pages(items):
            version = page.metadata.resource_version
            raws = page.items or []
            objects += await decode.structs(
                self._kind, raws, unreadable=self._unreadable, keep_document=self._keep_document
            )
        return objects, version

    async def read_raw(self, items: int) -> tuple[list[bytes], str]:
        """As `read`, without decoding the items."""
        documents: list[bytes] = []
        version = ""
        async for page in self._pages(items):
            version = page.metadata.resource_version
            documents += map(bytes, page.items or ())
        return documents, version

    async def _pages(self, items: int) -> AsyncIterator[decode.Page]:
        params = {**self._params, "limit": str(items)} if items else self._params
        while True:
            page, size = await self._page(params)
            yield page
            if not page.metadata.continue_:
                return
            fitting = PAGE_BYTES * max(1, len(page.items or ())) // max(1, size)
            params = {
                **self._params,
                "limit": str(max(1, min(PAGE_ITEMS, fitting))),
                "continue": page.metadata.continue_,
            }

    async def _page(self, params: dict[str, str]) -> tuple[decode.Page, int]:
        doing = f"list {self._kind.plural}"
        answer = await self._transport.request(
            "GET", self._path, params=params, timeout=LIST_SECONDS
        )
        body = _checked(answer, doing)
        return decode.page(body, doing=doing), len(body)


def _checked(answer: transport.Answer, doing: str) -> bytes:
    if not answer.is_success:
        raise status_errors.failure_of(
            answer.status, answer.body, headers=answer.headers, doing=doing
        )
    return decode.replace_lone_surrogates(answer.body)


def _params(method: str, seconds: float) -> dict[str, str]:
    """The server's timeout is ours. Fields are not validated: callers compare the response with their request."""
    params = {"timeout": f"{max(1, int(seconds * 1000))}ms"}
    return params if method == "DELETE" else params | {"fieldValidation": "Ignore"}


def _accept(brief: bool) -> str:
    return _BRIEF if brief else _JSON


def _say_nothing(name: str, problem: str) -> None:
    """For callers that ignore unreadable objects."""
