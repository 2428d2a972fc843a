"""The dashboard's ASGI application: routes, and how an endpoint's answer becomes a response.

Given a source, endpoints and settings. Answers run on worker threads, each once per version and per what users may see,
however many ask. Never answers before the cluster was read, never shows an exception to a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

import dovetail
from dovetail import errors
from dovetail.model import policy
from dovetail.ports import failures
from dovetail.web import (
    answering,
    asked,
    endpoints,
    event_stream,
    frames,
    own_paths,
    problems,
    request_gate,
    static_files,
    writing,
)
from dovetail.web import dashboard_settings as settings_
from dovetail.web.security import (
    authentication,
    identities,
    link_tokens,
    rate_limit,
    reviews,
    sessions,
)
from dovetail.web.source import captures, live_source
from dovetail.web.wire import csv_rows, openapi, pages, parameters, responses

LOG = logging.getLogger("dovetail.dashboard")
ROOT: Final = openapi.ROOT
MOST_BODY_BYTES: Final = 2 << 20
BODY_SECONDS: Final = 30.0
MOST_KEPT_ANSWERS: Final = 64  # of one version
PREPARE_SECONDS: Final = 0.1

Handler = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """One server's parts. `application` is what uvicorn runs."""

    def __init__(
        self,
        source: captures.Source,
        given: Sequence[endpoints.Endpoint],
        settings: settings_.Settings,
        *,
        policy_: policy.Policy | None = None,
        pages_: static_files.StaticFiles | None = None,
        accounting: asked.Accounting | None = None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.keeper = frames.FrameKeeper(source, policy_)
        self._endpoints = tuple(given)
        self._accounting = accounting
        self._pages = pages_ or static_files.StaticFiles()
        self._engine = answering.Lane("engine", most_waiting=settings.most_waiting)
        self._quick = answering.Lane("quick", most_waiting=settings.most_waiting)
        self._streams: dict[str, int] = {}  # by user
        self._reviews = self._made_reviews()
        self._authentication = self._made_authentication()
        self._description = responses.Body(responses.encoded(self._described()), responses.JSON, {})
        self.application: ASGIApp = self._made_application()

    # Parts

    def _made_reviews(self) -> reviews.Reviews | None:
        source = self.source
        if not isinstance(source, live_source.LiveSource) or self.settings.auth <= {"link"}:
            return None
        return reviews.Reviews(
            source.connected, time.monotonic, kept_seconds=self.settings.reviews_kept_seconds
        )

    def _made_authentication(self) -> authentication.Authentication:
        settings = self.settings
        access_token = settings.access_token or link_tokens.new()
        cookies = sessions.Sessions(
            settings.session_secret or link_tokens.new(),
            port=settings.port,
            is_secure=settings.is_secure,
            clock=time.time,
            seconds=settings.session_seconds,
        )
        link = None
        if "link" in settings.auth:
            link = link_tokens.LinkTokens(access_token, self.source.feed.boot, time.time)
        return authentication.Authentication(
            sessions_=cookies,
            strangers=rate_limit.RateLimit(rate_limit.STRANGERS, time.monotonic),
            link=link,
            link_user=settings.link_user,
            reviews_=self._reviews if "token" in settings.auth else None,
            proxy=settings.proxy if "proxy" in settings.auth else None,
        )

    def _made_application(self) -> ASGIApp:
        routes: list[BaseRoute] = [
            Route("/healthz", self._show_health),
            Route("/readyz", self._show_readiness),
            Route("/openapi.json", self._show_description),
            Route(f"{ROOT}/openapi.json", self._show_description),
            Route(f"{ROOT}/session", self._show_session),
            Route(f"{ROOT}/session", self._sign_in, methods=["POST"]),
            Route(f"{ROOT}/session", self._sign_out, methods=["DELETE"]),
            Route(f"{ROOT}/stream", self._stream),
            Route(f"{ROOT}/fixes", self._fix, methods=["POST"]),
            Route(f"{ROOT}/work", self._submit, methods=["POST"]),
        ]
        for endpoint in self._endpoints:
            handler = self._handler(endpoint)
            routes.append(Route(endpoint.full_path, handler, methods=[endpoint.method]))
        self._api_routes = tuple(routes)
        for below in request_gate.NEED_A_USER:
            routes.append(Route(below + "{path:path}", self._no_such_path, methods=_ALL_METHODS))
        routes.append(Route("/{path:path}", self._show_page))
        starlette = Starlette(
            routes=routes,
            lifespan=self._life,
            exception_handlers={
                problems.Refusal: _on_refusal,
                HTTPException: _on_http_exception,
                errors.DovetailError: _on_known_error,
                Exception: _on_defect,
            },
        )
        return request_gate.RequestGate(
            starlette,
            authentication_=self._authentication,
            users=rate_limit.RateLimit(self.settings.user_rate, time.monotonic),
            hosts=self.settings.hosts,
            is_secure=self.settings.is_secure,
        )

    @contextlib.asynccontextmanager
    async def _life(self, starlette: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self.source.run())
        preparing = asyncio.create_task(self._prepare())
        try:
            yield
        finally:
            following.cancel()
            preparing.cancel()
            await asyncio.gather(following, preparing, return_exceptions=True)
            self.source.feed.close()
            self._engine.close()
            self._quick.close()

    async def _prepare(self) -> None:
        """Makes the replica before the first question needs it: that takes longer than all that follow."""
        while self.source.capture() is None:
            await asyncio.sleep(PREPARE_SECONDS)
        frame = self.keeper.current()
        try:
            await self._engine.run(frame.replica)
        except Exception:  # the first question says what is wrong
            LOG.warning("dashboard.replica.failed", exc_info=True)

    # Endpoints

    def _handler(self, endpoint: endpoints.Endpoint) -> Handler:
        async def show(request: Request) -> Response:
            return await self._show(endpoint, request)

        async def act(request: Request) -> Response:
            return await self._post(endpoint, request)

        return show if endpoint.method == "GET" else act

    async def _show(self, endpoint: endpoints.Endpoint, request: Request) -> Response:
        """A GET: 304, a kept body, or a new answer."""
        pairs = request.query_params.multi_items()
        params, paging = parameters.of_query(endpoint, request.path_params, pairs)
        frame = self.keeper.current()
        may = await self._visibility(request, frame)
        query = f"{request.url.path}?{urllib.parse.urlencode(sorted(pairs))}"
        feed = self.source.feed
        tag = responses.entity_tag(feed.boot, frame.version, frame.slot, may, query)
        if responses.has_tag(request.headers.get("if-none-match", ""), tag):
            return responses.unchanged(tag)

        def work() -> responses.Body:
            question = self._asked(endpoint, frame, may)
            return _body(endpoint, frame, question, params, paging, path=request.url.path)

        body = await self._once(frame, tag, endpoint, work)
        return responses.sent(body, tag, request.headers.get("accept-encoding", ""))

    async def _post(self, endpoint: endpoints.Endpoint, request: Request) -> Response:
        """A question with a body: answered each time."""
        params = parameters.of_body(endpoint.params, await _body_of(request))
        frame = self.keeper.current()
        may = await self._visibility(request, frame)

        def work() -> bytes:
            question = self._asked(endpoint, frame, may)
            return responses.encoded(endpoint.answer(question, params))

        content = await self._lane(endpoint).run(work)
        headers = {"Cache-Control": "no-store"}
        return Response(content, media_type=responses.JSON, headers=headers)

    def _asked(
        self, endpoint: endpoints.Endpoint, frame: frames.Frame, may: asked.Visibility
    ) -> asked.Asked:
        has_replica = not endpoint.is_quick
        return asked.Asked(frame, may, has_replica=has_replica, accounting=self._accounting)

    async def _once(
        self,
        frame: frames.Frame,
        key: Hashable,
        endpoint: endpoints.Endpoint,
        work: Callable[[], responses.Body],
    ) -> responses.Body:
        """What the work returns, done once for all who ask at the same time or later."""
        known: asyncio.Task[responses.Body] | None = frame.answers.get(key)
        if known is None:
            known = asyncio.create_task(self._lane(endpoint).run(work))
            frame.answers[key] = known
            while len(frame.answers) > MOST_KEPT_ANSWERS:
                frame.answers.pop(next(iter(frame.answers)))
        try:
            return await asyncio.shield(known)
        except Exception:  # the next request asks again; this one gets the failure
            if frame.answers.get(key) is known:
                del frame.answers[key]
            raise

    def _lane(self, endpoint: endpoints.Endpoint) -> answering.Lane:
        return self._quick if endpoint.is_quick else self._engine

    async def _visibility(self, request: Request, frame: frames.Frame) -> asked.Visibility:
        user = _user(request)
        if user.how == "link":
            return asked.EVERYTHING  # the objects were read with this user's own rights
        if self._reviews is None:
            raise problems.unavailable("rights cannot be checked: this is not a cluster")
        try:
            return await self._reviews.visibility(user, frame.namespaces)
        except failures.ApiFailure as failure:
            LOG.warning("dashboard.rights.unknown", extra={"why": str(failure)})
            raise problems.unavailable("rights cannot be checked now", retry_after=2.0) from None

    # Sessions

    async def _show_session(self, request: Request) -> Response:
        user = _user(request)
        feed = self.source.feed
        as_of: datetime.datetime | None = None
        with contextlib.suppress(problems.Refusal):  # nothing was read yet: no time to show
            as_of = self.keeper.current().as_of
        session = own_paths.Session(
            user=user.name,
            cluster=self.source.name,
            kind=self.source.kind,
            is_live=self.source.kind != "snapshot",
            can_write=self._can_write(user),
            as_of=as_of,
            version=feed.version,
            program=f"dovetail {dovetail.__version__}",
            stale_since=feed.stale_since,
        )
        return responses.json_response(session)

    async def _sign_in(self, request: Request) -> Response:
        given = parameters.of_body(own_paths.SignIn, await _body_of(request))
        address = request.client.host if request.client is not None else ""
        user = await self._authentication.sign_in(given.token, address)
        response = responses.json_response(own_paths.SignedIn(user.name))
        response.headers["Set-Cookie"] = self._authentication.sessions.cookie(user)
        return response

    async def _sign_out(self, request: Request) -> Response:
        cookies = self._authentication.sessions
        if session := _user(request).session:
            cookies.end(session)
        headers = {"Set-Cookie": cookies.cleared_cookie(), "Cache-Control": "no-store"}
        return Response(status_code=204, headers=headers)

    async def _stream(self, request: Request) -> Response:
        user = _user(request)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        mine = self._streams.get(user.key, 0)
        if mine >= self.settings.most_streams_of_user:
            raise problems.too_many(5.0)
        if sum(self._streams.values()) >= self.settings.most_streams:
            raise problems.unavailable("too many open streams", retry_after=5.0)
        return _StreamResponse(self, user.key, request.headers.get("last-event-id", ""))

    def stream_opened(self, key: str) -> None:
        """Counts an open stream."""
        self._streams[key] = self._streams.get(key, 0) + 1

    def stream_closed(self, key: str) -> None:
        """One stream fewer."""
        left = self._streams.get(key, 0) - 1
        if left > 0:
            self._streams[key] = left
        else:
            self._streams.pop(key, None)

    # Writes

    def _can_write(self, user: identities.User) -> bool:
        is_live = isinstance(self.source, live_source.LiveSource)
        return self.settings.allow_writes and is_live and (user.how == "link" or bool(user.token))

    async def _fix(self, request: Request) -> Response:
        writer = self._writer(request)
        return responses.json_response(await writer.fix(await _body_of(request)))

    async def _submit(self, request: Request) -> Response:
        writer = self._writer(request)
        given = parameters.of_body(writing.Work, await _body_of(request))
        return responses.json_response(await writer.submit(given), status=201)

    def _writer(self, request: Request) -> writing.Writer:
        user = _user(request)
        source = self.source
        if not self.settings.allow_writes:
            raise problems.forbidden(
                "this dashboard changes nothing", next_step="start it with --allow-writes"
            )
        if not isinstance(source, live_source.LiveSource) or source.choice is None:
            raise problems.forbidden("a snapshot cannot be changed")
        if not self._can_write(user):
            raise problems.forbidden("changes need your own token: sign in with it")
        return writing.Writer(source.choice.connection, user)

    # Other paths

    async def _show_health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})

    async def _show_readiness(self, request: Request) -> Response:
        is_ready = self.source.capture() is not None
        text = "ok\n" if is_ready else f"not ready: {self.source.trouble()}\n"
        headers = {"Cache-Control": "no-store"}
        return PlainTextResponse(text, status_code=200 if is_ready else 503, headers=headers)

    async def _show_description(self, request: Request) -> Response:
        tag = f'W/"{dovetail.__version__}-{self.source.feed.boot}"'
        if responses.has_tag(request.headers.get("if-none-match", ""), tag):
            return responses.unchanged(tag)
        return responses.sent(self._description, tag, request.headers.get("accept-encoding", ""))

    async def _no_such_path(self, request: Request) -> Response:
        """A path below /api that none of the routes takes, or not with this method."""
        methods: set[str] = set()
        for route in self._api_routes:
            if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL:
                methods |= route.methods or set()
        if not methods:
            raise problems.not_found(
                f"there is no {request.url.path}", next_step="see /openapi.json for what there is"
            )
        allowed = ", ".join(sorted(methods))
        response = responses.refused(
            problems.wrong_method(f"{request.method} is not for this path; {allowed} is")
        )
        response.headers["Allow"] = allowed
        return response

    async def _show_page(self, request: Request) -> Response:
        return self._pages.response(
            request.path_params["path"],
            accept_encoding=request.headers.get("accept-encoding", ""),
            if_none_match=request.headers.get("if-none-match", ""),
        )

    def _described(self) -> dict[str, Any]:
        return openapi.document(self._endpoints, own_paths.operations())


