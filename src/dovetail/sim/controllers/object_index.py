"""The objects that controllers look at, indexed: by key, by uid, by owner, by kind and namespace.

Given whole trees as they change; answers questions about them in sorted order, so that controllers act in the same
order on every run. Each change costs as much as the object has owners. Never writes to a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dovetail.sim.controllers import tree_fields

Tree = dict[str, Any]

APPS: Final = "apps"
BATCH: Final = "batch"
CORE: Final = ""


class Key(NamedTuple):
    """What identifies an object. Versions of an API group serve the same objects, so the version is no part of it."""

    group: str
    kind: str
    namespace: str
    name: str


class Change(NamedTuple):
    """An object before and after; one of the two is None for an object that is new or gone."""

    old: Tree | None
    new: Tree | None

    @property
    def tree(self) -> Tree:
        """The newer of the two."""
        tree = self.new if self.new is not None else self.old
        assert tree is not None
        return tree


def group_of(api_version: str) -> str:
    """The API group of an apiVersion; empty for core."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else CORE


def key_of(tree: Tree) -> Key:
    """The key of an object."""
    metadata = tree["metadata"]
    group = group_of(tree["apiVersion"])
    return Key(group, tree["kind"], metadata.get("namespace") or "", metadata["name"])


def uid_of(tree: Tree) -> str:
    """The uid of an object."""
    return str(tree["metadata"]["uid"])


def controller_of(tree: Tree) -> Tree | None:
    """The owner reference of the controller, if the object has one."""
    for reference in tree_fields.entries(tree["metadata"], "ownerReferences"):
        if reference.get("controller"):
            owner: Tree = reference
            return owner
    return None


class ObjectIndex:
    """Every object the controllers were notified of."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Tree] = {}
        self._by_uid: dict[str, Key] = {}
        self._children: dict[str, set[Key]] = {}
        self._controlled: dict[tuple[str, str], dict[str, Tree]] = {}  # by uid and kind, then name
        self._by_kind: dict[tuple[str, str], dict[str, set[str]]] = {}
        self._orphans: dict[tuple[str, str, str], set[Key]] = {}

    # Changes

    def put(self, tree: Tree) -> Change:
        """Stores an object in place of the last one of its key."""
        key = key_of(tree)
        old = self._by_key.get(key)
        if old is not None:
            self._unlink(key, old)
        self._by_key[key] = tree
        self._by_uid[uid_of(tree)] = key
        self._by_kind.setdefault(key[:2], {}).setdefault(key.namespace, set()).add(key.name)
        for uid in _owner_uids(tree):
            self._children.setdefault(uid, set()).add(key)
        controller = controller_of(tree)
        if controller is None:
            self._orphans.setdefault(key[:3], set()).add(key)
        else:
            siblings = self._controlled.setdefault((str(controller.get("uid")), key.kind), {})
            siblings[key.name] = tree
        return Change(old, tree)

    def remove(self, key: Key) -> Change | None:
        """Forgets an object; None if it was not there."""
        old = self._by_key.pop(key, None)
        if old is None:
            return None
        self._unlink(key, old)
        self._by_kind[key[:2]][key.namespace].discard(key.name)
        return Change(old, None)

    def _unlink(self, key: Key, old: Tree) -> None:
        if self._by_uid.get(uid_of(old)) == key:
            del self._by_uid[uid_of(old)]
        for uid in _owner_uids(old):
            children = self._children.get(uid, set())
            children.discard(key)
            if not children:
                self._children.pop(uid, None)
        controller = controller_of(old)
        if controller is None:
            self._orphans.get(key[:3], set()).discard(key)
            return
        place = (str(controller.get("uid")), key.kind)
        siblings = self._controlled.get(place, {})
        siblings.pop(key.name, None)
        if not siblings:
            self._controlled.pop(place, None)

    # Questions

    def find(self, key: Key) -> Tree | None:
        """One object."""
        return self._by_key.get(key)

    def with_uid(self, uid: str) -> Tree | None:
        """The object of this uid."""
        key = self._by_uid.get(uid)
        return None if key is None else self._by_key[key]

    def dependents(self, uid: str) -> list[Tree]:
        """All objects that name this owner, by key."""
        return [self._by_key[key] for key in sorted(self._children.get(uid, ()))]

    def controlled(self, owner: Tree, kind: str) -> list[Tree]:
        """The objects of a kind whose controller is `owner`, by name. A controller owns in its own namespace only."""
        siblings = self._controlled.get((uid_of(owner), kind), {})
        return [siblings[name] for name in sorted(siblings)]

    def orphans(self, group: str, kind: str, namespace: str) -> list[Tree]:
        """The objects of a kind in a namespace that have no controller, by name."""
        return [
            self._by_key[key] for key in sorted(self._orphans.get((group, kind, namespace), ()))
        ]

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> Iterator[Tree]:
        """The objects of a kind, in one namespace or in all, by namespace and name."""
        namespaces = self._by_kind.get((group, kind), {})
        for place in sorted(namespaces) if namespace is None else [namespace]:
            for name in sorted(namespaces.get(place, ())):
                yield self._by_key[Key(group, kind, place, name)]


def _owner_uids(tree: Tree) -> set[str]:
    references = tree_fields.entries(tree["metadata"], "ownerReferences")
    return {str(reference.get("uid")) for reference in references}
