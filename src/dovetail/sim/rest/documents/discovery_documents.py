"""Discovery: which groups, versions and kinds the server serves, as plain lists and as aggregated documents.

Given the served kinds; documents are made when they are first asked for and again after the kinds changed. Never reads
an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail.sim.rest import access_answers
from dovetail.sim.server.builtin_kinds import Resource
from dovetail.sim.server.served_kinds import ServedKinds

Tree = dict[str, Any]

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
_WRITES: Final = ["get", "patch", "update"]
_VERSION: Final = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")
# Groups in the order upstream lists them first; others follow by name.
_FIRST_GROUPS: Final = ("", "apiregistration.k8s.io", "apps", "events.k8s.io")

Row = tuple[str, Tree]  # the apiVersion and the resource as APIResource has it


class DiscoveryDocuments:
    """The discovery of one server."""

    def __init__(self, kinds: ServedKinds) -> None:
        self._kinds = kinds
        self._made_at = -1
        self._rows: list[Row] = []

    def versions(self) -> bytes:
        """/api."""
        return _encoded(
            {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [],
            }
        )

    def groups(self) -> bytes:
        """/apis."""
        groups = [self._group(name) for name in self._group_names() if name]
        return _encoded({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, name: str) -> bytes | None:
        """/apis/GROUP."""
        if name not in self._group_names():
            return None
        return _encoded({"kind": "APIGroup", "apiVersion": "v1"} | self._group(name))

    def resources(self, api_version: str) -> bytes | None:
        """/api/v1 and /apis/GROUP/VERSION."""
        rows = [row for version, row in self._current() if version == api_version]
        if not rows:
            return None
        return _encoded(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": api_version,
                "resources": rows,
            }
        )

    def aggregated(self, *, core: bool) -> bytes:
        """The aggregated form of /api or of /apis."""
        names = [name for name in self._group_names() if bool(name) != core]
        items = [self._aggregated_group(name) for name in names]
        return _encoded(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": items,
            }
        )

    def api_versions(self) -> list[str]:
        """Every apiVersion that is served."""
        return list(dict.fromkeys(version for version, _ in self._current()))

    def _current(self) -> list[Row]:
        if self._made_at != self._kinds.changes:
            self._made_at = self._kinds.changes
            self._rows = [*_rows(self._kinds.all()), *_review_rows()]
        return self._rows

    def _group_names(self) -> list[str]:
        names = {version.rpartition("/")[0] for version in self.api_versions()}
        first = [name for name in _FIRST_GROUPS if name in names]
        return [*first, *sorted(names - set(first))]

    def _versions_of(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        versions = [
            version for version in self.api_versions() if version.rpartition("/")[0] == group
        ]
        return sorted(versions, key=lambda version: _rank(version.rpartition("/")[2]))

    def _group(self, name: str) -> Tree:
        versions = [
            {"groupVersion": version, "version": version.rpartition("/")[2]}
            for version in self._versions_of(name)
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _aggregated_group(self, name: str) -> Tree:
        versions = []
        for api_version in self._versions_of(name):
            rows = [row for version, row in self._current() if version == api_version]
            version = {
                "version": api_version.rpartition("/")[2],
                "resources": _aggregated_resources(api_version, rows),
                "freshness": "Current",
            }
            versions.append(version)
        metadata = {"name": name} if name else {}
        return {"metadata": metadata, "versions": versions}


def _rank(version: str) -> tuple[int, int, int]:
    """v2, v1, v1beta2, v1beta1, v1alpha1; then everything else."""
    match = _VERSION.match(version)
    if match is None:
        return 3, 0, 0
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return stability, -int(match[1]), -int(match[3] or 0)


def _rows(resources: Iterable[Resource]) -> list[Row]:
    rows: list[Row] = []
    for resource in resources:
        for api_version in resource.api_versions:
            rows += [(api_version, row) for row in _resource_rows(resource)]
    return rows


def _resource_rows(resource: Resource) -> list[Tree]:
    kind = resource.kind
    row: Tree = {
        "name": kind.plural,
        "singularName": resource.singular,
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": list(VERBS),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    rows = [row]
    for name, kind_of, verbs in _subresources(resource):
        below: Tree = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.is_namespaced,
            "verbs": verbs,
        }
        rows.append(below | kind_of)
    return rows


def _subresources(resource: Resource) -> list[tuple[str, Tree, list[str]]]:
    """Name, kind and verbs of each subresource."""
    kind = resource.kind
    subresources: list[tuple[str, Tree, list[str]]] = []
    if resource.has_status:
        subresources.append(("status", {"kind": kind.name}, _WRITES))
    if resource.scale is not None:
        scale = {"kind": "Scale", "group": "autoscaling", "version": "v1"}
        subresources.append(("scale", scale, _WRITES))
    if kind.api_version != "v1":
        return subresources
    match kind.name:
        case "Pod":
            eviction = {"kind": "Eviction", "group": "policy", "version": "v1"}
            subresources.append(("binding", {"kind": "Binding"}, ["create"]))
            subresources.append(("eviction", eviction, ["create"]))
        case "Namespace":
            subresources.append(("finalize", {"kind": "Namespace"}, ["update"]))
        case "ServiceAccount":
            token = {"kind": "TokenRequest", "group": "authentication.k8s.io", "version": "v1"}
            subresources.append(("token", token, ["create"]))
    return subresources


def _review_rows() -> list[Row]:
    rows: list[Row] = []
    for review in access_answers.REVIEWS:
        row: Tree = {
            "name": review.plural,
            "singularName": review.kind.lower(),
            "namespaced": review.is_namespaced,
            "kind": review.kind,
            "verbs": ["create"],
        }
        rows.append((review.api_version, row))
    return rows


def _aggregated_resources(api_version: str, rows: list[Tree]) -> list[Tree]:
    resources: dict[str, Tree] = {}
    for row in rows:
        plural, _, subresource = row["name"].partition("/")
        kind = _response_kind(api_version, row)
        if subresource:
            entry = {"subresource": subresource, "responseKind": kind, "verbs": row["verbs"]}
            resources[plural].setdefault("subresources", []).append(entry)
            continue
        entry = {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if row["namespaced"] else "Cluster",
            "singularResource": row["singularName"],
            "verbs": row["verbs"],
        }
        for field in ("shortNames", "categories"):
            if field in row:
                entry[field] = row[field]
        resources[plural] = entry
    return list(resources.values())


def _response_kind(api_version: str, row: Tree) -> Tree:
    group, _, version = api_version.rpartition("/")
    return {
        "group": row.get("group", group),
        "version": row.get("version", version),
        "kind": row["kind"],
    }


def _encoded(tree: Tree) -> bytes:
    return msgspec.json.encode(tree)
