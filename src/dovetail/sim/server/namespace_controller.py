"""The namespace controller, in memory: empties a namespace that is being deleted, then lets it go.

Given the object store; looks only at namespaces that were deleted. Never deletes a namespace by itself.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes import registry
from dovetail.sim.server.object_store import NAMESPACE_FINALIZER, Change, ObjectStore, Record
from dovetail.sim.server.served_kinds import table_key

_NAMESPACES: Final = table_key(registry.NAMESPACE)


class NamespaceController:
    """Empties the namespaces of one store."""

    def __init__(self, shelf: ObjectStore) -> None:
        self._shelf = shelf
        self._ending: set[str] = set()
        shelf.listen(self._note)
        for record in shelf.all(registry.NAMESPACE):
            self._note_namespace(record)

    def empty(self) -> None:
        """Deletes what is in ending namespaces; each goes with its last object."""
        for namespace in sorted(self._ending):
            self._empty(namespace)

    def _empty(self, namespace: str) -> None:
        is_empty = True
        for _, table in self._shelf.tables():
            for record in table.all(namespace):
                self._shelf.delete(table.kind, record.key)
            is_empty = is_empty and not table.all(namespace)
        if not is_empty:
            return

        self._ending.discard(namespace)
        stored = self._shelf.find(registry.NAMESPACE, ("", namespace))
        if stored is not None:
            tree = stored.tree
            finalizers = (tree.get("spec") or {}).get("finalizers", [])
            kept = [name for name in finalizers if name != NAMESPACE_FINALIZER]
            self._shelf.put(registry.NAMESPACE, tree | {"spec": {"finalizers": kept}})

    def _note(self, change: Change) -> None:
        if table_key(change.kind) == _NAMESPACES:
            self._note_namespace(change.record)

    def _note_namespace(self, record: Record) -> None:
        if record.metadata.deletion_timestamp is not None:
            self._ending.add(record.metadata.name)
