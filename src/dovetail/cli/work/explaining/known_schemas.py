"""The schemas that `dovetail explain` knows without a cluster: our kinds by the chart, DRA and core kinds by structs.

Given nothing; reads only files of the installation. Fields of kinds that have no struct are not known here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.cli.work.explaining import schema_fields
from dovetail.install import chart
from dovetail.kube import resource_names
from dovetail.kubetypes import registry
from dovetail.sim.rest.documents import discovery_documents, openapi_documents
from dovetail.sim.server import served_kinds

Tree = dict[str, Any]


def resources() -> resource_names.Resources:
    """The kinds, as a server would name them."""
    builtin = [
        resource_names.Resource(row.kind, row.singular, row.short_names)
        for row in served_kinds.ServedKinds().all()
    ]
    own = (registry.QUEUE, registry.TOPOLOGY, registry.INTENT)
    return resource_names.Resources(
        [*(resource_names.Resource(kind, kind.name.lower()) for kind in own), *builtin]
    )


def document_of(kind: registry.Kind) -> Tree:
    """An OpenAPI v3 document with the schema of the kind."""
    for definition in chart.definitions():
        spec = definition["spec"]
        if spec["group"] == kind.group and spec["names"]["kind"] == kind.name:
            return _custom(kind, spec)
    kinds = served_kinds.ServedKinds()
    documents = openapi_documents.OpenApiDocuments(
        kinds, discovery_documents.DiscoveryDocuments(kinds)
    )
    place = f"api/{kind.api_version}" if kind.is_core else f"apis/{kind.api_version}"
    document = documents.document(place)
    tree: Tree = {} if document is None else msgspec.json.decode(document)
    return tree


def _custom(kind: registry.Kind, spec: Tree) -> Tree:
    version = kind.api_version.rpartition("/")[2]
    schemas = [each["schema"] for each in spec["versions"] if each["name"] == version]
    identity = {"group": kind.group, "version": version, "kind": kind.name}
    schema = schemas[0]["openAPIV3Schema"] | {schema_fields.KIND_EXTENSION: [identity]}
    return {"components": {"schemas": {kind.name: schema}}}
