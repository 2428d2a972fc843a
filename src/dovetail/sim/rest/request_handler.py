"""Answers the requests of Kubernetes' REST API: finds what a path means and hands it to the part that does it.

Given a `SimApi` and a token; every path but health needs the token. A write is answered after it is durable. Never
listens by itself: `rest_server` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import urllib.parse
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.kubetypes import codec
from dovetail.ports import failures
from dovetail.ports.api import EMBEDDED_PLATFORM
from dovetail.sim.rest import (
    access_answers,
    request_options,
    request_paths,
    status_answers,
)
from dovetail.sim.rest.commit_turns import CommitTurns, Journal
from dovetail.sim.rest.documents.discovery_documents import AGGREGATED, DiscoveryDocuments
from dovetail.sim.rest.documents.openapi_documents import OpenApiDocuments
from dovetail.sim.rest.encoding import (
    content_types,
    conversions,
    protobuf_bodies,
    protobuf_metadata,
)
from dovetail.sim.rest.encoding.content_types import Form
from dovetail.sim.rest.object_writes import ObjectWrites, Written, target_of
from dovetail.sim.rest.printing import tables
from dovetail.sim.rest.reading import listing, watch_streams
from dovetail.sim.rest.request_paths import Address
from dovetail.sim.rest.subresources import Subresources
from dovetail.sim.server import event_expiry, write_rules
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import Served, table_key

LOG = logging.getLogger("dovetail.apiserver")

HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
VERSION: Final = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": EMBEDDED_PLATFORM,
}
WATCH_SECONDS: Final = (
    1_800  # the shortest watch without timeoutSeconds; upstream draws up to twice that
)
# Kinds whose deletion returns the object where nothing is left of it; others return a Status.
_RETURNED: Final = frozenset(
    ("", plural)
    for plural in (
        "persistentvolumeclaims",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
    )
)
_BEARER: Final = "bearer"
_JSON: Final = "application/json"
_OPENAPI_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

Tree = dict[str, Any]
Query = dict[str, str]


class RequestHandler:
    """Answers the requests to one server."""

    def __init__(
        self,
        api: SimApi,
        *,
        token: str,
        journal: Journal | None,
        settle: Callable[[], object],
    ) -> None:
        self._api = api
        self._token = token
        self._streams = watch_streams.Streams(api.shelf)
        self._turns = CommitTurns(
            api.shelf, journal=journal, publish=self._streams.publish, settle=settle
        )
        self._lists = listing.Lists(api.shelf)
        self._writes = ObjectWrites(api)
        self._subresources = Subresources(api, token)
        self._discovery = DiscoveryDocuments(api.kinds)
        self._openapi = OpenApiDocuments(api.kinds, self._discovery)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commits and keeps house while the block lasts; ends all watches afterwards."""
        self._turns.start()
        housekeeping = asyncio.create_task(self._look_after())
        try:
            yield
        finally:
            housekeeping.cancel()
            await asyncio.gather(housekeeping, return_exceptions=True)
            self._streams.end_all()
            self._turns.stop()

    async def _look_after(self) -> None:
        """Sends bookmarks, and removes events that have expired, once a minute."""
        while True:
            await asyncio.sleep(watch_streams.BOOKMARK_SECONDS)
            event_expiry.expire(self._api.shelf)
            with contextlib.suppress(failures.Unavailable):  # of a journal that failed
                await self._turns.committed()
            self._streams.bookmark(self._turns.published)

    # Requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        segments = [
            urllib.parse.unquote(part) for part in request.raw_path.split("?")[0].split("/")
        ]
        segments = segments[1:-1] if segments[-1] == "" else segments[1:]
        try:
            if segments and segments[0] in HEALTH:
                return self._health()
            self._authenticate(request)
            address = request_paths.parsed(segments)
            if address is None or not address.plural:
                return self._documents(request, segments)
            return await self._on_object(request, address)
        except failures.ApiFailure as failure:
            return _failed(failure)
        except web.HTTPRequestEntityTooLarge:
            limit = request_options.MAX_BODY_BYTES
            message = f"Request entity too large: limit is {limit}"
            return _failed(failures.Futile(message, status=413))
        except (codec.DecodeError, RecursionError) as error:
            return _failed(status_answers.bad(str(error)))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            LOG.exception("apiserver.request_failed", extra={"path": request.path})
            message = f"Internal error occurred: {error}"
            return _failed(failures.Unavailable(message, status=500))

    def _health(self) -> web.Response:
        if self._turns.broken is not None:
            return web.Response(status=500, text=f"journal failed: {self._turns.broken}")
        return web.Response(text="ok")

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != _BEARER or not access_answers.is_token(sent.strip(), self._token):
            raise failures.Unauthorised("Unauthorized", status=401, reason="Unauthorized")

    def _documents(self, request: web.Request, segments: list[str]) -> web.Response:
        """Everything that is not about an object."""
        if request.method not in ("GET", "HEAD"):
            raise status_answers.method_not_allowed()
        aggregated = content_types.wants_aggregated(request.headers.get("Accept", ""))
        match segments:
            case ["version"]:
                return _json(msgspec.json.encode(VERSION))
            case ["api" | "apis" as root] if aggregated:
                document = self._discovery.aggregated(core=root == "api")
                return web.Response(body=document, headers={"Content-Type": AGGREGATED})
            case ["api"]:
                return _json(self._discovery.versions())
            case ["apis"]:
                return _json(self._discovery.groups())
            case ["api", "v1"]:
                return _json_or_missing(self._discovery.resources("v1"))
            case ["apis", group]:
                return _json_or_missing(self._discovery.group(group))
            case ["apis", group, version]:
                return _json_or_missing(self._discovery.resources(f"{group}/{version}"))
            case ["openapi", "v2"]:
                return _openapi_v2(request.headers.get("Accept", ""))
            case ["openapi", "v3"]:
                return _json(self._openapi.index())
            case ["openapi", "v3", *path]:
                return _json_or_missing(self._openapi.document("/".join(path)))
            case []:
                paths = [
                    "/api",
                    "/apis",
                    "/healthz",
                    "/livez",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
                return _json(msgspec.json.encode({"paths": paths}))
            case _:
                raise write_rules.not_served()

    async def _on_object(self, request: web.Request, address: Address) -> web.StreamResponse:
        review = access_answers.at(address.api_version, address.plural)
        if review is not None:
            return await self._review(request, review)
        served = self._api.kinds.at(address.api_version, address.plural)
        if served is None or not _fits(served, address):
            raise write_rules.not_served()
        if request.method not in ("GET", "HEAD"):
            self._turns.check()
        if address.subresource not in ("", "status"):
            return await self._on_subresource(request, served, address)
        if address.subresource == "status" and not served.resource.has_status:
            raise write_rules.not_served()

        has_name = bool(address.name)
        match request.method:
            case "GET" | "HEAD" if has_name and not _is_watch(request):
                return self._get(request, served, address)
            case "GET" | "HEAD":
                return await self._list_or_watch(request, served, address)
            case "POST" if not has_name:
                return await self._create(request, served, address)
            case "PUT" if has_name:
                return await self._replace(request, served, address)
            case "PATCH" if has_name:
                return await self._patch(request, served, address)
            case "DELETE" if has_name and not address.subresource:
                return await self._delete(request, served, address)
            case "DELETE" if not has_name:
                return await self._delete_collection(request, served, address)
            case _:
                raise status_answers.method_not_allowed()

    # Reading

    def _get(self, request: web.Request, served: Served, at: Address) -> web.Response:
        form = content_types.form_of(request.headers.get("Accept", ""))
        record = self._api.found(target_of(served.kind, at))
        if form is Form.PROTOBUF:
            body = protobuf_metadata.encoded(record)
            return web.Response(body=body, headers={"Content-Type": content_types.PROTOBUF})
        return _json(self._document(request, served, record, form))

    async def _list_or_watch(
        self, request: web.Request, served: Served, at: Address
    ) -> web.StreamResponse:
        form = content_types.form_of(request.headers.get("Accept", ""))
        if form is Form.PROTOBUF:
            raise status_answers.not_acceptable(_JSON)
        await self._turns.committed()
        if _is_watch(request):
            return await self._watch(request, served, at, form)
        query = _query(request)
        page = self._lists.page(served, at.namespace, query)
        include = query.get("includeObject", "")
        now = self._api.shelf.now()
        return _json(listing.document(served, page, form, include=include, now=now))

    async def _watch(
        self, request: web.Request, served: Served, at: Address, form: Form
    ) -> web.StreamResponse:
        query = _query(request)
        wish = watch_streams.wish_of(served, at.namespace, at.name, query, form)
        stream = self._streams.open(wish, published=self._turns.published)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_watch_seconds(query)):
                    await _pump(stream, response)
            if not stream.is_over and wish.takes_bookmarks:
                stream.add_bookmark(self._turns.published)
                await response.write(stream.take())
            await response.write_eof()
        except ConnectionError:
            LOG.debug("apiserver.watch_closed", extra={"path": request.path})
        finally:
            self._streams.end(stream)
        return response

    def _document(self, request: web.Request, served: Served, record: Record, form: Form) -> bytes:
        if form is Form.TABLE:
            include = _query(request).get("includeObject", "")
            rows = tables.Rows(served, include=include, now=self._api.shelf.now())
            return rows.table([record], {"resourceVersion": record.metadata.resource_version})
        if form in (Form.METADATA, Form.METADATA_LIST):
            return tables.partial_document(record)
        return conversions.document(served, record)

    # Writing

    async def _create(self, request: web.Request, served: Served, at: Address) -> web.Response:
        if served.kind.is_namespaced and not at.namespace:
            raise status_answers.method_not_allowed()
        tree = await _body_tree(request)
        written = self._writes.create(served, at, tree, _write_options(request))
        return await self._answer(request, served, written)

    async def _replace(self, request: web.Request, served: Served, at: Address) -> web.Response:
        media = content_types.media_of(request.headers.get("Content-Type", ""))
        options = _write_options(request)
        body = await request.read()
        if media == content_types.PROTOBUF and protobuf_bodies.is_metadata_only(body):
            tree = self._with_finalizers(served, at, body)
        else:
            tree = await _body_tree(request)
        written = self._writes.replace(served, at, tree, options)
        return await self._answer(request, served, written)

    def _with_finalizers(self, served: Served, at: Address, body: bytes) -> Tree:
        """The stored object with the finalizers of a protobuf body."""
        sent = protobuf_metadata.decoded(body)
        tree = self._api.found(target_of(served.kind, at)).tree
        identity = {"uid": sent.uid, "resourceVersion": sent.resource_version}
        metadata = tree["metadata"] | identity | {"finalizers": list(sent.finalizers)}
        return conversions.tree(served, tree | {"metadata": metadata})

    async def _patch(self, request: web.Request, served: Served, at: Address) -> web.Response:
        media = content_types.media_of(request.headers.get("Content-Type", ""))
        options = _write_options(request)
        if media == content_types.APPLY_PATCH and not _query(request).get("fieldManager"):
            raise request_options.invalid(
                "PATCH", "fieldManager", "Required value: is required for apply patch"
            )
        written = self._writes.patch(served, at, await request.read(), media, options)
        return await self._answer(request, served, written)

    async def _answer(self, request: web.Request, served: Served, written: Written) -> web.Response:
        form = content_types.form_of(request.headers.get("Accept", ""))
        document = self._document(request, served, written.record, form)
        await self._turns.committed()
        response = _json(document, status=201 if written.is_new else 200)
        for warning in written.warnings:
            escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{escaped}"')
        return response

    async def _delete(self, request: web.Request, served: Served, at: Address) -> web.Response:
        options = request_options.delete_options(_query(request), await _options_tree(request))
        deleted = self._writes.delete(served.kind, at, options)
        await self._turns.committed()
        if deleted.is_gone and table_key(served.kind) not in _RETURNED:
            uid = deleted.record.metadata.uid
            subject = status_answers.Subject(at.name, at.group, at.plural, uid)
            return _json(status_answers.success(subject))
        form = content_types.form_of(request.headers.get("Accept", ""))
        return _json(self._document(request, served, deleted.record, form))

    async def _delete_collection(
        self, request: web.Request, served: Served, at: Address
    ) -> web.Response:
        query = _query(request)
        options = request_options.delete_options(query, await _options_tree(request))
        page = self._lists.page(served, at.namespace, query)
        self._writes.delete_all(served.kind, page.records, options)
        await self._turns.committed()
        form = content_types.form_of(request.headers.get("Accept", ""))
        return _json(listing.document(served, page, form, include="", now=self._api.shelf.now()))

    # Subresources and reviews

    async def _on_subresource(
        self, request: web.Request, served: Served, at: Address
    ) -> web.Response:
        match table_key(served.kind), at.subresource, request.method:
            case _, "scale", "GET":
                return _json(msgspec.json.encode(self._subresources.scale(served, at)))
            case _, "scale", "PUT" | "PATCH":
                return await self._write_scale(request, served, at)
            case ("", "pods"), "binding", "POST":
                self._subresources.bind(at, await _body_tree(request))
            case ("", "pods"), "eviction", "POST":
                options = _write_options(request)
                eviction = await _body_tree(request)
                self._subresources.evict(at, eviction, is_rehearsal=options.is_rehearsal)
            case ("", "namespaces"), "finalize", "PUT":
                record = self._subresources.finalize(at, await _body_tree(request))
                return await self._answer(request, served, Written(record))
            case ("", "serviceaccounts"), "token", "POST":
                now = self._api.shelf.now()
                answer = self._subresources.token(at, await _body_tree(request), now)
                return _json(msgspec.json.encode(answer), status=201)
            case _:
                raise write_rules.not_served()
        await self._turns.committed()
        return _json(status_answers.success(status_answers.Subject(), code=201), status=201)

    async def _write_scale(self, request: web.Request, served: Served, at: Address) -> web.Response:
        media = content_types.media_of(request.headers.get("Content-Type", ""))
        options = _write_options(request)
        body = await request.read()
        scale = self._subresources.write_scale(served, at, body, media, options)
        await self._turns.committed()
        return _json(msgspec.json.encode(scale))

    async def _review(self, request: web.Request, review: access_answers.Review) -> web.Response:
        if request.method != "POST":
            raise status_answers.method_not_allowed()
        answer = access_answers.answered(review, await _body_tree(request), self._token)
        return _json(msgspec.json.encode(answer), status=201)


