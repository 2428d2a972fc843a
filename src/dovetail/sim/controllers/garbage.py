"""Collects garbage: deletes objects whose owners are gone, and finishes foreground deletions and orphanings.

Given a change, says which objects to look at, from the index of owners alone; given one object, yields the actions it
needs. The rules are those of kube-controller-manager's garbage collector: an object stays while one of its owners
stays, references to absent owners are removed from it, and an owner of a kind that is not served counts as present.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple

from dovetail.ports import failures
from dovetail.sim.controllers import controller_actions, object_index, tree_fields
from dovetail.sim.controllers.controller_actions import Action, Outcome, Steps
from dovetail.sim.controllers.object_index import Change, Key, ObjectIndex, key_of, uid_of

Tree = dict[str, Any]
# Whether objects of a group and kind live in namespaces; None for a kind that is not served.
IsNamespaced = Callable[[str, str], bool | None]

FOREGROUND_FINALIZER: Final = "foregroundDeletion"  # metav1.FinalizerDeleteDependents
ORPHAN_FINALIZER: Final = "orphan"  # metav1.FinalizerOrphanDependents


def affected(change: Change, objects: ObjectIndex) -> Iterator[Key]:
    """The objects that a change may have turned into garbage, or whose deletion it may let continue."""
    tree = change.tree
    if change.new is None:
        yield from map(key_of, objects.dependents(uid_of(tree)))
        yield from _waiting_owners(tree, objects)
        return
    if change.old is not None and _relevant(change.old) == _relevant(change.new):
        return

    yield key_of(tree)
    if change.old is not None and uid_of(change.old) != uid_of(tree):
        yield from map(key_of, objects.dependents(uid_of(change.old)))
    if _is_waiting(tree):
        yield from map(key_of, objects.dependents(uid_of(tree)))
    if change.old is not None:
        yield from _waiting_owners(change.old, objects)


def steps_for(tree: Tree, objects: ObjectIndex, is_namespaced: IsNamespaced) -> Steps:
    """What has to be done about one object now."""
    finalizers = tree_fields.entries(tree["metadata"], "finalizers")
    is_deleted = bool(tree["metadata"].get("deletionTimestamp"))
    if is_deleted and ORPHAN_FINALIZER in finalizers:
        yield from _orphan_dependents(tree, objects)
    elif is_deleted and FOREGROUND_FINALIZER in finalizers:
        yield from _await_dependents(tree, objects)
    elif not is_deleted and tree["metadata"].get("ownerReferences"):
        yield from _collect(tree, objects, is_namespaced)


class _Owners(NamedTuple):
    """The references of an object, by the state of the owner."""

    present: list[Tree]
    absent: list[Tree]
    waiting: list[Tree]  # being deleted, after its dependents


def _collect(tree: Tree, objects: ObjectIndex, is_namespaced: IsNamespaced) -> Steps:
    owners = _owners(tree, objects, is_namespaced)
    obsolete = [*owners.absent, *owners.waiting]
    if not obsolete:
        return
    if owners.present:
        yield from _disown(tree, {reference["uid"] for reference in obsolete})
        return

    has_dependents = objects.has_dependents(uid_of(tree))
    finalizers = tree_fields.entries(tree["metadata"], "finalizers")
    if owners.waiting and has_dependents:
        propagation = controller_actions.FOREGROUND
    elif ORPHAN_FINALIZER in finalizers:
        propagation = controller_actions.ORPHAN
    elif FOREGROUND_FINALIZER in finalizers:
        propagation = controller_actions.FOREGROUND
    else:
        propagation = controller_actions.BACKGROUND
    yield from controller_actions.deleted(tree, propagation)


def _owners(tree: Tree, objects: ObjectIndex, is_namespaced: IsNamespaced) -> _Owners:
    owners = _Owners([], [], [])
    for reference in tree["metadata"]["ownerReferences"]:
        owner = objects.with_uid(str(reference.get("uid")))
        if owner is None or not _is_meant(reference, owner, tree):
            is_known = _can_be_absent(reference, tree, is_namespaced)
            (owners.absent if is_known else owners.present).append(reference)
        elif _is_waiting(owner):
            owners.waiting.append(reference)
        else:
            owners.present.append(reference)
    return owners


def _is_meant(reference: Tree, owner: Tree, dependent: Tree) -> bool:
    """Whether a reference names the object of its uid rightly: kind, name, and a namespace it can reach."""
    key = key_of(owner)
    group = object_index.group_of(str(reference.get("apiVersion")))
    has_name = (group, reference.get("kind"), reference.get("name")) == (
        key.group,
        key.kind,
        key.name,
    )
    return has_name and key.namespace in ("", dependent["metadata"].get("namespace") or "")


def _can_be_absent(reference: Tree, dependent: Tree, is_namespaced: IsNamespaced) -> bool:
    """Whether the owner's absence is certain: its kind is served, and in a scope that the dependent can refer to."""
    group = object_index.group_of(str(reference.get("apiVersion")))
    in_namespaces = is_namespaced(group, str(reference.get("kind")))
    if in_namespaces is None:
        return False
    return not in_namespaces or bool(dependent["metadata"].get("namespace"))


