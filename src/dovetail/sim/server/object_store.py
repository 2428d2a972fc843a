"""The object store of the in-memory API server: objects by group, plural and name, versioned by one counter.

Given whole trees to store; sets versions and generations, keeps deleted objects until their finalizers are gone, keeps
a bounded history of changes, and notifies subscribers. Each object is encoded once, when it is written. Refuses objects
that are too large, as etcd does. Synchronous; one write costs nothing for the other objects. Validates nothing else.
"""

from __future__ import annotations

import bisect
import datetime
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.registry import Kind
from dovetail.ports import failures
from dovetail.quantity import durations
from dovetail.sim.fleet import machines
from dovetail.sim.server import watchers
from dovetail.sim.server.served_kinds import TableKey, table_key
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]

# etcd's limit of a request. A real server stores protobuf, which is shorter than this JSON.
REQUEST_BYTES: Final = 1_572_864
DEFAULT_GRACE: Final = 30  # terminationGracePeriodSeconds of core/v1
HISTORY_CHANGES: Final = 4_096  # per kind, for watches that resume
_PODS: Final = table_key(registry.POD)
_NAMESPACES: Final = table_key(registry.NAMESPACE)
NAMESPACE_FINALIZER: Final = "kubernetes"  # of core/v1 NamespaceSpec

# What becomes of the dependents of a deleted object: metav1.DeletionPropagation
BACKGROUND: Final = "Background"
FOREGROUND: Final = "Foreground"
ORPHAN: Final = "Orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"  # metav1.FinalizerDeleteDependents
ORPHAN_FINALIZER: Final = "orphan"  # metav1.FinalizerOrphanDependents
_PROPAGATION_FINALIZERS: Final = {FOREGROUND: FOREGROUND_FINALIZER, ORPHAN: ORPHAN_FINALIZER}


