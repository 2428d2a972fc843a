"""The garbage collector, in memory: deletes what lost its owners, finishes foreground deletions and orphanings.

Given the object store; acts on objects that changed and on what depends on them. The rules are those of
kube-controller-manager: an object stays while one of its owners stays, references to absent owners are removed from it,
and an owner of a kind that is not kept here counts as present. Never deletes an object that has an owner left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.registry import Kind
from dovetail.sim.server import watchers
from dovetail.sim.server.object_store import (
    BACKGROUND,
    FOREGROUND,
    FOREGROUND_FINALIZER,
    ORPHAN,
    ORPHAN_FINALIZER,
    Change,
    ObjectStore,
    Record,
)
from dovetail.sim.server.served_kinds import TableKey, table_key
from dovetail.world.events import ObjectKey

# Kinds whose objects a simulation always holds all of, so that an absent owner is gone.
_COLLECTED: Final = {
    (kind.api_version, kind.name): kind
    for kind in (registry.POD, registry.NODE, registry.CLAIM, registry.POD_GROUP)
}
# What others depend on goes last: devices are free before the pod is gone.
_FIRST: Final = (
    registry.CLAIM,
    registry.SLICE,
    registry.LEASE,
    registry.POD,
    registry.VOLUME_CLAIM,
)
_ORDER: Final = {table_key(kind): number for number, kind in enumerate(_FIRST)}

Tree = dict[str, Any]
# The kind of an apiVersion and a name; None if its objects are not all in this store.
OwnerKind = Callable[[str, str], Kind | None]
Place = tuple[TableKey, ObjectKey]


def collected_kind(api_version: str, name: str) -> Kind | None:
    """The kind of an owner whose absence every simulation notices."""
    return _COLLECTED.get((api_version, name))


class _Owners(NamedTuple):
    """The uids of an object's owners, by the state of the owner."""

    present: set[str]
    absent: set[str]
    waiting: set[str]  # being deleted, after its dependents


