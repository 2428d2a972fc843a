"""Indexes PodGroups and CompositePodGroups as trees, and builds the gang of each group.

Given the groups one by one, in any order; a group names its parent. Returns the groups whose gang may have changed.
Where the server has no CompositePodGroups, a PodGroup stands alone even if it names a parent. Never notifies the
informer itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs
from dovetail.model.workloads import native_gangs

OwnerKey = tuple[str, str, str]  # kind, namespace, name
NATIVE: Final = frozenset({registry.POD_GROUP.name, registry.COMPOSITE.name})
TOO_DEEP: Final = f"its tree has more than {native_gangs.MOST_LEVELS} levels of groups, or a group is its own ancestor"
PARENT_IGNORED: Final = (
    "spec.parentCompositePodGroupName is ignored: the server has no CompositePodGroups, or the "
    "scheduler may not list them"
)


class GroupTrees:
    """All native groups of the cluster."""

    def __init__(self) -> None:
        self._groups: dict[OwnerKey, native_gangs.Native] = {}
        self._children: dict[OwnerKey, dict[OwnerKey, None]] = {}  # by parent, even if it is absent
        self._is_served = False  # whether the server has CompositePodGroups

    def put(self, key: OwnerKey, group: native_gangs.Native) -> list[OwnerKey]:
        """Adds or changes a group; returns the groups whose gang may have changed, composites first."""
        before = self._groups.get(key)
        if before is not None and _is_same_gang(before, group):
            self._groups[key] = group
            return []

        touched = self._related(key) if before is not None else []
        self._unlink(key)
        self._groups[key] = group
        parent = _parent(group, key[1])
        if parent is not None:
            self._children.setdefault(parent, {})[key] = None
        return _ordered({*touched, *self._related(key)})

    def drop(self, key: OwnerKey) -> list[OwnerKey]:
        """Removes a group; returns the groups whose gang may have changed.

        PodGroups first: none may name a gang that is gone.
        """
        touched = self._related(key)
        self._unlink(key)
        self._groups.pop(key, None)
        return [*reversed(_ordered({*touched, key}))]

    def set_served(self, *, is_served: bool) -> list[OwnerKey]:
        """Records whether the server has composites; returns the groups whose gang changes by that."""
        if self._is_served == is_served:
            return []
        self._is_served = is_served
        return _ordered({key for keys in self._children.values() for key in keys})

    def gang_of(self, key: OwnerKey, maker: meta.ObjectMeta | None = None) -> gangs.Gang | None:
        """The gang a group makes, or is part of; None for a group that is gone, and for an inner composite."""
        group = self._groups.get(key)
        if group is None:
            return None

        path = self._path(group, key[1])
        if isinstance(group, owners.CompositePodGroup):
            return native_gangs.composite(group, path, self._below)

        gang = native_gangs.pod_group(group, path, maker)
        if gang is None or self._is_served or _parent(group, key[1]) is None:
            return gang
        return msgspec.structs.replace(gang, problems=(*gang.problems, PARENT_IGNORED))

    def _path(self, group: native_gangs.Native, namespace: str) -> native_gangs.Path:
        """The composites above a group. Bounded by the deepest tree allowed, so a cycle ends, too."""
        above: list[owners.CompositePodGroup] = []
        key = _parent(group, namespace) if self._is_served else None
        while key is not None:
            parent = self._groups.get(key)
            if not isinstance(parent, owners.CompositePodGroup):
                return native_gangs.Path(missing=key[2])
            above.append(parent)
            if len(above) >= native_gangs.MOST_LEVELS:
                return native_gangs.Path(problem=TOO_DEEP)
            key = _parent(parent, namespace)
        return native_gangs.Path(tuple(above))

    def _below(self, composite: owners.CompositePodGroup) -> Iterator[native_gangs.Native]:
        """The direct children of a composite, by name."""
        key = (registry.COMPOSITE.name, composite.metadata.namespace, composite.metadata.name)
        return (self._groups[child] for child in sorted(self._children.get(key, ())))

    def _related(self, key: OwnerKey) -> list[OwnerKey]:
        """The groups whose gangs depend on a group: its ancestors, itself, and its descendants.

        Both walks stop at the deepest tree allowed.
        """
        related = dict.fromkeys([key, *self._ancestors(key)])
        level = [key]
        for _ in range(native_gangs.MOST_LEVELS):
            level = [child for parent in level for child in self._children.get(parent, ())]
            related.update(dict.fromkeys(level))
        return [*related]

    def _ancestors(self, key: OwnerKey) -> Iterator[OwnerKey]:
        group = self._groups.get(key)
        for _ in range(native_gangs.MOST_LEVELS):
            parent = _parent(group, key[1]) if group is not None else None
            if parent is None:
                return
            yield parent
            group = self._groups.get(parent)

    def _unlink(self, key: OwnerKey) -> None:
        """Removes the group from its parent's children."""
        before = self._groups.get(key)
        parent = _parent(before, key[1]) if before is not None else None
        if parent is None:
            return

        siblings = self._children.get(parent, {})
        siblings.pop(key, None)
        if not siblings:
            self._children.pop(parent, None)


def _parent(group: native_gangs.Native, namespace: str) -> OwnerKey | None:
    name = group.spec.parent_composite_pod_group_name
    return (registry.COMPOSITE.name, namespace, name) if name else None


def _is_same_gang(before: native_gangs.Native, after: native_gangs.Native) -> bool:
    """Whether the fields a gang is built from are equal: the status of groups changes often."""
    metadata = msgspec.structs.replace(
        after.metadata, resource_version=before.metadata.resource_version
    )
    return before.spec == after.spec and before.metadata == metadata


def _ordered(keys: set[OwnerKey]) -> list[OwnerKey]:
    """Composites before PodGroups, each by name."""
    return sorted(keys)