class _StreamResponse(Response):
    """An event stream that is counted while it is open."""

    def __init__(self, dashboard: Dashboard, key: str, last_event_id: str) -> None:
        super().__init__()
        self._dashboard = dashboard
        self._key = key
        self._stream = event_stream.EventStream(
            dashboard.source.feed,
            cluster=dashboard.source.name,
            last_event_id=last_event_id,
            longest_seconds=dashboard.settings.longest_stream_seconds,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._dashboard.stream_opened(self._key)
        try:
            await self._stream(scope, receive, send)
        finally:
            self._dashboard.stream_closed(self._key)


_ALL_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _body(
    endpoint: endpoints.Endpoint,
    frame: frames.Frame,
    question: asked.Asked,
    params: Any,
    paging: parameters.PageParams,
    *,
    path: str,
) -> responses.Body:
    """Answers, on the worker thread."""
    result = endpoint.answer(question, params)
    if not endpoint.is_list:
        return responses.Body(responses.encoded(result), responses.JSON, {})
    query = f"{path} {msgspec.json.encode(params).decode()}"
    cut = pages.cut(result.items, paging, item=endpoint.item, query=query)
    if paging.format == "csv":
        name = endpoint.path.strip("/").replace("/", "-")
        headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        if cut.next is not None:
            headers["Dovetail-Next"] = cut.next
        content = csv_rows.written(cut.items, endpoint.item)
        return responses.Body(content, csv_rows.MEDIA_TYPE, headers)
    page = pages.page_of(cut, as_of=frame.as_of, version=frame.version)
    return responses.Body(responses.encoded(page), responses.JSON, {})


async def _body_of(request: Request) -> bytes:
    """The body, up to a size and a time."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MOST_BODY_BYTES:
                    raise problems.too_large(f"a body may have {MOST_BODY_BYTES} bytes at most")
                chunks.append(chunk)
    except TimeoutError:
        raise problems.bad_request(f"the body did not come within {BODY_SECONDS:.0f} s") from None
    return b"".join(chunks)


def _user(request: Request) -> identities.User:
    user = request.scope[request_gate.USER]
    assert isinstance(user, identities.User)
    return user


async def _on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, problems.Refusal)
    return responses.refused(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = responses.refused(
            problems.wrong_method(f"{request.method} is not for this path")
        )
        if error.headers:
            response.headers.update(error.headers)
        return response
    return responses.refused(problems.not_found(f"there is no {request.url.path}"))


async def _on_known_error(request: Request, error: Exception) -> Response:
    if isinstance(error, errors.InputError):
        return responses.refused(problems.bad_request(str(error)))
    LOG.warning("dashboard.answer.failed", extra={"path": request.url.path, "why": str(error)})
    return responses.refused(problems.unavailable(str(error)))


async def _on_defect(request: Request, error: Exception) -> Response:
    LOG.error("dashboard.defect", extra={"path": request.url.path}, exc_info=error)
    return responses.refused(problems.defect())
