"""The operations the scheduler needs from an API server. Documents are JSON; errors are `ports.failures`."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from dovetail.kubetypes.registry import Kind

# The platform that the API server of `dovetail up` states in /version.
EMBEDDED_PLATFORM: Final = "dovetail/embedded"


class Target(NamedTuple):
    """One object on the server; a collection if it has no name."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        parts = (self.namespace, self.name, self.subresource)
        path = "/".join(part for part in parts if part)
        return f"{self.kind.plural} {path}"


class Api(Protocol):
    """Reads and writes single objects. `brief` responses carry metadata only, which is cheaper for the server."""

    async def get(self, target: Target) -> bytes:
        """The document."""
        ...

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts a document to a collection or a subresource; returns what was stored."""
        ...

    async def patch(
        self, target: Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        """A JSON merge patch. With metadata.resourceVersion in it, Conflict if the object has changed since.

        `adds` marks a patch that only adds: it may be sent as a strategic merge patch, which costs the server less.
        """
        ...

    async def protect(
        self, target: Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        """Adds a finalizer and changes nothing else, not one byte; returns the new metadata.

        For objects whose spec does not survive a patch. Conflict unless the object has this uid and version.
        """
        ...

    async def delete(self, target: Target, *, uid: str = "", resource_version: str = "") -> None:
        """Deletes the object; if a uid or version is given, only while it still has that."""
        ...

    async def evict(
        self,
        target: Target,
        *,
        uid: str,
        grace_seconds: int | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Evicts a pod, with its own grace period unless another is given; a rehearsal is a dry run.

        Protected where a disruption budget forbids it, Conflict where the pod of that name has another uid.
        """
        ...