def _orphan_dependents(tree: Tree, objects: ObjectIndex) -> Steps:
    for dependent in objects.dependents(uid_of(tree)):
        yield from _disown(dependent, {uid_of(tree)})
    yield from _without_finalizer(tree, ORPHAN_FINALIZER)


def _await_dependents(tree: Tree, objects: ObjectIndex) -> Steps:
    """Ends a foreground deletion once no dependent blocks it any more. The dependents are collected as they change."""
    uid = uid_of(tree)
    blocking = [child for child in objects.dependents(uid) if _blocks(child, uid)]
    if not blocking:
        yield from _without_finalizer(tree, FOREGROUND_FINALIZER)


def _disown(tree: Tree, uids: set[str]) -> Generator[Action, Outcome, None]:
    references: Iterable[Tree] = tree_fields.entries(tree["metadata"], "ownerReferences")
    others = [reference for reference in references if reference.get("uid") not in uids]
    metadata = {"uid": uid_of(tree), "ownerReferences": others or None}
    outcome = yield controller_actions.Patch(tree, {"metadata": metadata})
    _accept_missing(outcome)


def _without_finalizer(tree: Tree, finalizer: str) -> Generator[Action, Outcome, None]:
    finalizers = [name for name in tree["metadata"]["finalizers"] if name != finalizer]
    metadata = {"uid": uid_of(tree), "finalizers": finalizers or None}
    outcome = yield controller_actions.Patch(tree, {"metadata": metadata})
    _accept_missing(outcome)


def _accept_missing(outcome: Outcome) -> None:
    is_failure = isinstance(outcome, failures.ApiFailure)
    if is_failure and not isinstance(outcome, failures.Missing):
        controller_actions.stored(outcome)


def _waiting_owners(tree: Tree, objects: ObjectIndex) -> Iterator[Key]:
    references: Iterable[Tree] = tree_fields.entries(tree["metadata"], "ownerReferences")
    for reference in references:
        owner = objects.with_uid(str(reference.get("uid")))
        if owner is not None and _is_waiting(owner):
            yield key_of(owner)


def _is_waiting(tree: Tree) -> bool:
    metadata = tree["metadata"]
    finalizers = tree_fields.entries(metadata, "finalizers")
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND_FINALIZER in finalizers


def _blocks(tree: Tree, uid: str) -> bool:
    references: Iterable[Tree] = tree_fields.entries(tree["metadata"], "ownerReferences")
    return any(
        reference.get("uid") == uid and reference.get("blockOwnerDeletion")
        for reference in references
    )


def _relevant(tree: Tree) -> tuple[Any, ...]:
    metadata = tree["metadata"]
    names = ("uid", "ownerReferences", "finalizers", "deletionTimestamp")
    return tuple(metadata.get(name) for name in names)
