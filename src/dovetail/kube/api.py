"""Reads and writes single objects on an API server, and lists all of a kind. Implements `ports.api.Api`.

Given a transport and, for a process that must lead to write, a fence. A write is sent only while the fence holds, and
waits no longer than it holds. Never repeats anything: callers know what a repetition would mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from dovetail.kube import decode, failures_of, paths, protobuf
from dovetail.kube import transport as transports
from dovetail.model import kinds
from dovetail.ports import api, failures

REQUEST_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0  # kube-apiserver's own limit for a request
# Pages begin small and grow or shrink to about this size: one page is scanned without letting others run.
PAGE_BYTES: Final = 4 << 20
FIRST_PAGE_ITEMS: Final = 100
PAGE_ITEMS: Final = 500  # as client-go; at most

_JSON: Final = "application/json"
_BRIEF: Final = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class Fence(Protocol):
    """What allows this process to write, for as long as it does."""

    def check(self) -> None:
        """Raises failures.Fenced where writing is not allowed now."""
        ...

    def remaining(self) -> float:
        """For how many more seconds it is allowed."""
        ...

    def mark_unanswered(self) -> None:
        """A write got no answer and may still arrive."""
        ...


class KubeApi:
    """One API server as loops see it."""

    def __init__(
        self, transport: transports.Transport, *, fence: Fence | None = None, timeout: float = REQUEST_SECONDS
    ) -> None:
        self._transport = transport
        self._fence = fence
        self._timeout = timeout

    async def get(self, target: api.Target) -> bytes:
        """The document."""
        return _checked(await self._transport.request("GET", paths.of(target), timeout=self._timeout), f"get {target}")

    async def create(self, target: api.Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts a document to a collection or a subresource; what was stored."""
        return await self._write("POST", target, document, doing="create", accept=_accept(brief))

    async def patch(self, target: api.Target, patch: bytes, *, brief: bool = False, adds: bool = False) -> bytes:
        """A JSON merge patch; one that only adds goes as a strategic merge patch, which says the same there."""
        content_type = _STRATEGIC_PATCH if adds else _MERGE_PATCH
        return await self._write(
            "PATCH", target, patch, doing="patch", accept=_accept(brief), content_type=content_type
        )

    async def protect(self, target: api.Target, finalizer: str, *, uid: str, resource_version: str) -> bytes:
        """Adds a finalizer in the server's own encoding, where nothing else changes; its metadata then."""
        asked = await self._transport.request(
            "GET", paths.of(target), accept=protobuf.CONTENT_TYPE, timeout=self._timeout
        )
        if not asked.is_success:
            raise failures_of.failure_of(asked.status, asked.body, headers=asked.headers, doing=f"get {target}")
        found = protobuf.identity_of(asked.body)
        if (found.uid, found.resource_version) != (uid, resource_version) or finalizer in found.finalizers:
            raise failures.Conflict(f"put {target}: somebody wrote first", status=409, reason="Conflict")
        document = protobuf.with_finalizer(asked.body, finalizer)
        return await self._write(
            "PUT", target, document, doing="put", accept=_accept(True), content_type=protobuf.CONTENT_TYPE
        )

    async def delete(self, target: api.Target, *, uid: str = "", resource_version: str = "") -> None:
        """Deletes, only if the uid and version are still these where given."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if given := {name: value for name, value in conditions.items() if value}:
            options["preconditions"] = given
        # What is deleted comes back, or a Status; its metadata is the least there is to send.
        await self._write("DELETE", target, msgspec.json.encode(options), doing="delete", accept=_accept(True))

    async def evict(
        self, target: api.Target, *, uid: str, grace_seconds: int | None = None, is_rehearsal: bool = False
    ) -> None:
        """Asks for a pod to end; a rehearsal only asks whether it could."""
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
        more = {"dryRun": "All"} if is_rehearsal else {}
        body = msgspec.json.encode(document)
        answer = await self._write("POST", place, body, doing="evict", accept=_JSON, params=more)
        if (failure := failures_of.failure_inside(answer, doing=f"evict {target}")) is not None:
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
    transport: transports.Transport,
    kind: kinds.Kind,
    *,
    namespace: str = "",
    params: dict[str, str] | None = None,
    unreadable: decode.Unreadable | None = None,
    first_page: int = FIRST_PAGE_ITEMS,
) -> tuple[list[Any], str]:
    """Every object of a kind at one moment, and the version of that moment.

    Comes in pages of one snapshot. Where the snapshot ends before the last page, everything is read anew in one piece.
    Objects that cannot be read are told to `unreadable` and left out.
    """
    pages = _Pages(transport, kind, namespace=namespace, params=params or {}, unreadable=unreadable or _say_nothing)
    try:
        return await pages.read(first_page)
    except failures.Expired:
        return await pages.read(0)


class _Pages:
    """One kind's list, page by page."""

    def __init__(
        self,
        transport: transports.Transport,
        kind: kinds.Kind,
        *,
        namespace: str,
        params: dict[str, str],
        unreadable: decode.Unreadable,
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._path = paths.collection(kind, namespace)
        self._params = params
        self._unreadable = unreadable

    async def read(self, items: int) -> tuple[list[Any], str]:
        """All pages, the first of so many items; 0 asks for everything at once."""
        found: list[Any] = []
        params = {**self._params, "limit": str(items)} if items else self._params
        while True:
            page, size = await self._page(params)
            raws = page.items or []
            found += await decode.structs(self._kind, raws, unreadable=self._unreadable)
            if not page.metadata.continue_:
                return found, page.metadata.resource_version
            fitting = PAGE_BYTES * max(1, len(raws)) // max(1, size)
            params = {
                **self._params,
                "limit": str(max(1, min(PAGE_ITEMS, fitting))),
                "continue": page.metadata.continue_,
            }

    async def _page(self, params: dict[str, str]) -> tuple[decode.Page, int]:
        doing = f"list {self._kind.plural}"
        answer = await self._transport.request("GET", self._path, params=params, timeout=LIST_SECONDS)
        body = _checked(answer, doing)
        return decode.page(body, doing=doing), len(body)


def _checked(answer: transports.Answer, doing: str) -> bytes:
    if not answer.is_success:
        raise failures_of.failure_of(answer.status, answer.body, headers=answer.headers, doing=doing)
    return decode.mended(answer.body)


def _params(method: str, seconds: float) -> dict[str, str]:
    """The server gives up when we do; unknown fields need no looking for, answers are compared by who asked."""
    asked = {"timeout": f"{max(1, int(seconds * 1000))}ms"}
    return asked if method == "DELETE" else asked | {"fieldValidation": "Ignore"}


def _accept(brief: bool) -> str:
    return _BRIEF if brief else _JSON


def _say_nothing(name: str, problem: str) -> None:
    """For callers who only want what can be read."""