class GarbageCollector:
    """Collects in one store."""

    def __init__(self, shelf: ObjectStore, owner_kind: OwnerKind = collected_kind) -> None:
        self._shelf = shelf
        self._owner_kind = owner_kind
        self._tables: dict[TableKey, Kind] = {}
        self._places: dict[str, Place] = {}  # by uid
        self._dependents: dict[str, set[Place]] = {}  # by uid of the owner
        self._candidates: set[Place] = set()  # whose owners may be gone
        self._leaving: set[Place] = set()  # with a finalizer of this collector
        shelf.listen(self._note)
        for key, table in shelf.tables():
            self._tables[key] = table.kind
            for record in table.all():
                self._note_object(key, record, None)

    def collect(self) -> None:
        """Deletes what lost its owners, and goes on with deletions that wait for other objects."""
        candidates = sorted(self._candidates, key=_order)
        self._candidates.clear()
        for place in candidates:
            self._judge(place)
        for place in sorted(self._leaving, key=_order):
            self._go_on_with(place)

    # Objects whose owners may be gone

    def _judge(self, place: Place) -> None:
        record = self._find(place)
        if record is None or record.metadata.deletion_timestamp is not None:
            return
        owners = self._owners(record)
        obsolete = owners.absent | owners.waiting
        if not obsolete:
            return
        if owners.present:
            self._disown(place, record, obsolete)
            return
        self._shelf.delete(
            self._tables[place[0]], place[1], propagation=self._propagation(place, record, owners)
        )

    def _propagation(self, place: Place, record: Record, owners: _Owners) -> str:
        """How the dependents of a dependent are deleted."""
        dependents = self._records(self._dependents.get(record.metadata.uid, ()))
        finalizers = record.metadata.finalizers
        if owners.waiting and dependents:
            if any(map(_is_waiting, dependents)):
                # They own each other in a circle; if all of them blocked, none would ever go.
                self._unblock(place, record)
            return FOREGROUND
        if ORPHAN_FINALIZER in finalizers:
            return ORPHAN
        return FOREGROUND if FOREGROUND_FINALIZER in finalizers else BACKGROUND

    def _owners(self, record: Record) -> _Owners:
        owners = _Owners(set(), set(), set())
        for reference in record.metadata.owner_references:
            place = self._places.get(reference.uid)
            owner = None if place is None else self._find(place)
            if place is None or owner is None or not self._is_meant(reference, place, record):
                is_gone = self._can_be_absent(reference, record)
                (owners.absent if is_gone else owners.present).add(reference.uid)
            elif _is_waiting(owner):
                owners.waiting.add(reference.uid)
            else:
                owners.present.add(reference.uid)
        return owners

    def _is_meant(self, reference: meta.OwnerReference, owner: Place, dependent: Record) -> bool:
        """Whether a reference names the object of its uid rightly: kind, name, and a namespace it can reach."""
        table, (namespace, name) = owner
        group = reference.api_version.rpartition("/")[0]
        named = (group, reference.kind, reference.name)
        is_named = named == (table[0], self._tables[table].name, name)
        return is_named and namespace in ("", dependent.metadata.namespace)

    def _can_be_absent(self, reference: meta.OwnerReference, dependent: Record) -> bool:
        """Whether the owner's absence is certain: its kind is kept here, in a scope the dependent can refer to."""
        kind = self._owner_kind(reference.api_version, reference.kind)
        if kind is None:
            return False
        return not kind.is_namespaced or bool(dependent.metadata.namespace)

    # Deletions that wait for other objects

    def _go_on_with(self, place: Place) -> None:
        """Releases the dependents of an owner that orphans them, or waits for those that block it; then lets it go."""
        record = self._find(place)
        if record is None:
            self._leaving.discard(place)
            return
        uid = record.metadata.uid
        dependents = sorted(self._dependents.get(uid, ()), key=_order)
        if ORPHAN_FINALIZER in record.metadata.finalizers:
            for dependent in dependents:
                dependent_record = self._find(dependent)
                if dependent_record is not None:
                    self._disown(dependent, dependent_record, {uid})
        elif any(_blocks(dependent, uid) for dependent in self._records(dependents)):
            return

        tree = record.tree
        ours = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
        kept = [name for name in record.metadata.finalizers if name not in ours]
        tree["metadata"]["finalizers"] = kept
        self._leaving.discard(place)
        self._shelf.put(self._tables[place[0]], tree)

    def _disown(self, place: Place, record: Record, uids: Collection[str]) -> None:
        """Removes owners from an object."""
        tree = record.tree
        references = tree["metadata"]["ownerReferences"]
        others = [reference for reference in references if reference.get("uid") not in uids]
        tree["metadata"]["ownerReferences"] = others
        if not others:
            del tree["metadata"]["ownerReferences"]
        self._shelf.put(self._tables[place[0]], tree)

    def _unblock(self, place: Place, record: Record) -> None:
        """Lets the owners of an object go before it."""
        tree = record.tree
        for reference in tree["metadata"]["ownerReferences"]:
            reference["blockOwnerDeletion"] = False
        self._shelf.put(self._tables[place[0]], tree)

    def _find(self, place: Place) -> Record | None:
        return self._shelf.find(self._tables[place[0]], place[1])

    def _records(self, places: Collection[Place]) -> list[Record]:
        records = map(self._find, places)
        return [record for record in records if record is not None]

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
        if old is not None and _relevant(old) == _relevant(record):
            return
        place = (table, record.key)
        self._places[metadata.uid] = place
        owners = {owner.uid for owner in metadata.owner_references}
        self._forget_owners(place, old, kept=owners)
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(place)
        if owners:
            self._candidates.add(place)
        if _is_waiting(record):
            self._candidates |= self._dependents.get(metadata.uid, set())
        if _is_waiting(record) or _is_orphaning(record):
            self._leaving.add(place)
        else:
            self._leaving.discard(place)

    def _note_deletion(self, table: TableKey, record: Record, old: Record | None) -> None:
        uid = record.metadata.uid
        place = (table, record.key)
        self._places.pop(uid, None)
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


def _is_waiting(record: Record) -> bool:
    """Whether an object goes after its dependents."""
    metadata = record.metadata
    return metadata.deletion_timestamp is not None and FOREGROUND_FINALIZER in metadata.finalizers


def _is_orphaning(record: Record) -> bool:
    metadata = record.metadata
    return metadata.deletion_timestamp is not None and ORPHAN_FINALIZER in metadata.finalizers


def _blocks(dependent: Record, uid: str) -> bool:
    """Whether an owner may go only after this dependent."""
    references = dependent.metadata.owner_references
    return any(
        reference.uid == uid and bool(reference.block_owner_deletion) for reference in references
    )


def _relevant(record: Record) -> tuple[Any, ...]:
    metadata = record.metadata
    return (
        metadata.uid,
        metadata.owner_references,
        metadata.finalizers,
        metadata.deletion_timestamp,
    )


def _order(place: Place) -> tuple[int, TableKey, ObjectKey]:
    table, key = place
    return _ORDER.get(table, len(_ORDER)), table, key
