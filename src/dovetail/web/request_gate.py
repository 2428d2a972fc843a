"""What every request passes before anything is looked at: host, site, user, rate; and the line in the audit log.

An ASGI application around another one. Pages and their files are open to all: they hold nothing of the cluster. Paths
below /api and /allocation need a user, whom the inner application finds in the scope. Every refusal is a problem
document, every response has the same headers. Never reads a body.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dovetail.web import problems
from dovetail.web.security import (
    audit_log,
    authentication,
    identities,
    rate_limit,
    request_checks,
    response_headers,
)
from dovetail.web.wire import responses

NEED_A_USER: Final = ("/api/", "/allocation/")  # paths that show something of the cluster
ALLOCATION: Final = "/allocation"
SIGN_IN: Final = "/api/v1/session"
HEALTH: Final = frozenset(
    {"/healthz", "/readyz"}
)  # asked for by the kubelet, under the pod's address
USER: Final = "dovetail.user"  # in the scope
STREAM_COST: Final = 1.0


class RequestGate:
    """Wraps the application."""

    def __init__(
        self,
        inner: ASGIApp,
        *,
        authentication_: authentication.Authentication,
        users: rate_limit.RateLimit,
        hosts: frozenset[str],
        is_secure: bool,
    ) -> None:
        self._inner = inner
        self._authentication = authentication_
        self._users = users
        self._hosts = hosts
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks one request and passes it on, or refuses it."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        answering = _Answering(scope, send, is_secure=self._is_secure)
        try:
            answering.user = await self._checked(scope)
            scope[USER] = answering.user
        except problems.Refusal as refusal:
            await responses.refused(refusal)(scope, receive, answering.send)
            return
        await self._inner(scope, receive, answering.send)

    async def _checked(self, scope: Scope) -> identities.User | None:
        """The user; None where the path needs none. Raises a refusal."""
        path, method = str(scope["path"]), str(scope["method"])
        if path in HEALTH:
            return None
        headers = HTTPConnection(scope).headers
        listens_on = (scope.get("server") or ("",))[0]
        request_checks.check_host(headers.get("host", ""), listens_on=listens_on, hosts=self._hosts)
        if not _needs_user(path):
            if method not in request_checks.SAFE_METHODS:
                raise problems.wrong_method(f"{method} is not for pages")
            return None
        if path == SIGN_IN and method == "POST":
            request_checks.check_site(method, headers, has_ambient_credentials=False)
            return None
        return await self._user(scope, method, headers)

    async def _user(self, scope: Scope, method: str, headers: Mapping[str, str]) -> identities.User:
        address = (scope.get("client") or ("",))[0]
        user, has_ambient_credentials = await self._authentication.user_of(
            scope["headers"], address
        )
        request_checks.check_site(method, headers, has_ambient_credentials=has_ambient_credentials)
        if seconds := self._users.wait_seconds(user.key):
            raise problems.too_many(seconds)
        return user


def _needs_user(path: str) -> bool:
    """Whether the path shows something of the cluster; pages and their files hold nothing of it."""
    return path == ALLOCATION or path.startswith(NEED_A_USER)


class _Answering:
    """Adds the headers to a response, and notes the request when its status is known."""

    def __init__(self, scope: Scope, send: Send, *, is_secure: bool) -> None:
        self.user: identities.User | None = None
        self._scope = scope
        self._send = send
        self._is_secure = is_secure
        self._began = time.monotonic()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = dict(message) | {"headers": self._headers(message)}
            self._note(int(message["status"]))
        await self._send(message)

    def _headers(self, message: Message) -> list[tuple[bytes, bytes]]:
        headers: list[tuple[bytes, bytes]] = [
            *message.get("headers", ()),
            *response_headers.HEADERS,
        ]
        if self._is_secure:
            headers.append(response_headers.TRANSPORT_SECURITY)
        return headers

    def _note(self, status: int) -> None:
        scope: Any = self._scope
        if not _needs_user(scope["path"]) and status < 400:
            return  # pages and probes
        audit_log.note(
            self.user,
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode("latin-1"),
            status=status,
            address=(scope.get("client") or ("",))[0],
            seconds=time.monotonic() - self._began,
        )
