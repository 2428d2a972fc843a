"""Which children belong to an owner: controller references, and adoption and release by selector.

Given an owner, its children and the objects without a controller; yields the patches that adopt or release, and
returns the children the owner has then. As upstream's controller reference manager: a deleted owner adopts and
releases nothing, and deleted objects are not adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import msgspec

from dovetail.kubetypes import label_selectors, meta
from dovetail.ports import failures
from dovetail.sim.controllers import tree_fields
from dovetail.sim.controllers.controller_actions import Action, Outcome, Patch
from dovetail.sim.controllers.object_index import controller_of, uid_of

Tree = dict[str, Any]
Accepts = Callable[[Tree], bool]


def reference_to(owner: Tree) -> Tree:
    """The reference that makes `owner` the controller of an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_deleted(tree: Tree) -> bool:
    """Whether deletion of the object was requested."""
    return bool(tree["metadata"].get("deletionTimestamp"))


def labels_of(tree: Tree) -> dict[str, str]:
    """The labels of an object or of a template."""
    return tree_fields.mapping(tree, "metadata", "labels")


def annotations_of(tree: Tree) -> dict[str, str]:
    """The annotations of an object or of a template."""
    return tree_fields.mapping(tree, "metadata", "annotations")


def tests_of(selector: Tree | None) -> label_selectors.Tests:
    """The tests of a selector. Of an owner's selector, an empty one selects nothing; so does an unreadable one."""
    if not selector:
        return label_selectors.NOTHING
    try:
        return label_selectors.tests_of(msgspec.convert(selector, meta.LabelSelector))
    except msgspec.ValidationError:
        return label_selectors.NOTHING


def selects(owner: Tree, tree: Tree) -> bool:
    """Whether the selector of an owner matches the labels of an object in its namespace."""
    is_near = owner["metadata"].get("namespace") == tree["metadata"].get("namespace")
    tests = tests_of(tree_fields.mapping(owner, "spec").get("selector"))
    return is_near and label_selectors.passes(tests, labels_of(tree))


def claimed(
    owner: Tree,
    children: Iterable[Tree],
    orphans: Iterable[Tree],
    *,
    accepts: Accepts = lambda tree: True,
    finalizer: str = "",
) -> Generator[Action, Outcome, list[Tree]]:
    """Adopts and releases; returns the children in the order given, adopted ones last.

    `accepts` is asked in addition to the selector. Adopted objects get the finalizer, if there is one.
    """
    tests = tests_of(owner["spec"].get("selector"))
    members = []
    for child in children:
        if label_selectors.passes(tests, labels_of(child)) and accepts(child):
            members.append(child)
        elif not is_deleted(owner):
            yield from _release(owner, child, finalizer)
    if is_deleted(owner):
        return members

    for orphan in orphans:
        is_match = label_selectors.passes(tests, labels_of(orphan)) and accepts(orphan)
        if is_match and not is_deleted(orphan):
            adopted = yield from _adopt(owner, orphan, finalizer)
            members.extend(adopted)
    return members


def _adopt(owner: Tree, orphan: Tree, finalizer: str) -> Generator[Action, Outcome, list[Tree]]:
    """The object with its new controller; nothing if it is gone, or another controller was first."""
    if controller_of(orphan) is not None:
        return []
    metadata = orphan["metadata"]
    references = [*tree_fields.entries(metadata, "ownerReferences"), reference_to(owner)]
    patch: Tree = {"uid": uid_of(orphan), "ownerReferences": references}
    finalizers = tree_fields.entries(metadata, "finalizers")
    if finalizer and finalizer not in finalizers:
        patch["finalizers"] = [*finalizers, finalizer]
    outcome = yield Patch(orphan, {"metadata": patch})
    if isinstance(outcome, failures.Missing | failures.Conflict):
        return []
    if isinstance(outcome, failures.ApiFailure):
        raise outcome
    return [] if outcome is None else [outcome]


def _release(owner: Tree, child: Tree, finalizer: str) -> Generator[Action, Outcome, None]:
    """Removes the owner from an object that its selector no longer matches."""
    metadata = child["metadata"]
    references = [
        reference
        for reference in tree_fields.entries(metadata, "ownerReferences")
        if reference.get("uid") != uid_of(owner)
    ]
    patch: Tree = {"uid": uid_of(child), "ownerReferences": references or None}
    finalizers = tree_fields.entries(metadata, "finalizers")
    if finalizer in finalizers:
        patch["finalizers"] = [name for name in finalizers if name != finalizer]
    outcome = yield Patch(child, {"metadata": patch})
    if isinstance(outcome, failures.ApiFailure) and not isinstance(
        outcome, failures.Missing | failures.Conflict
    ):
        raise outcome
