"""What loops ask of an API server. Documents are JSON; failures are those of `ports.failures`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dovetail.model.kinds import Kind


class Target(NamedTuple):
    """One object on the server; a collection where there is no name."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        return f"{self.kind.plural} {place}"


class Api(Protocol):
    """Reading and writing single objects. `brief` answers carry metadata only, which is cheaper for the server."""

    async def get(self, target: Target) -> bytes:
        """The document."""
        ...

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts a document to a collection or a subresource; what was stored."""
        ...

    async def patch(self, target: Target, patch: bytes, *, brief: bool = False, adds: bool = False) -> bytes:
        """A JSON merge patch. With metadata.resourceVersion inside, Conflict if somebody wrote first.

        `adds` says that it only adds: then it may be sent as a strategic merge patch, which costs the server less.
        """
        ...

    async def protect(self, target: Target, finalizer: str, *, uid: str, resource_version: str) -> bytes:
        """Adds a finalizer without touching anything else, not even by a letter; its metadata then.

        For objects whose spec does not survive a patch. Conflict where the object is not this one at this version.
        """
        ...

    async def delete(self, target: Target, *, uid: str = "", resource_version: str = "") -> None:
        """Deletes, only if the uid and version are still these where given."""
        ...

    async def evict(
        self, target: Target, *, uid: str, grace_seconds: int | None = None, is_rehearsal: bool = False
    ) -> None:
        """Asks for a pod to end, its own grace unless another is given; a rehearsal only asks whether it could.

        Protected where a disruption budget says no, Conflict where the pod of that name is another one by now.
        """
        ...