class Record(NamedTuple):
    """An object as JSON and as a struct."""

    document: bytes
    struct: Any

    @property
    def tree(self) -> Tree:
        """The object as a plain tree of the caller's own, parsed on every call."""
        tree: Tree = codec.parsed(self.document)
        return tree

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Of the struct."""
        metadata: meta.ObjectMeta = self.struct.metadata
        return metadata

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        metadata = self.metadata
        return metadata.namespace, metadata.name


class Change(NamedTuple):
    """One write: the object after it (of a deletion: its last state) and before it."""

    revision: int
    event: str
    kind: Kind
    record: Record
    old: Record | None


class Table:
    """All objects of one kind, in order, and their recent changes."""

    def __init__(self, kind: Kind, since: int) -> None:
        self.kind = kind  # in the stored version
        self.records: dict[ObjectKey, Record] = {}
        self.order: list[ObjectKey] = []
        self.history: deque[Change] = deque()
        self.complete_since = since  # every change after this revision is in the history

    def put(self, key: ObjectKey, record: Record) -> None:
        """Adds or replaces an object."""
        if key not in self.records:
            bisect.insort(self.order, key)
        self.records[key] = record

    def remove(self, key: ObjectKey) -> None:
        """Removes an object if it is there."""
        if self.records.pop(key, None) is not None:
            del self.order[bisect.bisect_left(self.order, key)]

    def remember(self, change: Change) -> None:
        """Adds a change to the history; the oldest one makes room."""
        self.history.append(change)
        if len(self.history) > HISTORY_CHANGES:
            self.complete_since = self.history.popleft().revision

    def all(self, namespace: str = "") -> list[Record]:
        """Every object by namespace and name; with a namespace, only those in it."""
        order = self.order
        if namespace:
            start = bisect.bisect_left(order, (namespace, ""))
            end = bisect.bisect_left(order, (namespace + "\0", ""))
            order = order[start:end]
        return [self.records[key] for key in order]


OnChange = Callable[[Change], None]


class ObjectStore:
    """All objects of one cluster."""

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        self._now = now
        self._tables: dict[TableKey, Table] = {}
        self._subscriptions: dict[TableKey, list[watchers.Subscription]] = {}
        self._listeners: list[OnChange] = []
        self.revision = 1
        self._began_at = 0  # every change after this revision was seen by this store

    # Questions

    def find(self, kind: Kind, key: ObjectKey) -> Record | None:
        """One object."""
        table = self._tables.get(table_key(kind))
        return None if table is None else table.records.get(key)

    def all(self, kind: Kind, namespace: str = "") -> list[Record]:
        """Every object of a kind, by namespace and name; with a namespace, only those in it."""
        table = self._tables.get(table_key(kind))
        return [] if table is None else table.all(namespace)

    def table(self, kind: Kind) -> Table:
        """The objects of a kind with their history."""
        key = table_key(kind)
        table = self._tables.get(key)
        if table is None:
            # It had no object so far, so that nothing of its history is missing.
            table = self._tables[key] = Table(kind, self._began_at)
        return table

    def tables(self) -> Iterator[tuple[TableKey, Table]]:
        """Every kind that ever had an object."""
        yield from list(self._tables.items())

    def now(self) -> datetime.datetime:
        """The time."""
        return self._now()

    def stamp(self) -> str:
        """The time as objects write it."""
        return timestamps.to_text(self._now())

    def next_uid(self, kind: Kind, key: ObjectKey) -> str:
        """The uid that an object gets if it is the next one to be created."""
        return machines.derived_uuid("object", kind.name, *key, self.revision + 1)

    # Changes

    def put(self, kind: Kind, tree: Tree, *, is_rehearsal: bool = False) -> Record:
        """Stores an object, new or changed; an equal one keeps its version. A rehearsal only returns the result."""
        metadata = tree["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = self.find(kind, key)
        old_tree = None if old is None else old.tree
        if old is not None and old_tree is not None and _same(tree, old_tree):
            return old

        revision = self.revision + 1
        stamped = dict(metadata) | {"resourceVersion": str(revision)}
        if old is None:
            stamped["uid"] = self.next_uid(kind, key)
            stamped["creationTimestamp"] = self.stamp()
        generation = _generation(kind, tree, old, old_tree)
        if generation:
            stamped["generation"] = generation
        record = encoded(kind, tree | {"metadata": stamped})
        if len(record.document) > REQUEST_BYTES:
            raise failures.Futile("etcdserver: request is too large", status=500)
        if is_rehearsal:
            return record

        self.revision = revision
        if stamped.get("deletionTimestamp") and _is_free(kind, record):
            return self._remove(kind, key, record, old)
        self.table(kind).put(key, record)
        event = watchers.ADDED if old is None else watchers.MODIFIED
        self._notify(Change(revision, event, kind, record, old))
        return record

    def delete(
        self,
        kind: Kind,
        key: ObjectKey,
        *,
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> Record | None:
        """Removes an object, or marks it as deleted while grace or finalizers keep it; returns its last state.

        `propagation` says what becomes of its dependents; without it, its finalizers do.
        """
        record = self.find(kind, key)
        if record is None:
            return None
        metadata = record.metadata
        finalizers = _deletion_finalizers(metadata.finalizers, propagation)
        if metadata.deletion_timestamp is None:
            grace = _grace(kind, record, grace_seconds)
        else:
            # Already deleted: its grace period can only be shortened.
            current_grace = metadata.deletion_grace_period_seconds or 0
            is_shorter = grace_seconds is not None and grace_seconds < current_grace
            if not is_shorter and finalizers == list(metadata.finalizers):
                return record
            grace = grace_seconds if is_shorter and grace_seconds is not None else current_grace

        if grace == 0 and not finalizers and not _has_contents(kind, record):
            self.revision += 1
            return self._remove(kind, key, record, record)
        tree = record.tree
        marked = tree["metadata"] | {
            "deletionTimestamp": timestamps.to_text(durations.later(self._now(), grace)),
            "deletionGracePeriodSeconds": grace,
        }
        if finalizers != list(metadata.finalizers):
            marked["finalizers"] = finalizers
        tree |= {"metadata": marked}
        if table_key(kind) == _NAMESPACES:
            tree["status"] = (tree.get("status") or {}) | {"phase": "Terminating"}
        return self.put(kind, tree)

    def drop_table(self, kind: Kind) -> None:
        """Removes every object of a kind that is no longer served, whatever keeps it."""
        for record in self.all(kind):
            self.revision += 1
            self._remove(kind, record.key, record, record)

    def restore(self, kind: Kind, document: bytes) -> Record:
        """Puts back an object as it was stored, without a new version and without notifying subscribers."""
        record = Record(document, codec.decode_struct(kind.struct, document))
        self.table(kind).put(record.key, record)
        return record

    def restored(self, revision: int) -> None:
        """Goes on from a revision after objects were put back: what happened before is not in the history."""
        self.revision = self._began_at = max(self.revision, revision)
        for table in self._tables.values():
            table.complete_since = self.revision

    def _remove(self, kind: Kind, key: ObjectKey, record: Record, old: Record | None) -> Record:
        self.table(kind).remove(key)
        tree = record.tree
        tree["metadata"] |= {"resourceVersion": str(self.revision)}
        gone = encoded(kind, tree)
        self._notify(Change(self.revision, watchers.DELETED, kind, gone, old))
        return gone

    # Subscribers

    def listen(self, on_change: OnChange) -> None:
        """Calls back on every change of every kind, right after it and before subscribers of the kind."""
        self._listeners.append(on_change)

    def subscribe(self, kind: Kind, callback: watchers.Callback) -> watchers.Subscription:
        """Calls back on every change of the kind from now on. `relist` reports every object as added."""

        def relist() -> None:
            for record in self.all(kind):
                callback(watchers.ADDED, record.struct)

        return self._subscribed(kind, callback, relist)

    def follow(self, kind: Kind, sink: watchers.Sink) -> watchers.Subscription:
        """Sends all objects of the kind, then every change."""

        def relist() -> None:
            sink.replaced([record.struct for record in self.all(kind)], str(self.revision))

        relist()
        return self._subscribed(kind, watchers.sink_callback(sink), relist)

    def _subscribed(
        self, kind: Kind, callback: watchers.Callback, relist: Callable[[], None]
    ) -> watchers.Subscription:
        subscriptions = self._subscriptions.setdefault(table_key(kind), [])

        def end() -> None:
            subscriptions.remove(subscription)

        subscription = watchers.Subscription(kind, callback, relist=relist, end=end)
        subscriptions.append(subscription)
        return subscription

    def _notify(self, change: Change) -> None:
        self.table(change.kind).remember(change)
        for listener in self._listeners:
            listener(change)
        for subscription in list(self._subscriptions.get(table_key(change.kind), ())):
            subscription.deliver(change.event, change.record.struct)


def encoded(kind: Kind, tree: Tree) -> Record:
    """A tree as it would be stored."""
    document = codec.encode_tree(tree)
    return Record(document, codec.decode_struct(kind.struct, document))


def _is_free(kind: Kind, record: Record) -> bool:
    """Whether nothing keeps a deleted object."""
    return not record.metadata.deletion_grace_period_seconds and not _is_kept(kind, record)


def _is_kept(kind: Kind, record: Record) -> bool:
    """Whether finalizers keep an object; a namespace's are those of its spec, too."""
    return bool(record.metadata.finalizers) or _has_contents(kind, record)


