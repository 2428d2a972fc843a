"""Discovers an API server's version, and which kinds it serves.

Given a transport. Caches nothing: call it once at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from dovetail.kube.http import status_errors, transport
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import EMBEDDED_PLATFORM

S = TypeVar("S", bound=msgspec.Struct)


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """`git_version` is v1.37.0 and the like."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""

    @property
    def is_embedded(self) -> bool:
        """Whether this is the API server of `dovetail up`."""
        return self.platform == EMBEDDED_PLATFORM

    @property
    def number(self) -> tuple[int, int]:
        """(1, 37); vendors write 37+, and builds without a stamp write nothing."""
        return _digits(self.major), _digits(self.minor)


class _Resource(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


async def version(over: transport.Transport) -> Version:
    """The server's version."""
    return _read(await _got(over, "/version"), Version)


async def served(over: transport.Transport, api_version: str) -> frozenset[str]:
    """The plurals, and plural/subresource, that the server serves in a group and version; empty if it is absent."""
    root = "/api" if "/" not in api_version else "/apis"
    try:
        body = await _got(over, f"{root}/{api_version}")
    except failures.Missing:
        return frozenset()
    return frozenset(resource.name for resource in _read(body, _ResourceList).resources)


async def newest(
    over: transport.Transport, kind: registry.Kind, api_versions: Sequence[str] = ()
) -> registry.Kind | None:
    """The kind in its own version if that is served, else in the first other one that is; None if absent."""
    for api_version in (kind.api_version, *api_versions):
        if kind.plural in await served(over, api_version):
            return kind._replace(api_version=api_version)
    return None


async def present(
    over: transport.Transport,
    kinds: Sequence[registry.Kind],
    older: Mapping[registry.Kind, Sequence[str]],
) -> tuple[registry.Kind, ...]:
    """The kinds that are served, each in the first of its versions that is. Sends one request per version."""
    served_by_version: dict[str, frozenset[str]] = {}
    present_kinds = []
    for kind in kinds:
        for api_version in (kind.api_version, *older.get(kind, ())):
            if api_version not in served_by_version:
                served_by_version[api_version] = await served(over, api_version)
            if kind.plural in served_by_version[api_version]:
                present_kinds.append(kind._replace(api_version=api_version))
                break
    return tuple(present_kinds)


async def _got(over: transport.Transport, path: str) -> bytes:
    answer = await over.request("GET", path)
    if not answer.is_success:
        raise status_errors.failure_of(
            answer.status, answer.body, headers=answer.headers, doing=f"get {path}"
        )
    return answer.body


def _read(body: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise failures.Refused(
            "the answer is not Kubernetes'; is the address that of an API server?"
        ) from None


def _digits(text: str) -> int:
    digits = "".join(letter for letter in text if letter.isdigit())
    return int(digits) if digits else 0
