"""Objects of one cluster as they were read at one time, by kind, namespace and name. Read-only.

Filled from an API server or from a snapshot, and given to everything that only looks: tables, answers, checks. Holds
the kinds that were read and nothing else, so an absent kind is an empty one. Never reads anything itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import codec, registry

DEFAULT_NAMESPACE: Final = "default"

_SCOPES: Final = {kind.unique_name: kind.is_namespaced for kind in registry.ALL}
_NAMES: Final = {(kind.group, kind.name): kind.unique_name for kind in registry.ALL}


class Key(msgspec.Struct, frozen=True, order=True):
    """What an object is found by. Cluster-scoped objects have an empty namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return codec.named(self.kind, self.namespace, self.name)


class Read(NamedTuple):
    """One list to read: a kind, and what the server filters before it answers. No namespace means all of them."""

    kind: registry.Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    is_optional: bool = False  # without the right to read it, the answer lacks only details

    @property
    def params(self) -> dict[str, str]:
        """The selectors as query parameters."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in selectors.items() if text}


class ObjectSet(msgspec.Struct, frozen=True):
    """What was read of a cluster. `revision` is the newest version among its lists, 0 where none is a number."""

    cluster: str
    revision: int = 0
    by_kind: Mapping[str, Mapping[Key, codec.Stored]] = {}

    def listed(self, kind: str, *, namespace: str | None = None) -> Iterator[codec.Stored]:
        """The objects of one kind, of one namespace or all, by namespace and name."""
        for key, stored in self.by_kind.get(kind, {}).items():
            if namespace in (None, key.namespace):
                yield stored

    def get(self, key: Key) -> codec.Stored | None:
        """One object."""
        return self.by_kind.get(key.kind, {}).get(key)

    def count(self, kind: str) -> int:
        """How many objects of a kind there are."""
        return len(self.by_kind.get(kind, {}))

    def all(self) -> Iterator[codec.Stored]:
        """Every object, kind by kind."""
        for objects in self.by_kind.values():
            yield from objects.values()


NOTHING: Final = ObjectSet("")


def of(cluster: str, objects: Iterable[codec.Stored], *, revision: int = 0) -> ObjectSet:
    """A set of these objects; of two with one key the later one counts."""
    return of_keyed(cluster, {key_of(each.struct): each for each in objects}, revision=revision)


def of_keyed(cluster: str, objects: Mapping[Key, codec.Stored], *, revision: int = 0) -> ObjectSet:
    """A set of objects whose keys are known already."""
    by_kind: dict[str, dict[Key, codec.Stored]] = {}
    for key, stored in objects.items():
        by_kind.setdefault(key.kind, {})[key] = stored
    ordered = {kind: dict(sorted(objects.items())) for kind, objects in by_kind.items()}
    return ObjectSet(cluster, revision, ordered)


def joined(first: ObjectSet, second: ObjectSet) -> ObjectSet:
    """Both sets as one, named as the first."""
    return of(
        first.cluster,
        (*first.all(), *second.all()),
        revision=max(first.revision, second.revision),
    )


def key_of(struct: codec.Object) -> Key:
    """What the object is found by."""
    kind = unique_kind(struct.api_version, struct.kind)
    return Key(kind, struct.metadata.namespace, struct.metadata.name)


def unique_kind(api_version: str, kind: str) -> str:
    """The kind as it stands in keys: with its group, as kubectl writes it, where another kind may have the same name.

    Kinds of Kubernetes itself go by their name alone; those of other projects too, where the registry has them.
    """
    group = api_version.rpartition("/")[0]
    unique_name = _NAMES.get((group, kind))
    if unique_name is not None:
        return unique_name
    is_of_kubernetes = "." not in group or group.endswith(".k8s.io")
    return kind if is_of_kubernetes and kind not in _SCOPES else f"{kind}.{group}"


def is_namespaced(kind: str) -> bool:
    """Whether objects of a kind of the registry live in namespaces; any other kind counts as namespaced."""
    return _SCOPES.get(kind, True)


def stored_item(kind: registry.Kind, document: bytes) -> codec.Stored:
    """One item of a list. Items of typed lists leave out apiVersion and kind: they are put back.

    Raises DecodeError where the item is not such an object.
    """
    struct = codec.decode_struct(kind.struct, document)
    if not struct.kind:
        document = with_types(kind, document)
        # No other code has seen the struct yet.
        msgspec.structs.force_setattr(struct, "api_version", kind.api_version)
        msgspec.structs.force_setattr(struct, "kind", kind.name)
    return codec.Stored(struct, document)


def with_types(kind: registry.Kind, document: bytes) -> bytes:
    """The document of a list's item that lacks them, with apiVersion and kind."""
    types = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name})
    body = document.lstrip().removeprefix(b"{").lstrip()
    separator = b"" if body.startswith(b"}") else b","
    return types.removesuffix(b"}") + separator + body
