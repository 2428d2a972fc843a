"""Asks the API server who a token belongs to and what a user may list: TokenReview and SubjectAccessReview.

Given a transport with the dashboard's own identity. Every kind that has objects is reviewed by itself: everywhere
first, and in single namespaces where that is refused, as far as pods of the namespace are seen and it has such objects.
What was not reviewed stays hidden. A positive answer is kept for a short time, by a digest of the token; a negative one
about a token never is. Bounded in number, so that a flood of bad tokens does not crowd out the dashboard's requests.
Never keeps a token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.kube.auth import access_reviews
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import object_set, registry
from dovetail.ports import api, failures
from dovetail.web import asked
from dovetail.web.security import identities
from dovetail.web.source import watched_kinds

KEPT_SECONDS: Final = 30.0
MOST_KEPT: Final = 100_000  # namespaces times kinds times users
MOST_IN_NAMESPACES: Final = 4000  # reviews of kinds in single namespaces, for one user at a time
AT_ONCE: Final = 16

_KINDS: Final = {
    object_set.unique_kind(read.kind.api_version, read.kind.name): read.kind
    for read in watched_kinds.READS
}
_POD: Final = registry.POD.unique_name
# Refused by name where the right is missing, also while there are none.
_ALWAYS: Final = frozenset(
    {_POD, *(name for name, kind in _KINDS.items() if not kind.is_namespaced)}
)
# Kinds that kubectl shows by another group as well: either right is enough.
_OTHER_GROUPS: Final = {registry.EVENT.unique_name: ""}
_ALL: Final = "*"

Places = tuple[tuple[str, frozenset[str]], ...]  # kinds that have objects, and in which namespaces

LOG = logging.getLogger("dovetail.dashboard")

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
    """What a user may list or not: a kind by its unique name."""

    kind: str
    namespace: str = ""

    @property
    def resources(self) -> tuple[tuple[str, str], ...]:
        """Groups and plurals, of which one is enough."""
        if self.kind == _ALL:
            return ((_ALL, _ALL),)
        kind = _KINDS[self.kind]
        own = (kind.group, kind.plural)
        other = _OTHER_GROUPS.get(self.kind)
        return (own,) if other is None else (own, (other, kind.plural))


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
        self._visible: _Kept[tuple[str, Places], asked.Visibility] = _Kept(monotonic, kept_seconds)
        self._asking: dict[tuple[str, Places], asyncio.Task[asked.Visibility]] = {}
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

    async def visibility(self, user: identities.User, places: Places) -> asked.Visibility:
        """What the user may list of the kinds that have objects, where they have them."""
        key = (user.key, places)
        kept = self._visible.get(key)
        if kept is not None:
            return kept
        asking = self._asking.get(key)
        if asking is None:  # many requests of one page come together
            asking = asyncio.create_task(self._reviewed(user, places))
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _reviewed(self, user: identities.User, places: Places) -> asked.Visibility:
        everything = await self._right_to(user, _List(_ALL))
        if everything.is_allowed:  # administrators: one review instead of one for each kind
            self._visible.put((user.key, places), asked.EVERYTHING, everything.asked_at)
            return asked.EVERYTHING
        namespaces = {kind: where for kind, where in places if kind in _KINDS}
        kinds = sorted(namespaces.keys() | _ALWAYS)
        rights = await self._rights_to(user, [_List(kind) for kind in kinds])
        everywhere = {right.list.kind for right in rights if right.is_allowed}
        of_pods: list[_Right] = []
        if _POD not in everywhere:
            lists = [_List(_POD, namespace) for namespace in sorted(namespaces[_POD])]
            of_pods = await self._rights_to(user, lists)
        seen = {right.list.namespace for right in of_pods if right.is_allowed}
        if _POD in everywhere:
            seen = set(namespaces[_POD])
        # Of namespaces whose pods are not seen nothing is shown: no other kind is asked for there.
        more = [
            _List(kind, namespace)
            for kind in kinds
            if kind not in everywhere and _KINDS[kind].is_namespaced and kind != _POD
            for namespace in sorted(namespaces.get(kind, frozenset()) & seen)
        ]
        if len(more) > MOST_IN_NAMESPACES:
            LOG.warning("dashboard.rights.too_many", extra={"user": user.name, "lists": len(more)})
        of_namespaces = await self._rights_to(user, more[:MOST_IN_NAMESPACES])
        single = [right for right in (*of_pods, *of_namespaces) if right.is_allowed]
        visibility = asked.Visibility(
            everywhere=frozenset(everywhere),
            in_namespaces=frozenset((right.list.kind, right.list.namespace) for right in single),
        )
        # As good as the oldest of its parts.
        parts = (everything, *rights, *of_pods, *of_namespaces)
        asked_at = min(right.asked_at for right in parts)
        self._visible.put((user.key, places), visibility, asked_at)
        return visibility

    async def _rights_to(self, user: identities.User, lists: Sequence[_List]) -> list[_Right]:
        return list(await asyncio.gather(*(self._right_to(user, each) for each in lists)))

    async def _right_to(self, user: identities.User, list_: _List) -> _Right:
        key = (user.key, list_)
        kept = self._rights.get(key)
        if kept is not None:
            return kept
        asked_at = self._monotonic()
        is_allowed = False
        for group, plural in list_.resources:
            is_allowed = is_allowed or await self._may_list(user, group, plural, list_.namespace)
        right = _Right(list_, is_allowed, asked_at)
        self._rights.put(key, right, asked_at)
        return right

    async def _may_list(
        self, user: identities.User, group: str, plural: str, namespace: str
    ) -> bool:
        attributes = {
            "verb": "list",
            "group": group,
            "resource": plural,
            "namespace": namespace,
        }
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "resourceAttributes": attributes,
        }
        status = (await self._ask(access_reviews.ACCESS_REVIEW, spec, _AccessAnswer)).status
        return status.allowed and not status.denied

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
