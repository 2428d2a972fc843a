"""Builds the gangs of all objects that own pods, one owner at a time, and passes on what changed.

Given owners as they come and go: in lists, by watch events, or as edits of a replica. Keeps every gang it passed on, so
that equal ones are not passed on twice. Never reads from a cluster, never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs
from dovetail.model.workloads import owner_gangs
from dovetail.world.owners import native_tree

OwnerKey = tuple[str, str, str]  # unique name of the kind, namespace, name
_PARENTS: Final = frozenset(kind.name for kind in registry.PARENTS)


class GangReceiver(Protocol):
    """Receives gangs as they change."""

    def changed(self, kind: registry.Kind, object_: Any) -> None:
        """A gang appeared or changed."""
        ...

    def deleted(self, kind: registry.Kind, object_: Any) -> None:
        """A gang is gone."""
        ...


class GangBuilder:
    """Owners in, gangs out: passes on a gang when it appears, when it changes, and when its owner is gone."""

    def __init__(self, receiver: GangReceiver) -> None:
        self._receiver = receiver
        self._gangs: dict[OwnerKey, gangs.Gang] = {}  # as passed on
        self._keys: dict[str, set[OwnerKey]] = {}  # every owner, by kind
        self._parents: dict[str, meta.ObjectMeta] = {}  # by uid
        self._uids: dict[OwnerKey, str] = {}  # of parents
        self._children: dict[str, dict[OwnerKey, owners.Owner]] = {}  # owners by their parent's uid
        self._makers: dict[OwnerKey, str] = {}  # each owner's parent uid
        self._forest = native_tree.GroupTrees()
        self.listed: set[str] = set()  # kinds that have been listed

    def changed(self, kind: registry.Kind, owner: Any) -> None:
        """An owner was added or changed."""
        key = owner_key(kind, owner)
        self._keys.setdefault(kind.unique_name, set()).add(key)

        if isinstance(owner, owners.Parent):
            self._uids[key] = owner.metadata.uid
            self._parents[owner.metadata.uid] = owner.metadata
            self._read_children(owner.metadata.uid)
            return

        parent_uid = _parent_uid(owner)
        if parent_uid:
            self._makers[key] = parent_uid
            self._children.setdefault(parent_uid, {})[key] = owner
        if key[0] in native_tree.NATIVE:
            self._read_native(self._forest.put(key, owner))
        else:
            self._read(key, owner)

    def deleted(self, kind: registry.Kind, owner: Any) -> None:
        """An owner is gone."""
        self._gone(owner_key(kind, owner))

    def finish_list(self, kind: str, present: Collection[OwnerKey]) -> None:
        """A list of the kind was read: every other owner of it is gone."""
        self._forget_others(kind, present)
        self.listed.add(kind)
        if kind == registry.COMPOSITE.name:
            self._read_native(self._forest.set_served(is_served=True))

    def remove_kind(self, kind: str) -> None:
        """The server no longer has the kind."""
        if kind == registry.COMPOSITE.name:
            self._read_native(self._forest.set_served(is_served=False))
        self._forget_others(kind, ())
        self.listed.discard(kind)

    def all_gangs(self) -> list[gangs.Gang]:
        """Every gang."""
        return [*self._gangs.values()]

    def _forget_others(self, kind: str, present: Collection[OwnerKey]) -> None:
        for key in sorted(self._keys.get(kind, set()).difference(present)):
            self._gone(key)

    def _gone(self, key: OwnerKey) -> None:
        self._keys.get(key[0], set()).discard(key)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._parents.pop(uid, None)
            self._read_children(uid)
            return

        parent_uid = self._makers.pop(key, None)
        if parent_uid is not None:
            del self._children[parent_uid][key]
            if not self._children[parent_uid]:
                del self._children[parent_uid]
        if key[0] in native_tree.NATIVE:
            self._read_native(self._forest.drop(key))
        else:
            self._pass_on(key, None)

    def _read_children(self, uid: str) -> None:
        for key, child in self._children.get(uid, {}).items():
            self._read(key, child)

    def _read_native(self, keys: Iterable[OwnerKey]) -> None:
        for key in keys:
            self._pass_on(key, self._forest.gang_of(key, self._parent_of(key)))

    def _read(self, key: OwnerKey, owner: owners.Owner) -> None:
        """Builds the owner's gang; its parent's annotations apply to it, too."""
        if key[0] in native_tree.NATIVE:
            self._read_native((key,))
        else:
            self._pass_on(key, owner_gangs.gang_of(owner, self._parent_of(key)))

    def _parent_of(self, key: OwnerKey) -> meta.ObjectMeta | None:
        return self._parents.get(self._makers.get(key, ""))

    def _pass_on(self, key: OwnerKey, gang: gangs.Gang | None) -> None:
        """Passes on what differs from before."""
        before = self._gangs.get(key)
        if gang == before:
            return
        if gang is not None:
            self._gangs[key] = gang
            self._receiver.changed(gangs.KIND, gang)
        elif before is not None:
            del self._gangs[key]
            self._receiver.deleted(gangs.KIND, before)


def owner_key(kind: registry.Kind, owner: Any) -> OwnerKey:
    """What an owner is stored by."""
    return kind.unique_name, owner.metadata.namespace, owner.metadata.name


def _parent_uid(owner: owners.Owner) -> str:
    """The uid of an owner's controller, where its kind may carry annotations for gangs."""
    for reference in owner.metadata.owner_references:
        if reference.controller and reference.kind in _PARENTS:
            return reference.uid
    return ""
