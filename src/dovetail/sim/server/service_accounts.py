"""The service account controller, in memory: every namespace has the account `default`.

Given the object store and the names of namespaces in which something changed. Never creates a token, never touches
another account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.kubetypes import registry
from dovetail.sim.server import builtin_kinds
from dovetail.sim.server.object_store import ObjectStore

NAME: Final = "default"


def ensure(shelf: ObjectStore, namespaces: Iterable[str]) -> None:
    """Creates the account where it is missing and the namespace is not about to end."""
    for namespace in sorted(namespaces):
        record = shelf.find(registry.NAMESPACE, ("", namespace))
        if record is None or record.metadata.deletion_timestamp is not None:
            continue
        if shelf.find(builtin_kinds.SERVICE_ACCOUNT, (namespace, NAME)) is None:
            account = {
                "apiVersion": builtin_kinds.SERVICE_ACCOUNT.api_version,
                "kind": builtin_kinds.SERVICE_ACCOUNT.name,
                "metadata": {"name": NAME, "namespace": namespace},
            }
            shelf.put(builtin_kinds.SERVICE_ACCOUNT, account)
