"""The kinds the in-memory API server serves now: the built-in ones and those of stored CustomResourceDefinitions.

Given definitions as trees as they come and go; finds a kind by path or by apiVersion and kind. A definition takes the
place of a built-in row for the same group and plural until it is deleted. Never stores an object.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.registry import Kind
from dovetail.sim.server import builtin_kinds
from dovetail.sim.server.builtin_kinds import Column, Resource, Scale

Tree = dict[str, Any]
TableKey = tuple[str, str]  # group and plural

_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")
_REGISTRY: Final = {
    (kind.api_version.rpartition("/")[0], kind.plural): kind for kind in registry.ALL
}


class Served(NamedTuple):
    """A kind in one of its versions."""

    resource: Resource
    api_version: str

    @property
    def is_stored_version(self) -> bool:
        """Whether stored objects need no conversion."""
        return self.api_version == self.resource.kind.api_version

    @property
    def kind(self) -> Kind:
        """The stored kind."""
        return self.resource.kind


class ServedKinds:
    """All kinds of one server."""

    def __init__(self) -> None:
        self._builtin = {table_key(row.kind): row for row in builtin_kinds.TABLE}
        self._custom: dict[TableKey, Resource] = {}
        self._by_path: dict[tuple[str, str], Served] = {}
        self._by_name: dict[tuple[str, str], Served] = {}
        self.changes = 0  # counts changes, for caches of what is derived from the kinds
        self._index()

    def all(self) -> list[Resource]:
        """Every kind, by group and plural."""
        rows = self._builtin | self._custom
        return [rows[key] for key in sorted(rows)]

    def at(self, api_version: str, plural: str) -> Served | None:
        """The kind of a path."""
        return self._by_path.get((api_version, plural))

    def named(self, api_version: str, name: str) -> Served | None:
        """The kind of a document."""
        return self._by_name.get((api_version, name))

    def of(self, kind: Kind) -> Resource | None:
        """The row of a kind in any version."""
        key = table_key(kind)
        return self._custom.get(key) or self._builtin.get(key)

    def stored_kind(self, table: TableKey) -> Kind | None:
        """The kind whose objects are stored there."""
        row = self._custom.get(table) or self._builtin.get(table)
        return None if row is None else row.kind

    def has_status(self, kind: Kind) -> bool:
        """Whether the status has a path of its own."""
        row = self.of(kind)
        return row is not None and row.has_status

    def owner_kind(self, api_version: str, name: str) -> Kind | None:
        """The kind of an owner if its objects are all in this server, so that an absent one is gone."""
        served = self._by_name.get((api_version, name))
        return None if served is None else served.kind

    def define(self, definition: Tree) -> Resource | None:
        """Serves the kind of a CustomResourceDefinition; returns it, or None if nothing of it is served."""
        resource = resource_of(definition)
        if resource is not None:
            self._custom[table_key(resource.kind)] = resource
            self._index()
        return resource

    def forget(self, definition: Tree) -> Kind | None:
        """Stops serving the kind of a deleted definition; returns it, or None if it is still built in."""
        resource = resource_of(definition)
        if resource is None:
            return None
        key = table_key(resource.kind)
        self._custom.pop(key, None)
        self._index()
        return None if key in self._builtin else resource.kind

    def _index(self) -> None:
        self.changes += 1
        self._by_path.clear()
        self._by_name.clear()
        for row in self.all():
            for api_version in row.api_versions:
                served = Served(row, api_version)
                self._by_path[api_version, row.kind.plural] = served
                self._by_name[api_version, row.kind.name] = served


def table_key(kind: Kind) -> TableKey:
    """The group and plural under which objects of a kind are stored, whatever their version."""
    return kind.api_version.rpartition("/")[0], kind.plural


def resource_of(definition: Tree) -> Resource | None:
    """The kind a CustomResourceDefinition describes; None if it serves no version."""
    spec: Tree = definition.get("spec") or {}
    names: Tree = spec.get("names") or {}
    group = str(spec.get("group") or "")
    versions = [version for version in spec.get("versions") or () if version.get("served")]
    if not versions or not names.get("plural") or not names.get("kind"):
        return None

    stored = next((version for version in versions if version.get("storage")), versions[0])
    subresources: Tree = stored.get("subresources") or {}
    api_versions = [f"{group}/{version['name']}" for version in versions]
    stored_version = f"{group}/{stored['name']}"
    known = _REGISTRY.get((group, str(names["plural"])))
    struct = known.struct if known and known.api_version == stored_version else codec.Generic
    is_namespaced = spec.get("scope") != "Cluster"
    kind = Kind(stored_version, str(names["kind"]), str(names["plural"]), is_namespaced, struct)
    if known is not None:
        kind = kind._replace(role=known.role, redacted_as=known.redacted_as)
        if known == kind._replace(older_versions=known.older_versions):
            kind = known  # the same record, so that lookups by the registry's kind agree

    schemas = [
        (f"{group}/{version['name']}", (version.get("schema") or {}).get("openAPIV3Schema"))
        for version in versions
    ]
    return Resource(
        kind,
        str(names.get("singular") or kind.name.lower()),
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        other_versions=tuple(name for name in api_versions if name != stored_version),
        has_status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        columns=_columns(stored.get("additionalPrinterColumns") or ()),
        schemas=tuple(schemas),
        is_custom=True,
    )


def _scale(subresource: Tree | None) -> Scale | None:
    if subresource is None:
        return None
    return Scale(
        str(subresource.get("specReplicasPath") or ".spec.replicas"),
        str(subresource.get("statusReplicasPath") or ".status.replicas"),
        str(subresource.get("labelSelectorPath") or ""),
    )


def _columns(columns: Any) -> tuple[Column, ...]:
    """The columns after the name; a definition without any gets the age, as upstream."""
    if not columns:
        return (_AGE,)
    return tuple(
        Column(
            str(column.get("name")),
            str(column.get("type")),
            str(column.get("jsonPath")),
            int(column.get("priority") or 0),
            str(column.get("description") or ""),
            str(column.get("format") or ""),
        )
        for column in columns
    )
