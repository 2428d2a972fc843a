"""The history of a StatefulSet's or a DaemonSet's template, as ControllerRevisions.

Given an owner and its revisions; yields what keeps the history in order and returns the revision of the template as
it is now. Never looks at pods.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import Any, Final

from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_templates,
    tree_fields,
)
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation
from dovetail.sim.controllers.object_index import APPS

Tree = dict[str, Any]

POD_LABEL: Final = "controller-revision-hash"  # on pods, for both kinds of owners
HASH_LABEL: Final = "controller.kubernetes.io/hash"  # on the revisions of a StatefulSet


def history(situation: Situation) -> Generator[Action, Outcome, list[Tree]]:
    """The revisions of an owner, oldest first, adopted ones included."""
    owner, objects = situation.owner, situation.objects
    namespace = owner["metadata"].get("namespace", "")
    orphans = objects.orphans(APPS, "ControllerRevision", namespace)
    children = objects.controlled(owner, "ControllerRevision")
    revisions = yield from owner_references.claimed(owner, children, orphans)
    return sorted(revisions, key=_order)


def current(
    owner: Tree, revisions: list[Tree], *, hash_label: str
) -> Generator[Action, Outcome, Tree]:
    """The revision of the owner's template: a known one, which becomes the latest, or a new one."""
    wanted = _data(owner["spec"]["template"])
    equal = [revision for revision in revisions if _is_equal(revision["data"], wanted)]
    others = [revision for revision in revisions if not _is_equal(revision["data"], wanted)]
    latest = max((number_of(revision) for revision in others), default=0)
    if not equal:
        tree = _revision(owner, wanted, number=latest + 1, hash_label=hash_label)
        return controller_actions.stored((yield controller_actions.Create(tree)))
    revision = equal[-1]
    if number_of(revision) > latest:
        return revision
    return (yield from controller_actions.written(revision, {"revision": latest + 1}))


def template_of(revision: Tree) -> Tree:
    """The pod template that a revision holds."""
    template: Tree = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def number_of(revision: Tree) -> int:
    """The number of a revision; the highest is the latest."""
    return tree_fields.number(revision, "revision")


def named(revisions: Iterable[Tree], name: str) -> Tree | None:
    """The revision of this name."""
    for revision in revisions:
        if revision["metadata"]["name"] == name:
            return revision
    return None


def truncated(
    revisions: list[Tree], *, live: Collection[str], surplus: int
) -> Generator[Action, Outcome, None]:
    """Deletes the oldest revisions that no pod has, as many as are too many."""
    dead = [revision for revision in revisions if revision["metadata"]["name"] not in live]
    for revision in dead[: max(surplus, 0)]:
        yield from controller_actions.deleted(revision)


def _revision(owner: Tree, data: Tree, *, number: int, hash_label: str) -> Tree:
    collisions = tree_fields.number(owner, "status", "collisionCount")
    hash_text = pod_templates.template_hash(data["spec"]["template"], collisions)
    metadata = owner["metadata"]
    tree: Tree = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{metadata['name']}-{hash_text}",
            "namespace": metadata.get("namespace", ""),
            "labels": owner_references.labels_of(data["spec"]["template"])
            | {hash_label: hash_text},
            "ownerReferences": [owner_references.reference_to(owner)],
        },
        "data": data,
        "revision": number,
    }
    if owner_references.annotations_of(owner):
        tree["metadata"]["annotations"] = dict(owner_references.annotations_of(owner))
    return tree


def _data(template: Tree) -> Tree:
    """A patch that sets the template: what kubectl's rollback applies."""
    return {"spec": {"template": template | {"$patch": "replace"}}}


def _is_equal(data: Tree, wanted: Tree) -> bool:
    return bool(pod_templates.normal_form(data) == pod_templates.normal_form(wanted))


def _order(revision: Tree) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return number_of(revision), str(metadata.get("creationTimestamp")), metadata["name"]
