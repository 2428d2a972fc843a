"""Reads the paths of Kubernetes' REST API: which group and version, namespace, kind, object and subresource.

Given the decoded segments of a path; returns an address or None where the path is none of an API object. Knows no
kinds: whether something is served at an address is decided elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NAMESPACES: Final = "namespaces"
# Below a namespace's own path these are its subresources, everything else is a kind in it.
_OF_NAMESPACE: Final = frozenset({"status", "finalize"})


class Address(NamedTuple):
    """The place a path names; without a plural the group and version itself."""

    api_version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]


def parsed(segments: list[str]) -> Address | None:
    """The address of a path below /api or /apis."""
    if segments[:2] == ["api", "v1"]:
        return _below("v1", segments[2:])
    if segments[:1] == ["apis"] and len(segments) >= 3:
        return _below(f"{segments[1]}/{segments[2]}", segments[3:])
    return None


def _below(api_version: str, rest: list[str]) -> Address | None:
    if not all(rest):
        return None
    if rest[:1] == [NAMESPACES] and len(rest) >= 3 and not _is_of_namespace(rest):
        _, namespace, *rest = rest
        return _object(api_version, rest, namespace)
    return _object(api_version, rest, "")


def _is_of_namespace(rest: list[str]) -> bool:
    return len(rest) == 3 and rest[2] in _OF_NAMESPACE


def _object(api_version: str, rest: list[str], namespace: str) -> Address | None:
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", "", ""][:3]
    return Address(api_version, plural, namespace, name, subresource)
