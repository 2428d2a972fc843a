"""Keeps native groups as the trees they stand in, and says which gang each of them makes.

Fed PodGroups and CompositePodGroups one by one, in any order; a group names its parent. Says whose gang may be another
after a change. Where composites are not served a PodGroup stands alone, whatever it names. Never tells anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.model import gangs, kinds, meta
from dovetail.model.workloads import native, owners

OwnerKey = tuple[str, str, str]  # kind, namespace, name
NATIVE: Final = frozenset({kinds.POD_GROUP.name, kinds.COMPOSITE.name})
TOO_HIGH: Final = f"its tree has more than {native.MOST_LEVELS} levels of groups, or a group is above itself"
LEFT_OUT: Final = "spec.parentCompositePodGroupName is left out: the server serves no CompositePodGroups, or not to us"


class Forest:
    """All native groups there are."""

    def __init__(self) -> None:
        self._found: dict[OwnerKey, native.Native] = {}
        self._children: dict[OwnerKey, dict[OwnerKey, None]] = {}  # by parent, be it there or not
        self._is_served = False  # whether there are composites at all

    def put(self, key: OwnerKey, found: native.Native) -> list[OwnerKey]:
        """A group is there, or differs; whose gang may be another, composites first."""
        before = self._found.get(key)
        if before is not None and _says_the_same(before, found):
            self._found[key] = found
            return []
        touched = self._near(key) if before is not None else []
        self._unlink(key)
        self._found[key] = found
        parent = _parent(found, key[1])
        if parent is not None:
            self._children.setdefault(parent, {})[key] = None
        return _ordered({*touched, *self._near(key)})

    def drop(self, key: OwnerKey) -> list[OwnerKey]:
        """A group is gone; whose gang may be another, PodGroups first: none may name a gang that is gone."""
        touched = self._near(key)
        self._unlink(key)
        self._found.pop(key, None)
        return [*reversed(_ordered({*touched, key}))]

    def serve(self, *, is_served: bool) -> list[OwnerKey]:
        """Whether composites are served; whose gang is another by that."""
        if self._is_served == is_served:
            return []
        self._is_served = is_served
        return _ordered({key for keys in self._children.values() for key in keys})

    def gang_of(self, key: OwnerKey, maker: meta.ObjectMeta | None = None) -> gangs.Gang | None:
        """The gang a group makes, or is part of; None for one that is gone, and inside others."""
        found = self._found.get(key)
        if found is None:
            return None
        path = self._path(found, key[1])
        if isinstance(found, owners.CompositePodGroup):
            return native.composite(found, path, self._below)
        gang = native.pod_group(found, path, maker)
        if gang is None or self._is_served or _parent(found, key[1]) is None:
            return gang
        return msgspec.structs.replace(gang, problems=(*gang.problems, LEFT_OUT))

    def _path(self, found: native.Native, namespace: str) -> native.Path:
        """Looks no further up than a tree may reach, however high somebody builds."""
        above: list[owners.CompositePodGroup] = []
        key = _parent(found, namespace) if self._is_served else None
        while key is not None:
            parent = self._found.get(key)
            if not isinstance(parent, owners.CompositePodGroup):
                return native.Path(missing=key[2])
            above.append(parent)
            if len(above) >= native.MOST_LEVELS:
                return native.Path(problem=TOO_HIGH)
            key = _parent(parent, namespace)
        return native.Path(tuple(above))

    def _below(self, found: owners.CompositePodGroup) -> Iterator[native.Native]:
        """The groups of a composite by name."""
        key = (kinds.COMPOSITE.name, found.metadata.namespace, found.metadata.name)
        return (self._found[child] for child in sorted(self._children.get(key, ())))

    def _near(self, key: OwnerKey) -> list[OwnerKey]:
        """Whose gangs a group matters to: those above it, itself, and all below, as far as a tree may reach."""
        found = {key: None}
        at: OwnerKey | None = key
        for _ in range(native.MOST_LEVELS):
            one = self._found.get(at) if at is not None else None
            at = _parent(one, key[1]) if one is not None else None
            if at is not None:
                found[at] = None
        level = [key]
        for _ in range(native.MOST_LEVELS):
            level = [child for parent in level for child in self._children.get(parent, ())]
            found.update(dict.fromkeys(level))
        return [*found]

    def _unlink(self, key: OwnerKey) -> None:
        before = self._found.get(key)
        parent = _parent(before, key[1]) if before is not None else None
        if parent is not None and key in self._children.get(parent, {}):
            del self._children[parent][key]
            if not self._children[parent]:
                del self._children[parent]


def _parent(found: native.Native, namespace: str) -> OwnerKey | None:
    name = found.spec.parent_composite_pod_group_name
    return (kinds.COMPOSITE.name, namespace, name) if name else None


def _says_the_same(one: native.Native, other: native.Native) -> bool:
    """Whether nothing that gangs are read off differs: groups change their status often."""
    metadata = msgspec.structs.replace(other.metadata, resource_version=one.metadata.resource_version)
    return one.spec == other.spec and one.metadata == metadata


def _ordered(keys: set[OwnerKey]) -> list[OwnerKey]:
    """Composites before PodGroups, each by name."""
    return sorted(keys)
