"""Where the API server in memory keeps its objects: by kind and name, each with a version, in the order of one counter.

Given whole trees to keep; stamps versions, counts generations, holds what has finalizers until they are gone, and
tells followers. Refuses, as etcd does, what is too large to keep. Synchronous. Never judges an object otherwise.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from dovetail.model import durations, kinds, meta, objects
from dovetail.model.kinds import Kind
from dovetail.ports import failures
from dovetail.sim import machines, watching
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]

GENERATIONLESS: Final = frozenset(
    {"Node", "Event", "Namespace", "Lease", "ResourceClaim", "ResourceClaimTemplate"}
    | {one.name for one in kinds.STORAGE}
)
REQUEST_BYTES: Final = 1_572_864  # etcd's limit of one request; a real server's objects are shorter than their JSON
DEFAULT_GRACE: Final = 30  # terminationGracePeriodSeconds of core/v1


class Record(NamedTuple):
    """An object as plain tree, which nobody may change, and as struct."""

    tree: Tree
    struct: Any

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Of the struct."""
        found: meta.ObjectMeta = self.struct.metadata
        return found


class Shelf:
    """All objects of one cluster."""

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        self._now = now
        self._records: dict[str, dict[ObjectKey, Record]] = {}
        self._subscriptions: list[watching.Subscription] = []
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
        return self._now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # Changes

    def put(self, kind: Kind, tree: Tree) -> Record:
        """Keeps an object, new or changed; one that differs in nothing stays as it is."""
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
        document = objects.encode_tree(tree)
        if len(document) > REQUEST_BYTES:
            raise failures.Futile("etcdserver: request is too large", status=500)
        record = Record(tree, objects.decode_struct(kind.struct, document))
        self.revision = revision
        if stamped.get("deletionTimestamp") and _is_free(record.metadata):
            return self._remove(kind, key, record)
        self._records.setdefault(kind.name, {})[key] = record
        self._tell(kind, watching.ADDED if old is None else watching.MODIFIED, record.struct)
        return record

    def delete(self, kind: Kind, key: ObjectKey, *, grace_seconds: int | None = None) -> None:
        """Removes an object, or marks it where grace or finalizers hold it."""
        record = self.find(kind, key)
        if record is None:
            return
        metadata = record.metadata
        if metadata.deletion_timestamp is not None:  # told before: its time can only be shortened
            if grace_seconds is None or grace_seconds >= (metadata.deletion_grace_period_seconds or 0):
                return
            grace = grace_seconds
        else:
            grace = _grace(kind, record, grace_seconds)
        if grace == 0 and not metadata.finalizers:
            self.revision += 1
            self._remove(kind, key, record)
            return
        at = durations.later(self._now(), grace)
        marked = record.tree["metadata"] | {
            "deletionTimestamp": at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletionGracePeriodSeconds": grace,
        }
        self.put(kind, record.tree | {"metadata": marked})

    def _remove(self, kind: Kind, key: ObjectKey, record: Record) -> Record:
        self._records[kind.name].pop(key, None)
        metadata = record.tree["metadata"] | {"resourceVersion": str(self.revision)}
        tree = record.tree | {"metadata": metadata}
        gone = Record(tree, objects.decode_struct(kind.struct, objects.encode_tree(tree)))
        self._tell(kind, watching.DELETED, gone.struct)
        return gone

    # Followers

    def subscribe(self, kind: Kind, callback: watching.Callback) -> watching.Subscription:
        """Tells every change of the kind from now on. On `relist` everything there is counts as added."""

        def relist() -> None:
            for record in self.all(kind):
                callback(watching.ADDED, record.struct)

        return self._subscribed(kind, callback, relist)

    def follow(self, kind: Kind, sink: watching.Sink) -> watching.Subscription:
        """Tells everything there is of the kind, then every change."""

        def relist() -> None:
            sink.replaced([record.struct for record in self.all(kind)], str(self.revision))

        relist()
        return self._subscribed(kind, watching.teller(sink), relist)

    def _subscribed(self, kind: Kind, callback: watching.Callback, relist: Callable[[], None]) -> watching.Subscription:
        def end() -> None:
            self._subscriptions.remove(made)

        made = watching.Subscription(kind, callback, relist=relist, end=end)
        self._subscriptions.append(made)
        return made

    def _tell(self, kind: Kind, event: str, struct: Any) -> None:
        for one in list(self._subscriptions):
            if one.kind.name == kind.name:
                one.tell(event, struct)


def uids(shelf: Shelf, served: Iterable[Kind]) -> set[str]:
    """Every object that exists, by identity."""
    return {record.metadata.uid for kind in served for record in shelf.all(kind)}


def _is_free(metadata: meta.ObjectMeta) -> bool:
    return not metadata.finalizers and not metadata.deletion_grace_period_seconds


def _grace(kind: Kind, record: Record, wanted: int | None) -> int:
    """Only pods have grace, and only those that run somewhere."""
    if kind.name != kinds.POD.name:
        return 0
    pod = record.struct
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return 0
    if wanted is not None:
        return wanted
    own = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if own is None else int(own)


def _generation(kind: Kind, tree: Tree, old: Record | None) -> int:
    """How often what was asked for has changed; a deletion counts as a change."""
    if kind.name in GENERATIONLESS:
        return 0
    if old is None:
        return 1
    is_marked = bool(tree["metadata"].get("deletionTimestamp")) and old.metadata.deletion_timestamp is None
    return old.metadata.generation + (tree.get("spec") != old.tree.get("spec") or is_marked)


def _same(new: Tree, old: Tree) -> bool:
    return _bare(new) == _bare(old)


def _bare(tree: Tree) -> Tree:
    """An object without what keeping it stamps on it."""
    stamped = ("uid", "resourceVersion", "generation", "creationTimestamp")
    return tree | {"metadata": {name: value for name, value in tree["metadata"].items() if name not in stamped}}
