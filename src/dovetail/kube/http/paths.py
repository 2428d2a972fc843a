"""The URL paths of collections, objects and subresources on an API server."""

from __future__ import annotations

import urllib.parse

from dovetail.kubetypes import registry
from dovetail.ports import api


def collection(kind: registry.Kind, namespace: str = "") -> str:
    """All objects of a kind, or those of one namespace."""
    root = "/api" if kind.is_core else "/apis"
    place = f"/namespaces/{_quoted(namespace)}" if namespace else ""
    return f"{root}/{kind.api_version}{place}/{kind.plural}"


def of(target: api.Target) -> str:
    """The target, with its subresource."""
    path = collection(target.kind, target.namespace)
    for part in (target.name, target.subresource):
        if part:
            path = f"{path}/{_quoted(part)}"
    return path


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")
