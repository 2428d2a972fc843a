"""Names what a request to an API server is about, from its method, path and query: the classes faults are chosen by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

READS: Final = ("list", "watch", "get")
# what places a pod, and makes room for it
PLACING: Final = (
    "claim-create",
    "claim",
    "claim-status",
    "volume",
    "pod-status",
    "binding",
    "intent",
    "eviction",
)
WRITES: Final = (*PLACING, "rehearsal", "pod-delete", "event", "lease", "other-write")
CLASSES: Final = (*READS, *WRITES)

_BY_PATH: Final = {
    ("resourceclaims", "", "POST"): "claim-create",
    ("resourceclaims", "", "PATCH"): "claim",
    ("resourceclaims", "", "PUT"): "claim",
    ("resourceclaims", "status", "PATCH"): "claim-status",
    ("resourceclaims", "status", "PUT"): "claim-status",
    ("persistentvolumes", "", "PATCH"): "volume",
    ("persistentvolumeclaims", "", "PATCH"): "volume",
    ("pods", "binding", "POST"): "binding",
    ("pods", "status", "PATCH"): "pod-status",
    ("pods", "status", "PUT"): "pod-status",
    ("pods", "", "DELETE"): "pod-delete",
    ("pods", "eviction", "POST"): "eviction",
    ("intents", "", "POST"): "intent",
    ("intents", "", "DELETE"): "intent",
}


class Asked(NamedTuple):
    """One request."""

    what: str  # its class
    resource: str
    namespace: str
    name: str
    path: str

    @property
    def target(self) -> str:
        """For logs."""
        return (
            "/".join(part for part in (self.resource, self.namespace, self.name) if part)
            or self.path
        )

    @property
    def is_write(self) -> bool:
        """Whether it can change anything."""
        return self.what in WRITES


def read(method: str, path: str, query: Mapping[str, str]) -> Asked:
    """The class of a request and the object it names."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]  # after the version
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    if "dryRun" in query:
        return Asked("rehearsal", resource, namespace, name, path)
    what = _class(
        method,
        resource,
        name=name,
        subresource=subresource,
        is_watch=_is_true(query.get("watch", "")),
    )
    return Asked(what, resource, namespace, name, path)


def _class(method: str, resource: str, *, name: str, subresource: str, is_watch: bool) -> str:
    if method == "GET":
        return (
            "lease"
            if resource == "leases" and name
            else "watch"
            if is_watch
            else "get"
            if name
            else "list"
        )
    if resource in ("events", "leases"):
        return resource.removesuffix("s")
    return _BY_PATH.get((resource, subresource, method), "other-write")


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true")
