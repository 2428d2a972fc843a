"""Tables for `kubectl get`: meta.k8s.io Table documents of one object, of a list, or of a watch event.

Given a served kind and its records; built-in kinds have printers, custom resources the columns of their definition.
Given the time; never reads a clock or a store.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail.kubetypes import json_paths
from dovetail.sim.rest.encoding import conversions
from dovetail.sim.rest.printing import printer_columns
from dovetail.sim.rest.printing.column_definitions import NAME, Definition, Printer
from dovetail.sim.rest.printing.printed_values import age
from dovetail.sim.server.builtin_kinds import Column
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import Served, table_key

Tree = dict[str, Any]
META_VERSION: Final = "meta.k8s.io/v1"


class Rows:
    """The rows of one kind. `include` is the query's includeObject: Metadata, Object or None."""

    def __init__(self, served: Served, *, include: str, now: datetime.datetime) -> None:
        self._served = served
        self._include = include or "Metadata"
        self._now = now
        self._printer = _printer(served)

    def table(
        self, records: Iterable[Record], metadata: Tree, *, with_columns: bool = True
    ) -> bytes:
        """The document."""
        rows = [self._row(record) for record in records]
        table: Tree = {
            "kind": "Table",
            "apiVersion": META_VERSION,
            "metadata": metadata,
            "columnDefinitions": [_column(column) for column in self._printer.columns],
            "rows": rows,
        }
        if not with_columns:
            table["columnDefinitions"] = None
        return msgspec.json.encode(table)

    def _row(self, record: Record) -> Tree:
        tree = record.tree
        cells = self._printer.cells(tree, self._now)
        if self._include == "None":
            return {"cells": cells, "object": None}
        if self._include == "Object":
            return {"cells": cells, "object": conversions.tree(self._served, tree)}
        return {"cells": cells, "object": partial(tree)}


def partial(tree: Tree) -> Tree:
    """The metadata of an object as an object of its own."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_VERSION,
        "metadata": tree["metadata"],
    }


def partial_document(record: Record) -> bytes:
    """The metadata of a record."""
    return msgspec.json.encode(partial(record.tree))


def _printer(served: Served) -> Printer:
    resource = served.resource
    if resource.columns:
        return custom_printer(resource.columns)
    return printer_columns.printer_of(table_key(resource.kind))


def custom_printer(columns: tuple[Column, ...]) -> Printer:
    """The printer of a kind whose definition names its columns."""
    definitions = [NAME]
    for column in columns:
        definition = Definition(
            column.name, column.type, column.priority, column.format, column.description
        )
        definitions.append(definition)

    def cells(tree: Tree, now: datetime.datetime) -> list[Any]:
        return [tree["metadata"]["name"], *(_custom_cell(column, tree, now) for column in columns)]

    return Printer(tuple(definitions), cells)


def _custom_cell(column: Column, tree: Tree, now: datetime.datetime) -> Any:
    value = json_paths.first(column.json_path, tree)
    if value is None:
        return None
    match column.type:
        case "date":
            return age(str(value), now)
        case "integer" | "number" | "boolean":
            return value if isinstance(value, int | float) else None
        case _:
            is_text = isinstance(value, str)
            return value if is_text else msgspec.json.encode(value).decode()


def _column(definition: Definition) -> Tree:
    return {
        "name": definition.name,
        "type": definition.type,
        "format": definition.format,
        "description": definition.description or definition.name,
        "priority": definition.priority,
    }