def _has_contents(kind: Kind, record: Record) -> bool:
    """Whether an object is a namespace that may not be empty yet."""
    if table_key(kind) != _NAMESPACES:
        return False
    spec: Tree = record.tree.get("spec") or {}
    return bool(spec.get("finalizers"))


def _deletion_finalizers(finalizers: Iterable[str], propagation: str) -> list[str]:
    """The finalizers of an object that is deleted with a propagation policy, as apiserver's registry sets them."""
    if not propagation:
        return list(finalizers)
    policies = _PROPAGATION_FINALIZERS.values()
    wanted = _PROPAGATION_FINALIZERS.get(propagation, "")
    kept = [name for name in finalizers if name == wanted or name not in policies]
    return kept if not wanted or wanted in kept else [*kept, wanted]


def _grace(kind: Kind, record: Record, seconds: int | None) -> int:
    """The grace period: only running pods have one."""
    if table_key(kind) != _PODS:
        return 0
    pod = record.struct
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return 0
    if seconds is not None:
        return seconds
    own = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if own is None else int(own)


def _generation(kind: Kind, tree: Tree, old: Record | None, old_tree: Tree | None) -> int:
    """The number of spec changes; a deletion counts as one."""
    if not kind.has_generation:
        return 0
    if old is None or old_tree is None:
        return 1
    was_deleted = old.metadata.deletion_timestamp is not None
    is_newly_deleted = bool(tree["metadata"].get("deletionTimestamp")) and not was_deleted
    has_new_spec = tree.get("spec") != old_tree.get("spec")
    return old.metadata.generation + (has_new_spec or is_newly_deleted)


def _same(new: Tree, old: Tree) -> bool:
    return _bare(new) == _bare(old)


def _bare(tree: Tree) -> Tree:
    """An object without the metadata that the store sets."""
    stamped = ("uid", "resourceVersion", "generation", "creationTimestamp")
    return tree | {
        "metadata": {name: value for name, value in tree["metadata"].items() if name not in stamped}
    }
