"""Finds the kind that a word of the command line or a document means, among those a server serves.

Given a transport; reads the server's aggregated discovery (two requests), or the plain one where that is not offered. A
word may be a plural, a singular, a kind, a short name, or one of these with its group. Never reads objects.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.kube import server_side_apply
from dovetail.kube.http import status_errors, transport
from dovetail.kubetypes import codec, registry
from dovetail.ports import failures

_AGGREGATED: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)
_API_VERSION: Final = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9-]{1,63}")
_ROOTS: Final = ("/api", "/apis")
_BY_TYPE: Final = {(kind.api_version, kind.name): kind for kind in registry.ALL}


class Resource(NamedTuple):
    """A kind of objects as the server names it."""

    kind: registry.Kind
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.kind.api_version.rpartition("/")[0]

    @property
    def label(self) -> str:
        """How kubectl writes it before a name: `pod`, `job.batch`."""
        word = self.kind.name.lower()
        return f"{word}.{self.group}" if self.group else word

    @property
    def words(self) -> tuple[str, ...]:
        """Everything that means this kind, in lower case."""
        plain = (self.kind.plural, self.singular, self.kind.name.lower(), *self.short_names)
        return tuple(word.lower() for word in plain if word)


class Resources:
    """All kinds of one server, the preferred version of each first."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._all = tuple(resources)
        self._by_word: dict[str, Resource] = {}
        for resource in self._all:
            for word in resource.words:
                self._by_word.setdefault(word, resource)
                self._by_word.setdefault(f"{word}.{resource.group}", resource)
        self._by_type = {
            (resource.kind.api_version, resource.kind.name): resource for resource in self._all
        }

    def all(self) -> tuple[Resource, ...]:
        """Every kind, in the order of the server."""
        return self._all

    def of_word(self, word: str) -> Resource | None:
        """The kind that a word of the command line means."""
        return self._by_word.get(word.lower())

    def of_type(self, api_version: str, kind: str) -> Resource | None:
        """The kind of a document."""
        return self._by_type.get((api_version, kind))

    def versions_of(self, group: str, kind: str) -> list[str]:
        """The API versions in which a kind of a group is served, the preferred one first."""
        named = [each for each in self._all if each.kind.name == kind and each.group == group]
        return [each.kind.api_version for each in named]

    def has_group(self, group: str) -> bool:
        """Whether anything of a group is served."""
        return any(each.group == group for each in self._all)

    def near(self, word: str) -> str:
        """The word that was probably meant; empty if none is near."""
        near = difflib.get_close_matches(word.lower(), self._by_word, n=1)
        return near[0] if near else ""

    def near_kind(self, kind: str, group: str) -> str:
        """The kind of the group that was probably meant; empty if none is near."""
        kinds = {each.kind.name for each in self._all if each.group == group}
        near = difflib.get_close_matches(kind, sorted(kinds), n=1)
        return near[0] if near else ""


class _Names(msgspec.Struct, frozen=True):
    kind: str = ""


class _ResourceEntry(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    response_kind: _Names = _Names()
    scope: str = ""
    singular_resource: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: tuple[_ResourceEntry, ...] = ()


class _Group(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = {}
    versions: tuple[_Version, ...] = ()


class _Discovery(msgspec.Struct, frozen=True):
    kind: str = ""
    items: tuple[_Group, ...] = ()


async def discover(over: transport.Transport) -> Resources:
    """All kinds that the server serves. Raises ApiFailure if it does not answer."""
    resources: list[Resource] = []
    for root in _ROOTS:
        answer = await over.request("GET", root, accept=_AGGREGATED)
        if not answer.is_success:
            raise status_errors.failure_of(
                answer.status, answer.body, headers=answer.headers, doing=f"get {root}"
            )
        for group in _decoded(answer.body).items:
            resources += _of_group(group)
    return Resources(resources)


async def served_types(over: transport.Transport, api_versions: Sequence[str]) -> Resources:
    """The kinds of a few API versions only: one request each, for commands that know what they look for."""
    kinds: list[registry.Kind] = []
    for api_version in dict.fromkeys(api_versions):
        if _API_VERSION.fullmatch(api_version):  # no server serves another
            kinds += await server_side_apply.served(over, api_version)
    return Resources(Resource(_known(kind)) for kind in kinds)


def _decoded(body: bytes) -> _Discovery:
    try:
        return msgspec.json.decode(body, type=_Discovery)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise failures.Refused(
            "the answer is not Kubernetes'; is the address that of an API server?"
        ) from None


def _of_group(group: _Group) -> list[Resource]:
    """The kinds of a group; of a kind in several versions the preferred one comes first."""
    name = str(group.metadata.get("name") or "")
    resources = []
    for version in group.versions:
        api_version = f"{name}/{version.version}" if name else version.version
        for entry in version.resources:
            kind = registry.Kind(
                api_version,
                entry.response_kind.kind,
                entry.resource,
                entry.scope == "Namespaced",
                codec.Generic,
            )
            resources.append(
                Resource(_known(kind), entry.singular_resource, entry.short_names, entry.verbs)
            )
    return resources


def _known(kind: registry.Kind) -> registry.Kind:
    """The kind with its struct, where the registry has one."""
    return _BY_TYPE.get((kind.api_version, kind.name), kind)
