"""Finds the user of a request: by a trusted proxy's header, a bearer token, or a session cookie.

Given the means that are configured; a means that is not is not looked at. Failed attempts are limited per address. A
session that began with a bearer token of the cluster has it reviewed again and again: it ends when the token does.
Never says why a credential was not accepted.
"""

from __future__ import annotations

import http.cookies
from typing import NamedTuple

from dovetail.ports import failures
from dovetail.web import problems
from dovetail.web.security import (
    identities,
    link_tokens,
    rate_limit,
    reviews,
    sessions,
    trusted_proxy,
)


class Authenticated(NamedTuple):
    """A user, and whether a browser adds what identifies them by itself."""

    user: identities.User
    has_ambient_credentials: bool


class Authentication:
    """The configured means."""

    def __init__(
        self,
        *,
        sessions_: sessions.Sessions,
        strangers: rate_limit.RateLimit,
        link: link_tokens.LinkTokens | None = None,
        link_user: str = "",
        reviews_: reviews.Reviews | None = None,
        proxy: trusted_proxy.TrustedProxy | None = None,
    ) -> None:
        self.sessions = sessions_
        self._strangers = strangers
        self._link = link
        self._link_user = link_user
        self._reviews = reviews_
        self._proxy = proxy

    async def user_of(self, headers: trusted_proxy.RawHeaders, address: str) -> Authenticated:
        """The user. Raises the refusal 401 if there is none, 429 if the address tried too often."""
        if self._proxy is not None and (user := self._proxy.user_of(headers, address)):
            return Authenticated(user, True)
        if token := bearer(headers):
            user = await self._of_token(token, address)
            if user is None:
                raise self._stranger(address, "the bearer token is not accepted")
            return Authenticated(user, False)
        cookie = _cookie(headers, self.sessions.cookie_name)
        if cookie:
            user = await self._of_cookie(cookie, address)
            if user is None:
                raise self._stranger(address, "the session has ended")
            return Authenticated(user, True)
        raise problems.unauthenticated("no session and no bearer token", next_step=self._next_step)

    async def sign_in(self, token: str, address: str) -> identities.User:
        """The user of a token that was typed, or came with a link."""
        if self._link is not None and self._link.redeem(token):
            return self._owner
        user = await self._of_token(token, address)
        if user is None:
            raise self._stranger(address, "the token is not accepted; links work once")
        return user

    async def _of_token(self, token: str, address: str) -> identities.User | None:
        if self._link is not None and self._link.is_access_token(token):
            return self._owner
        if self._reviews is None:
            return None
        if known := self._reviews.known(token):
            return known
        if self._strangers.is_empty(address):
            raise problems.too_many(1.0)
        try:
            return await self._reviews.user_of(token)
        except failures.ApiFailure:
            raise problems.unavailable("tokens cannot be checked now", retry_after=2.0) from None

    async def _of_cookie(self, cookie: str, address: str) -> identities.User | None:
        session = self.sessions.opened(cookie)
        if session is None:
            return None
        if session.how == "link":
            return session if self._link is not None else None
        user = await self._of_token(session.token, address)
        if user is None:
            return None
        return identities.User(
            name=user.name,
            how=user.how,
            uid=user.uid,
            groups=user.groups,
            extra=user.extra,
            token=user.token,
            session=session.session,
        )

    @property
    def _owner(self) -> identities.User:
        return identities.User(name=self._link_user, how="link")

    @property
    def _next_step(self) -> str:
        if self._link is not None:
            return "open the link that `dovetail dashboard` prints"
        if self._reviews is not None:
            return "sign in with a token: kubectl create token NAME"
        return "come through the proxy that signs users in"

    def _stranger(self, address: str, detail: str) -> problems.Refusal:
        seconds = self._strangers.wait_seconds(address)
        if seconds:
            return problems.too_many(seconds)
        return problems.unauthenticated(detail, next_step=self._next_step)


def bearer(headers: trusted_proxy.RawHeaders) -> str:
    """The token of the Authorization header; empty if there is none."""
    values = [value for key, value in headers if key == b"authorization"]
    if len(values) != 1:
        return ""
    scheme, _, token = values[0].decode("utf-8", "replace").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: trusted_proxy.RawHeaders, name: str) -> str:
    for key, value in headers:
        if key != b"cookie":
            continue
        try:
            morsel = http.cookies.SimpleCookie(value.decode("latin-1")).get(name)
        except http.cookies.CookieError:
            continue
        if morsel is not None:
            return morsel.value
    return ""
