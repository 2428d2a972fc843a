"""Which owners a change concerns: the object itself, its controller, and those that might adopt it.

Given a change and the index; returns keys of owners to reconcile. Looks only at owners in the object's namespace, and
only where the change could matter to them. Never scans all objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dovetail.sim.controllers import owner_references, pod_states, tree_fields
from dovetail.sim.controllers.object_index import (
    APPS,
    BATCH,
    CORE,
    Change,
    Key,
    ObjectIndex,
    controller_of,
    key_of,
)

Tree = dict[str, Any]

OWNER_KINDS: Final = frozenset(
    {
        (APPS, "Deployment"),
        (APPS, "ReplicaSet"),
        (APPS, "StatefulSet"),
        (APPS, "DaemonSet"),
        (BATCH, "Job"),
        (BATCH, "CronJob"),
    }
)
# Kinds that adopt objects of a kind by selector.
ADOPTERS: Final = {
    (CORE, "Pod"): (
        (APPS, "ReplicaSet"),
        (APPS, "StatefulSet"),
        (APPS, "DaemonSet"),
        (BATCH, "Job"),
    ),
    (APPS, "ReplicaSet"): ((APPS, "Deployment"),),
    (APPS, "ControllerRevision"): ((APPS, "StatefulSet"), (APPS, "DaemonSet")),
}


def owners_of(change: Change, objects: ObjectIndex) -> Iterator[Key]:
    """The owners to reconcile, most direct first; an owner may be named twice."""
    key = key_of(change.tree)
    if key[:2] in OWNER_KINDS and change.new is not None:
        yield key
    for tree in (change.new, change.old):
        if tree is not None:
            yield from _controllers(tree, objects)
    if change.new is not None and _may_be_adopted(change):
        yield from _adopters(change.new, objects)
    if key[:2] == (CORE, "Node") and _node_changed(change):
        yield from map(key_of, objects.of_kind(APPS, "DaemonSet"))


def _controllers(tree: Tree, objects: ObjectIndex) -> Iterator[Key]:
    reference = controller_of(tree)
    owner = objects.with_uid(str(reference.get("uid"))) if reference else None
    if owner is None:
        return
    if key_of(owner)[:2] in OWNER_KINDS:
        yield key_of(owner)
    if tree["kind"] == "Pod" and owner["kind"] == "ReplicaSet":
        yield from _recreating(tree, owner, objects)


def _recreating(pod: Tree, replica_set: Tree, objects: ObjectIndex) -> Iterator[Key]:
    """The Deployment that waits for the end of a pod before it starts pods of the next template."""
    if pod_states.is_active(pod):
        return
    reference = controller_of(replica_set)
    deployment = objects.with_uid(str(reference.get("uid"))) if reference else None
    if deployment is None or deployment["kind"] != "Deployment":
        return
    strategy = tree_fields.mapping(deployment["spec"], "strategy")
    if strategy.get("type") == "Recreate":
        yield key_of(deployment)


def _may_be_adopted(change: Change) -> bool:
    new, old = change.new, change.old
    if new is None or controller_of(new) is not None or owner_references.is_deleted(new):
        return False
    if old is None or controller_of(old) is not None:
        return True
    return owner_references.labels_of(old) != owner_references.labels_of(new)


def _adopters(tree: Tree, objects: ObjectIndex) -> Iterator[Key]:
    key = key_of(tree)
    for group, kind in ADOPTERS.get((key.group, key.kind), ()):
        for owner in objects.of_kind(group, kind, key.namespace):
            if owner_references.selects(owner, tree):
                yield key_of(owner)


def _node_changed(change: Change) -> bool:
    """Whether anything changed that decides about daemon pods; heartbeats do not."""
    if change.old is None or change.new is None:
        return True
    return _daemon_view(change.old) != _daemon_view(change.new)


def _daemon_view(node: Tree) -> tuple[Any, ...]:
    return owner_references.labels_of(node), tree_fields.mapping(node, "spec").get("taints")
