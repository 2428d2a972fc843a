"""Where a workload says something in a label or annotation, and how that is changed.

Given a case and a key. The outermost object that has the key decides it, so it is changed there: on the owner, on its
pod template, or on the pods. Never reads what a value means.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import edits, tree_paths
from dovetail.answer.why.fixes.proposals import Case, Change, Edit, ObjectChange
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes import codec, registry

ANNOTATIONS: Final = "annotations"
LABELS: Final = "labels"
# Objects whose own labels and annotations count, not only those of their pod template.
_SPEAKING: Final = frozenset(kind.unique_name for kind in (*registry.OWNERS, *registry.PARENTS))


def value_of(case: Case, key: str) -> str | None:
    """What the workload says under a key."""
    owner = _speaking_owner(case)
    if owner is not None:
        for section in (ANNOTATIONS, LABELS):
            value = tree_paths.at(tree_paths.tree_of(owner), ("metadata", section, key))
            if value is not None:
                return str(value)
    metadata = case.pod.metadata
    return metadata.annotations.get(key, metadata.labels.get(key))


def changed(
    case: Case, key: str, value: str | None, *, section: str = ANNOTATIONS
) -> tuple[Change, ...]:
    """The change that sets a key, or removes it; a new one goes into this section of the outermost object."""
    owner = _speaking_owner(case)
    if owner is not None:
        ref = patches.ref_of(owner.struct)
        for own in (ANNOTATIONS, LABELS):
            if tree_paths.at(tree_paths.tree_of(owner), ("metadata", own, key)) is not None:
                return (ObjectChange(ref, _edit(("metadata", own, key), value)),)
    metadata = case.pod.metadata
    if key in metadata.annotations:
        section = ANNOTATIONS
    elif key in metadata.labels:
        section = LABELS
    elif owner is not None:
        return (ObjectChange(ref, _edit(("metadata", section, key), value)),)
    return case.pod_change(_edit(("metadata", section, key), value))


def _edit(path: Path, value: str | None) -> Edit:
    if value is not None:
        return edits.setting(path, value)

    def edit(tree: Tree) -> Tree:
        result: Tree = tree_paths.without(tree, path)
        return result

    return edit


def _speaking_owner(case: Case) -> codec.Stored | None:
    key = case.authors.of(case.pod).key
    if key is None or key.kind not in _SPEAKING:
        return None
    return case.replica.get(key)
