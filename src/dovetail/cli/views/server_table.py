"""Tables of kinds that have none of our own: the server's, with the columns kubectl shows.

Given words the server knows. Returns a listing, or follows one change after the other. Never prints.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.cluster import resource_arguments
from dovetail.ports import failures
from dovetail.tables import listing, text

if TYPE_CHECKING:
    from dovetail.kube import object_requests, resource_names
    from dovetail.kube.http import transport

NAMESPACE: Final = "namespace"
AGAIN_SECONDS: Final = 1.0  # before the next list, where a watch ends

Columns = Sequence[dict[str, Any]]


async def resource_of(over: transport.Transport, word: str) -> resource_names.Resource:
    """The kind that a word means. Raises InputError if the server serves none of that name."""
    from dovetail.kube import resource_names

    return resource_arguments.resource_of(word, await resource_names.discover(over))


async def listed(
    over: transport.Transport, resource: resource_names.Resource, query: listing.Query
) -> listing.Listing:
    """The objects of one kind that the query selects."""
    table = await _table(over, resource, query)
    return _listing(table.rows, table.column_definitions or (), resource, query)


async def followed(
    over: transport.Transport, resource: resource_names.Resource, query: listing.Query
) -> AsyncIterator[tuple[listing.Listing, bool]]:
    """The table, then the row of every change, with whether the object is gone. Rows come once per version."""
    from dovetail.kube import object_requests

    versions: dict[str, str] = {}
    while True:
        table = await _table(over, resource, query)
        columns = table.column_definitions or ()
        fresh = [row for row in table.rows if versions.get(_identity(row)) != _version(row)]
        gone = versions.keys() - {_identity(row) for row in table.rows}
        for identity in gone:
            del versions[identity]
        versions |= {_identity(row): _version(row) for row in fresh}
        yield _listing(fresh, columns, resource, query), False

        place = _place(resource, query)
        events = object_requests.watched_table(
            over, resource.kind, namespace=place, params=_params(query), since=table.version
        )
        try:
            async for event in events:
                if event.type == "BOOKMARK":
                    continue
                is_gone = event.type == "DELETED"
                for row in event.table.rows:
                    versions[_identity(row)] = _version(row)
                    if is_gone:
                        del versions[_identity(row)]
                yield _listing(event.table.rows, columns, resource, query), is_gone
        except (failures.Expired, failures.Unavailable):
            pass  # the next list shows what changed meanwhile
        await asyncio.sleep(AGAIN_SECONDS)


async def _table(
    over: transport.Transport, resource: resource_names.Resource, query: listing.Query
) -> object_requests.Table:
    from dovetail.kube import object_requests

    return await object_requests.table(
        over, resource.kind, namespace=_place(resource, query), params=_params(query)
    )


def _place(resource: resource_names.Resource, query: listing.Query) -> str:
    return (query.namespace or "") if resource.kind.is_namespaced else ""


def _params(query: listing.Query) -> dict[str, str]:
    params = {
        "labelSelector": query.labels,
        "fieldSelector": listing.fields_of(query),
        "includeObject": "Object" if query.needs_documents else "",
    }
    return {name: value for name, value in params.items() if value}


def _listing(
    table_rows: Sequence[dict[str, Any]],
    columns: Columns,
    resource: resource_names.Resource,
    query: listing.Query,
) -> listing.Listing:
    narrow = [number for number, column in enumerate(columns) if not column.get("priority")]
    wide = [number for number, column in enumerate(columns) if column.get("priority")]
    has_namespace = resource.kind.is_namespaced and query.namespace is None
    shown = [row for row in table_rows if query.wants_name(_metadata(row).get("name", ""))]
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
    types = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    return listing.Listing(
        (*((NAMESPACE,) if has_namespace else ()), *headers),
        tuple(str(columns[number].get("name", "")) for number in wide),
        rows,
        lambda: [types | row["object"] for row in shown],
    )


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = (row.get("object") or {}).get("metadata") or {}
    return metadata


def _identity(row: dict[str, Any]) -> str:
    return str(_metadata(row).get("uid") or "")


def _version(row: dict[str, Any]) -> str:
    return str(_metadata(row).get("resourceVersion") or "")


def _sort_key(row: dict[str, Any]) -> list[tuple[int, int, str]]:
    return text.natural(str(_metadata(row).get("name", "")))


def _cell(row: dict[str, Any], number: int) -> str:
    cells = row.get("cells") or ()
    value = cells[number] if number < len(cells) else ""
    return "" if value is None else str(value)
