"""The names of objects in a cluster, for messages about one that is not there.

Given a connection. Only reads, and only after a name was not found; a list that may not be read has no names.
"""

from __future__ import annotations

from dovetail import errors
from dovetail.kube import object_requests
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.tables import missing_names


async def not_found(
    over: transport.Transport, kind: registry.Kind, namespace: str, name: str
) -> str:
    """The sentence about an object that does not exist."""
    known = await names(over, kind)
    return missing_names.sentence(kind.plural, name, namespace or None, known)


async def names(over: transport.Transport, kind: registry.Kind) -> set[missing_names.Name]:
    """Namespace and name of every object of a kind."""
    try:
        trees = await object_requests.listed(over, kind)
    except errors.DovetailError:
        return set()
    heads = [tree["metadata"] for tree in trees]
    return {(str(head.get("namespace") or ""), str(head["name"])) for head in heads}
