"""Asks the API server who a token belongs to and what a user may list: TokenReview and SubjectAccessReview.

Given a transport with the dashboard's own identity. A positive answer is kept for a short time, by a digest of the
token; a negative one about a token never is. Bounded in number, so that a flood of bad tokens does not crowd out the
dashboard's own requests. Never keeps a token.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.kube.auth import access_reviews
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import registry
from dovetail.ports import api, failures
from dovetail.web import asked
from dovetail.web.security import identities

KEPT_SECONDS: Final = 30.0
MOST_KEPT: Final = 100_000  # namespaces times users
AT_ONCE: Final = 16

# Kinds without namespaces that answers show, by plural.
CLUSTER_KINDS: Final = tuple(kind for kind in registry.ALL if not kind.is_namespaced)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVar("A", bound=msgspec.Struct)


class _Reviewed(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _Reviewed = _Reviewed()


class _TokenAnswer(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessAnswer(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _List(NamedTuple):
    """What a user may list or not."""

    group: str
    plural: str
    namespace: str = ""


_CLAIMS: Final = _List(registry.CLAIM.group, registry.CLAIM.plural)


class _Right(NamedTuple):
    list: _List
    is_allowed: bool
    asked_at: float


class Reviews:
    """The answers of one API server."""

    def __init__(
        self,
        over: Callable[[], transport.Transport],
        monotonic: Callable[[], float],
        *,
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        self._over = over
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._users: _Kept[bytes, identities.User] = _Kept(monotonic, kept_seconds)
        self._rights: _Kept[tuple[str, _List], _Right] = _Kept(monotonic, kept_seconds)
        self._visible: _Kept[tuple[str, frozenset[str]], asked.Visibility] = _Kept(
            monotonic, kept_seconds
        )
        self._asking: dict[tuple[str, frozenset[str]], asyncio.Task[asked.Visibility]] = {}
        self._monotonic = monotonic

    def known(self, token: str) -> identities.User | None:
        """The user of a token that was reviewed a short time ago."""
        user = self._users.get(_digest(token))
        return msgspec.structs.replace(user, token=token) if user is not None else None

    async def user_of(self, token: str) -> identities.User | None:
        """The user of a token; None if the API server does not accept it. Raises ApiFailure if it does not answer."""
        if user := self.known(token):
            return user
        asked_at = self._monotonic()
        answer = await self._ask(access_reviews.TOKEN_REVIEW, {"token": token}, _TokenAnswer)
        reviewed = answer.status.user
        if not answer.status.authenticated or not reviewed.username:
            return None
        user = identities.User(
            name=reviewed.username,
            how="token",
            uid=reviewed.uid,
            groups=reviewed.groups,
            extra=tuple(sorted(reviewed.extra.items())),
        )
        self._users.put(_digest(token), user, asked_at)
        return msgspec.structs.replace(user, token=token)

    async def visibility(
        self, user: identities.User, namespaces: frozenset[str]
    ) -> asked.Visibility:
        """What the user may list: pods and claims everywhere or in which namespaces, and kinds without namespaces."""
        key = (user.key, namespaces)
        kept = self._visible.get(key)
        if kept is not None:
            return kept
        asking = self._asking.get(key)
        if asking is None:  # many requests of one page come together
            asking = asyncio.create_task(self._reviewed(user, namespaces))
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _reviewed(
        self, user: identities.User, namespaces: frozenset[str]
    ) -> asked.Visibility:
        lists = [_List(kind.group, kind.plural) for kind in CLUSTER_KINDS]
        everywhere = [_List("", "pods"), _CLAIMS, *lists]
        all_pods, all_claims, *rights = await self._rights_to(user, everywhere)
        plurals = [right.list.plural for right in rights if right.is_allowed]
        visible: list[str] = []
        if not all_pods.is_allowed:
            pods = [_List("", "pods", namespace) for namespace in sorted(namespaces)]
            of_namespaces = await self._rights_to(user, pods)
            visible = [right.list.namespace for right in of_namespaces if right.is_allowed]
            rights += of_namespaces
        claims: list[_Right] = []
        if (
            not all_claims.is_allowed
        ):  # asked of namespaces whose pods are seen: others show nothing
            places = sorted(namespaces) if all_pods.is_allowed else visible
            claims = await self._rights_to(user, [_CLAIMS._replace(namespace=at) for at in places])
            rights += claims
        with_claims = frozenset(right.list.namespace for right in claims if right.is_allowed)
        visibility = asked.Visibility(
            sees_all=all_pods.is_allowed,
            namespaces=frozenset(visible),
            cluster_kinds=frozenset(plurals),
            claim_namespaces=None if all_claims.is_allowed else with_claims,
        )
        # As good as the oldest of its parts.
        asked_at = min(right.asked_at for right in (all_pods, all_claims, *rights))
        self._visible.put((user.key, namespaces), visibility, asked_at)
        return visibility

    async def _rights_to(self, user: identities.User, lists: Sequence[_List]) -> list[_Right]:
        return list(await asyncio.gather(*(self._right_to(user, each) for each in lists)))

    async def _right_to(self, user: identities.User, list_: _List) -> _Right:
        key = (user.key, list_)
        kept = self._rights.get(key)
        if kept is not None:
            return kept
        asked_at = self._monotonic()
        attributes = {
            "verb": "list",
            "group": list_.group,
            "resource": list_.plural,
            "namespace": list_.namespace,
        }
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "resourceAttributes": attributes,
        }
        status = (await self._ask(access_reviews.ACCESS_REVIEW, spec, _AccessAnswer)).status
        right = _Right(list_, status.allowed and not status.denied, asked_at)
        self._rights.put(key, right, asked_at)
        return right

    async def _ask(self, kind: registry.Kind, spec: dict[str, Any], answer: type[A]) -> A:
        document = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        async with self._slots:
            response = await self._over().request(
                "POST", paths.of(api.Target(kind)), body=msgspec.json.encode(document)
            )
        if not response.is_success:
            raise status_errors.failure_of(
                response.status,
                response.body,
                headers=response.headers,
                doing=f"create {kind.plural}",
            )
        try:
            return msgspec.json.decode(response.body, type=answer)
        except msgspec.MsgspecError as error:
            raise failures.Unavailable(f"{kind.name}: unreadable answer: {error}") from None


class _Kept(Generic[K, V]):
    """Values for a short time."""

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._values: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        known = self._values.get(key)
        if known is None or known[0] <= self._monotonic():
            return None
        return known[1]

    def put(self, key: K, value: V, asked_at: float) -> None:
        if len(self._values) >= MOST_KEPT:
            now = self._monotonic()
            self._values = {key: kept for key, kept in self._values.items() if kept[0] > now}
        if len(self._values) < MOST_KEPT:
            self._values[key] = (asked_at + self._seconds, value)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
