"""Changes of objects as people apply them: JSON merge patches, deletions, creations.

Plain data that is printed, stored and carried out elsewhere. `merged` is RFC 7386. Never changes an object in place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes import codec, object_set

Tree = dict[str, Any]


class ObjectRef(msgspec.Struct, frozen=True, order=True, kw_only=True, rename="camel"):
    """The object that a patch changes."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> object_set.Key:
        """What the object is found by."""
        kind = object_set.unique_kind(self.api_version, self.kind)
        return object_set.Key(kind, self.namespace, self.name)

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}"


class Patch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: exactly one of a merge patch, a deletion, or a whole manifest to create."""

    object: ObjectRef
    merge: Tree | None = None
    delete: bool = False
    create: Tree | None = None


def ref_of(struct: codec.Object) -> ObjectRef:
    """The reference to an object."""
    return ObjectRef(
        api_version=struct.api_version,
        kind=struct.kind,
        namespace=struct.metadata.namespace,
        name=struct.metadata.name,
    )


def merged(target: Any, patch: Any) -> Any:
    """The target after a JSON merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def difference(before: Tree, after: Tree) -> Tree:
    """The smallest merge patch that turns one tree into the other."""
    patch: Tree = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if changes := difference(old, value):
                patch[name] = changes
        elif name not in before or old != value:
            patch[name] = value
    return patch