async def _pump(stream: watch_streams.Stream, response: web.StreamResponse) -> None:
    """Sends lines as they come, until the stream is over."""
    while True:
        await stream.ready.wait()
        if lines := stream.take():
            await response.write(lines)
        elif stream.is_over:
            return


def _fits(served: Served, at: Address) -> bool:
    """Whether a path with or without a namespace fits the kind's scope."""
    if not served.kind.is_namespaced:
        return not at.namespace
    return bool(at.namespace) or not at.name


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch", "") in ("true", "1")


def _query(request: web.Request) -> Query:
    return dict(request.query)


def _watch_seconds(query: Query) -> float:
    text = query.get("timeoutSeconds", "")
    if text.isdigit() and int(text) > 0:
        return float(text)
    return WATCH_SECONDS * random.uniform(1.0, 2.0)  # noqa: S311 - spreads load, guards nothing


def _write_options(request: web.Request) -> request_options.WriteOptions:
    user_agent = request.headers.get("User-Agent", "")
    return request_options.write_options(request.method, _query(request), user_agent)


async def _body_tree(request: web.Request) -> Tree:
    return request_options.body_tree(await request.read(), request.headers.get("Content-Type", ""))


async def _options_tree(request: web.Request) -> Tree:
    """The DeleteOptions of a body, if there is one."""
    return await _body_tree(request) if await request.read() else {}


def _json(document: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=document, status=status, headers={"Content-Type": _JSON})


def _openapi_v2(accept: str) -> web.Response:
    """A document without schemas: kubectl reads it for kinds that are not in v3, and then validates nothing."""
    if "proto-openapi" in accept:
        return web.Response(body=b"", headers={"Content-Type": _OPENAPI_V2})
    empty = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.37.1"}, "paths": {}}
    return _json(msgspec.json.encode(empty))


def _json_or_missing(document: bytes | None) -> web.Response:
    if document is None:
        raise write_rules.not_served()
    return _json(document)


def _failed(failure: failures.ApiFailure) -> web.Response:
    code, document = status_answers.failure(failure)
    response = _json(document, status=code)
    if failure.retry_after:
        response.headers["Retry-After"] = str(int(failure.retry_after))
    return response
