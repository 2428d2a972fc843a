"""Tables of kinds that have none of our own: the server's, with the columns kubectl shows.

Given words the server knows. Returns a listing. Never prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli.cluster import resource_arguments
from dovetail.cli.tables import listing, text

if TYPE_CHECKING:
    from dovetail.kube import object_requests, resource_names
    from dovetail.kube.http import transport

NAMESPACE = "namespace"


async def resource_of(over: transport.Transport, word: str) -> resource_names.Resource:
    """The kind that a word means. Raises InputError if the server serves none of that name."""
    from dovetail.kube import resource_names

    return resource_arguments.resource_of(word, await resource_names.discover(over))


async def listed(
    over: transport.Transport, resource: resource_names.Resource, query: listing.Query
) -> listing.Listing:
    """The objects of one kind that the query selects."""
    from dovetail.kube import object_requests

    place = (query.namespace or "") if resource.kind.is_namespaced else ""
    fields = listing.fields_of_name(query.names)
    selectors = {"labelSelector": query.labels, "fieldSelector": fields}
    params = {name: value for name, value in selectors.items() if value}
    table = await object_requests.table(over, resource.kind, namespace=place, params=params)
    trees = await object_requests.listed(over, resource.kind, namespace=place, params=params)
    return _listing(table, resource, query, trees)


def _listing(
    table: object_requests.Table,
    resource: resource_names.Resource,
    query: listing.Query,
    trees: Sequence[listing.Tree],
) -> listing.Listing:
    columns = table.column_definitions
    narrow = [number for number, column in enumerate(columns) if not column.get("priority")]
    wide = [number for number, column in enumerate(columns) if column.get("priority")]
    has_namespace = resource.kind.is_namespaced and query.namespace is None
    shown = [row for row in table.rows if query.wants_name(_metadata(row).get("name", ""))]
    shown.sort(key=lambda row: (_metadata(row).get("namespace", ""), _sort_key(row)))
    rows = tuple(
        listing.Row(
            f"{resource.label}/{_metadata(row).get('name', '')}",
            (
                *((str(_metadata(row).get("namespace", "")),) if has_namespace else ()),
                *(_cell(row, number) for number in narrow),
            ),
            tuple(_cell(row, number) for number in wide),
        )
        for row in shown
    )
    headers = [str(columns[number].get("name", "")) for number in narrow]
    wanted = [tree for tree in trees if query.wants_name(tree["metadata"]["name"])]
    return listing.Listing(
        (*((NAMESPACE,) if has_namespace else ()), *headers),
        tuple(str(columns[number].get("name", "")) for number in wide),
        rows,
        lambda: wanted,
    )


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = (row.get("object") or {}).get("metadata") or {}
    return metadata


def _sort_key(row: dict[str, Any]) -> list[tuple[int, int, str]]:
    return text.natural(str(_metadata(row).get("name", "")))


def _cell(row: dict[str, Any], number: int) -> str:
    cells = row.get("cells") or ()
    value = cells[number] if number < len(cells) else ""
    return "" if value is None else str(value)
