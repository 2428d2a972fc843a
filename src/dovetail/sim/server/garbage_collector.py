"""The garbage collector and the namespace controller, in memory: deletes what lost its owners or its namespace.

Given the object store; acts on objects that changed and on what depends on them. Foreground deletion and orphaning
follow the finalizers of the same names. Owners of kinds this server does not keep count as present. Never deletes an
object that has an owner left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.registry import Kind
from dovetail.sim.server import watchers
from dovetail.sim.server.object_store import NAMESPACE_FINALIZER, Change, ObjectStore, Record
from dovetail.sim.server.served_kinds import TableKey, table_key
from dovetail.world.events import ObjectKey

FOREGROUND: Final = "foregroundDeletion"  # meta/v1 FinalizerDeleteDependents
ORPHAN: Final = "orphan"  # meta/v1 FinalizerOrphanDependents
# Kinds of owners whose absence is noticed in every store.
COLLECTED: Final = frozenset(
    kind.name for kind in (registry.POD, registry.NODE, registry.CLAIM, registry.POD_GROUP)
)
_FIRST: Final = (
    registry.CLAIM,
    registry.SLICE,
    registry.LEASE,
    registry.POD,
    registry.VOLUME_CLAIM,
)
_ORDER: Final = {table_key(kind): number for number, kind in enumerate(_FIRST)}
_NAMESPACES: Final = table_key(registry.NAMESPACE)

IsKnownOwner = Callable[[str, str], bool]  # apiVersion and kind
Place = tuple[TableKey, ObjectKey]


def is_collected(api_version: str, kind: str) -> bool:
    """The kinds whose objects a simulation always holds all of."""
    return kind in COLLECTED


class GarbageCollector:
    """Collects in one store."""

    def __init__(self, shelf: ObjectStore, is_known_owner: IsKnownOwner) -> None:
        self._shelf = shelf
        self._is_known_owner = is_known_owner
        self._tables: dict[TableKey, Kind] = {}
        self._present: set[str] = set()  # uids
        self._dependents: dict[str, set[Place]] = {}  # by uid of the owner
        self._candidates: set[Place] = set()
        self._leaving: set[Place] = set()  # with a finalizer of this collector
        self._ending_namespaces: set[str] = set()
        shelf.listen(self._note)
        for key, table in shelf.tables():
            self._tables[key] = table.kind
            for record in table.all():
                self._note_object(key, record, None)

    def collect(self) -> None:
        """Deletes what lost its owners, and goes on with deletions that wait for other objects."""
        candidates = sorted(self._candidates, key=_order)
        self._candidates.clear()
        for table, key in candidates:
            record = self._find(table, key)
            if record is None or record.metadata.deletion_timestamp is not None:
                continue
            if self._is_orphan(record):
                self._shelf.delete(self._kind(table), key)

        for place in sorted(self._leaving, key=_order):
            self._go_on_with(place)
        for namespace in sorted(self._ending_namespaces):
            self._empty(namespace)

    def _kind(self, table: TableKey) -> Kind:
        return self._tables[table]

    def _find(self, table: TableKey, key: ObjectKey) -> Record | None:
        return self._shelf.find(self._kind(table), key)

    def _is_orphan(self, record: Record) -> bool:
        owners = record.metadata.owner_references
        if not owners:
            return False
        return all(
            self._is_known_owner(owner.api_version, owner.kind) and owner.uid not in self._present
            for owner in owners
        )

    def _go_on_with(self, place: Place) -> None:
        """Deletes or releases the dependents of an object that waits for that; then lets it go."""
        record = self._find(*place)
        if record is None:
            self._leaving.discard(place)
            return
        uid = record.metadata.uid
        releases = ORPHAN in record.metadata.finalizers
        for dependent in sorted(self._dependents.get(uid, ()), key=_order):
            if releases:
                self._release(dependent, uid)
            else:
                self._shelf.delete(self._kind(dependent[0]), dependent[1])
        if not self._dependents.get(uid):
            tree = record.tree
            kept = [
                name for name in tree["metadata"]["finalizers"] if name not in (FOREGROUND, ORPHAN)
            ]
            tree["metadata"]["finalizers"] = kept
            self._leaving.discard(place)
            self._shelf.put(self._kind(place[0]), tree)

    def _release(self, place: Place, uid: str) -> None:
        """Removes an owner from an object."""
        record = self._find(*place)
        if record is None:
            return
        tree = record.tree
        owners = [owner for owner in tree["metadata"]["ownerReferences"] if owner.get("uid") != uid]
        tree["metadata"]["ownerReferences"] = owners
        if not owners:
            del tree["metadata"]["ownerReferences"]
        self._shelf.put(self._kind(place[0]), tree)

    def _empty(self, namespace: str) -> None:
        """Deletes what is in a namespace; the namespace goes with the last object."""
        is_empty = True
        for _, table in self._shelf.tables():
            for record in table.all(namespace):
                self._shelf.delete(table.kind, record.key)
            is_empty = is_empty and not table.all(namespace)
        if not is_empty:
            return
        stored = self._shelf.find(registry.NAMESPACE, ("", namespace))
        self._ending_namespaces.discard(namespace)
        if stored is not None:
            tree = stored.tree
            finalizers = (tree.get("spec") or {}).get("finalizers", [])
            kept = [name for name in finalizers if name != NAMESPACE_FINALIZER]
            self._shelf.put(registry.NAMESPACE, tree | {"spec": {"finalizers": kept}})

    # What changed

    def _note(self, change: Change) -> None:
        table = table_key(change.kind)
        self._tables[table] = change.kind
        if change.event == watchers.DELETED:
            self._note_deletion(table, change.record, change.old)
        else:
            self._note_object(table, change.record, change.old)

    def _note_object(self, table: TableKey, record: Record, old: Record | None) -> None:
        metadata = record.metadata
        place = (table, record.key)
        self._present.add(metadata.uid)
        owners = {owner.uid for owner in metadata.owner_references}
        self._forget_owners(place, old, kept=owners)
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(place)
        if owners:
            self._candidates.add(place)
        if metadata.deletion_timestamp is None:
            return
        if FOREGROUND in metadata.finalizers or ORPHAN in metadata.finalizers:
            self._leaving.add(place)
        if table == _NAMESPACES:
            self._ending_namespaces.add(metadata.name)

    def _note_deletion(self, table: TableKey, record: Record, old: Record | None) -> None:
        uid = record.metadata.uid
        place = (table, record.key)
        self._present.discard(uid)
        self._leaving.discard(place)
        self._candidates |= self._dependents.get(uid, set())
        self._forget_owners(place, old or record, kept=set())

    def _forget_owners(self, place: Place, old: Record | None, *, kept: set[str]) -> None:
        if old is None:
            return
        for owner in old.metadata.owner_references:
            dependents = self._dependents.get(owner.uid)
            if dependents is None or owner.uid in kept:
                continue
            dependents.discard(place)
            if not dependents:
                del self._dependents[owner.uid]


def _order(place: Place) -> tuple[int, TableKey, ObjectKey]:
    table, key = place
    return _ORDER.get(table, len(_ORDER)), table, key
