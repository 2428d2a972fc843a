"""Authenticates and authorises requests to our own endpoints, by reviews of the API server.

Given an API without a fence, a clock and a token from a request. A permission is cached for ten seconds, a refusal is
not: a right that was just granted works at once. Never stores a token, only its digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final, TypeVar

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures

REMEMBERED_SECONDS: Final = 10.0
MAX_REMEMBERED: Final = 256
AT_ONCE: Final = 4  # a flood of bad tokens must not crowd out our own requests

TOKEN_REVIEW: Final = registry.Kind(
    "authentication.k8s.io/v1",
    "TokenReview",
    "tokenreviews",
    is_namespaced=False,
    struct=codec.Generic,
)
ACCESS_REVIEW: Final = registry.Kind(
    "authorization.k8s.io/v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    is_namespaced=False,
    struct=codec.Generic,
)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _TokenAnswer(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessAnswer(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_T = TypeVar("_T", bound=msgspec.Struct)


class Reviews:
    """TokenReview and SubjectAccessReview, for non-resource paths."""

    def __init__(self, api: apis.Api, clock: clocks.Clock) -> None:
        self._api = api
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._until: dict[tuple[bytes, str, str], float] = {}

    async def authorise(self, token: str, path: str, verb: str) -> bool:
        """Whether the token's owner may do that. Raises ApiFailure if the server does not answer."""
        key = (hashlib.sha256(token.encode()).digest(), path, verb)
        if self._until.get(key, 0.0) > self._clock.monotonic():
            return True
        async with self._slots:
            asked_at = self._clock.monotonic()
            user = await self._owner(token)
            if user is None or not await self._may(user, path=path, verb=verb):
                self._until.pop(key, None)
                return False
        self._remember(key, asked_at + REMEMBERED_SECONDS)
        return True

    async def _owner(self, token: str) -> _User | None:
        status = (await self._ask(TOKEN_REVIEW, {"token": token}, _TokenAnswer)).status
        return status.user if status.authenticated else None

    async def _may(self, user: _User, *, path: str, verb: str) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        status = (await self._ask(ACCESS_REVIEW, spec, _AccessAnswer)).status
        return status.allowed and not status.denied

    async def _ask(self, kind: registry.Kind, spec: dict[str, Any], answer: type[_T]) -> _T:
        document = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        body = await self._api.create(apis.Target(kind), msgspec.json.encode(document))
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.MsgspecError as error:
            raise failures.Unavailable(f"{kind.name}: unreadable answer: {error}") from None

    def _remember(self, key: tuple[bytes, str, str], until: float) -> None:
        if len(self._until) >= MAX_REMEMBERED:
            now = self._clock.monotonic()
            self._until = {
                token_digest: end for token_digest, end in self._until.items() if end > now
            }
        if len(self._until) < MAX_REMEMBERED:
            self._until[key] = until
