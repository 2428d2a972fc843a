"""The object store of the in-memory API server: objects by kind and name, versioned by one counter.

Given whole trees to store; sets versions and generations, keeps deleted objects until their finalizers are gone, and
notifies subscribers. Refuses objects that are too large, as etcd does. Synchronous. Validates nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.registry import Kind
from dovetail.ports import failures
from dovetail.quantity import durations
from dovetail.sim.fleet import machines
from dovetail.sim.server import watchers
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]

GENERATIONLESS: Final = frozenset(
    {"Node", "Event", "Namespace", "Lease", "ResourceClaim", "ResourceClaimTemplate"}
    | {kind.name for kind in registry.STORAGE}
)
# etcd's limit of a request. A real server stores protobuf, which is shorter than this JSON.
REQUEST_BYTES: Final = 1_572_864
DEFAULT_GRACE: Final = 30  # terminationGracePeriodSeconds of core/v1


class Record(NamedTuple):
    """An object as a plain tree, which must not be changed, and as a struct."""

    tree: Tree
    struct: Any

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Of the struct."""
        metadata: meta.ObjectMeta = self.struct.metadata
        return metadata


class ObjectStore:
    """All objects of one cluster."""

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        self._now = now
        self._records: dict[str, dict[ObjectKey, Record]] = {}
        self._subscriptions: list[watchers.Subscription] = []
        self.revision = 1

    # Questions

    def find(self, kind: Kind, key: ObjectKey) -> Record | None:
        """One object."""
        return self._records.get(kind.name, {}).get(key)

    def all(self, kind: Kind) -> list[Record]:
        """Every object of a kind, by namespace and name."""
        table = self._records.get(kind.name, {})
        return [table[key] for key in sorted(table)]

    def stamp(self) -> str:
        """The time as objects write it."""
        return timestamps.to_text(self._now())

    # Changes

    def put(self, kind: Kind, tree: Tree) -> Record:
        """Stores an object, new or changed; an equal one keeps its version."""
        metadata = tree["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = self.find(kind, key)
        if old is not None and _same(tree, old.tree):
            return old
        revision = self.revision + 1
        stamped = dict(metadata) | {"resourceVersion": str(revision)}
        if old is None:
            stamped["uid"] = machines.derived_uuid("object", kind.name, *key, revision)
            stamped["creationTimestamp"] = self.stamp()
        generation = _generation(kind, tree, old)
        if generation:
            stamped["generation"] = generation
        tree = tree | {"metadata": stamped}
        document = codec.encode_tree(tree)
        if len(document) > REQUEST_BYTES:
            raise failures.Futile("etcdserver: request is too large", status=500)
        record = Record(tree, codec.decode_struct(kind.struct, document))
        self.revision = revision
        if stamped.get("deletionTimestamp") and _is_free(record.metadata):
            return self._remove(kind, key, record)
        self._records.setdefault(kind.name, {})[key] = record
        self._notify(kind, watchers.ADDED if old is None else watchers.MODIFIED, record.struct)
        return record

    def delete(self, kind: Kind, key: ObjectKey, *, grace_seconds: int | None = None) -> None:
        """Removes an object, or marks it as deleted while grace or finalizers keep it."""
        record = self.find(kind, key)
        if record is None:
            return
        metadata = record.metadata
        if metadata.deletion_timestamp is None:
            grace = _grace(kind, record, grace_seconds)
        else:
            # Already deleted: its grace period can only be shortened.
            current_grace = metadata.deletion_grace_period_seconds or 0
            if grace_seconds is None or grace_seconds >= current_grace:
                return
            grace = grace_seconds

        if grace == 0 and not metadata.finalizers:
            self.revision += 1
            self._remove(kind, key, record)
            return
        at = durations.later(self._now(), grace)
        marked = record.tree["metadata"] | {
            "deletionTimestamp": timestamps.to_text(at),
            "deletionGracePeriodSeconds": grace,
        }
        self.put(kind, record.tree | {"metadata": marked})

    def _remove(self, kind: Kind, key: ObjectKey, record: Record) -> Record:
        self._records[kind.name].pop(key, None)
        metadata = record.tree["metadata"] | {"resourceVersion": str(self.revision)}
        tree = record.tree | {"metadata": metadata}
        gone = Record(tree, codec.decode_struct(kind.struct, codec.encode_tree(tree)))
        self._notify(kind, watchers.DELETED, gone.struct)
        return gone

    # Subscribers

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
        def end() -> None:
            self._subscriptions.remove(subscription)

        subscription = watchers.Subscription(kind, callback, relist=relist, end=end)
        self._subscriptions.append(subscription)
        return subscription

    def _notify(self, kind: Kind, event: str, struct: Any) -> None:
        for subscription in list(self._subscriptions):
            if subscription.kind.name == kind.name:
                subscription.deliver(event, struct)


def uids(shelf: ObjectStore, served: Iterable[Kind]) -> set[str]:
    """The uids of all objects of these kinds."""
    return {record.metadata.uid for kind in served for record in shelf.all(kind)}


def _is_free(metadata: meta.ObjectMeta) -> bool:
    return not metadata.finalizers and not metadata.deletion_grace_period_seconds


def _grace(kind: Kind, record: Record, seconds: int | None) -> int:
    """The grace period: only running pods have one."""
    if kind.name != registry.POD.name:
        return 0
    pod = record.struct
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return 0
    if seconds is not None:
        return seconds
    own = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if own is None else int(own)


def _generation(kind: Kind, tree: Tree, old: Record | None) -> int:
    """The number of spec changes; a deletion counts as one."""
    if kind.name in GENERATIONLESS:
        return 0
    if old is None:
        return 1
    was_deleted = old.metadata.deletion_timestamp is not None
    is_newly_deleted = bool(tree["metadata"].get("deletionTimestamp")) and not was_deleted
    has_new_spec = tree.get("spec") != old.tree.get("spec")
    return old.metadata.generation + (has_new_spec or is_newly_deleted)


def _same(new: Tree, old: Tree) -> bool:
    return _bare(new) == _bare(old)


def _bare(tree: Tree) -> Tree:
    """An object without the metadata that the store sets."""
    stamped = ("uid", "resourceVersion", "generation", "creationTimestamp")
    return tree | {
        "metadata": {name: value for name, value in tree["metadata"].items() if name not in stamped}
    }
