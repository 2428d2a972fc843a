"""What every table of `dovetail get` is made of: the query, the rows, and one record per table.

A table says which lists it needs; given the objects and filters it returns a `Listing`. Never reads, never prints.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.tables import label_option, text

Tree = dict[str, Any]


class Row(msgspec.Struct, frozen=True):
    """One line: its name as -o name prints it, the narrow cells, the further ones of -o wide, and last ones of both."""

    name: str
    cells: tuple[str, ...]
    wide: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def shown(self, *, is_wide: bool) -> tuple[str, ...]:
        """The cells of a table."""
        return (*self.cells, *(self.wide if is_wide else ()), *self.last)


class Listing(msgspec.Struct, frozen=True):
    """All rows of a resource and the Kubernetes objects behind them."""

    headers: tuple[str, ...]
    wide_headers: tuple[str, ...]
    rows: tuple[Row, ...]
    # One object per row where the table shows objects; called only for formats that print or compare them.
    documents: Callable[[], Sequence[Tree]]
    last_headers: tuple[str, ...] = ()

    def shown_headers(self, *, is_wide: bool) -> tuple[str, ...]:
        """The headers of a table."""
        return (*self.headers, *(self.wide_headers if is_wide else ()), *self.last_headers)


class Query(msgspec.Struct, frozen=True):
    """What the user wants to see, and what was read for it. Namespace None means all of them."""

    objects: object_set.ObjectSet
    now: datetime.datetime
    test: label_option.Test
    namespace: str | None
    node: str | None
    names: tuple[str, ...] = ()
    labels: str = ""  # the selector as typed, for the server
    fields: str = ""  # the field selector, which only a server evaluates
    in_full: bool = False  # nothing is cut short
    needs_documents: bool = False  # the objects themselves are shown or compared

    def wants(self, stored: codec.Stored) -> bool:
        """Whether an object passes the label and name filters."""
        metadata = stored.struct.metadata
        return self.test(metadata.labels) and self.wants_name(metadata.name)

    def wants_name(self, name: str) -> bool:
        """Whether a name was requested, or none was."""
        return not self.names or name in self.names

    def wants_node(self, name: str | None) -> bool:
        """Whether rows of a node are shown."""
        return self.node in (None, name)

    def age(self, stored: codec.Stored) -> str:
        """How old an object is."""
        return text.age(stored.struct.metadata.creation_timestamp, self.now)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table of `dovetail get`: everything the command needs to know about it."""

    name: str
    aliases: tuple[str, ...]
    listing: Callable[[Query], Listing]
    reads: Callable[[Query], tuple[object_set.Read, ...]]
    more_reads: Callable[[Query], tuple[object_set.Read, ...]] = lambda query: ()  # after the first
    next_step: str = "get gpus"
    is_namespaced: bool = False
    shows_objects: bool = True  # one object per row; else rows are put together from several
    definition: registry.Kind | None = None  # set for our own kinds, which may not be installed


def reads_of(kind: registry.Kind) -> Callable[[Query], tuple[object_set.Read, ...]]:
    """Reads the objects of one kind that the query can show, as far as the server can tell."""

    def reads(query: Query) -> tuple[object_set.Read, ...]:
        namespace = (query.namespace or "") if kind.is_namespaced else ""
        return (object_set.Read(kind, namespace, query.labels, fields_of(query)),)

    return reads


def reads_of_nodes(query: Query) -> tuple[object_set.Read, ...]:
    """Reads the nodes that the query can show: one by --node or by name, or those the labels select."""
    names = query.names if query.node is None else (query.node,)
    fields = joined_fields(fields_of_name(names), query.fields)
    return (object_set.Read(registry.NODE, "", query.labels, fields),)


def fields_of_name(names: Sequence[str]) -> str:
    """The field selector of one name. A server cannot select one of several."""
    return f"metadata.name={names[0]}" if len(names) == 1 else ""


def fields_of(query: Query) -> str:
    """The field selector of a query: one name, and what the user gave."""
    return joined_fields(fields_of_name(query.names), query.fields)


def joined_fields(*selectors: str) -> str:
    """Field selectors that must all hold."""
    return ",".join(filter(None, selectors))


def sorted_by(shown: Listing, key: Callable[[Tree], Any]) -> Listing:
    """The rows in the order of a value of their objects; equal ones stay as they are."""
    pairs = list(zip(shown.rows, shown.documents(), strict=True))
    pairs.sort(key=lambda pair: key(pair[1]))
    rows = tuple(row for row, _ in pairs)
    return msgspec.structs.replace(shown, rows=rows, documents=lambda: [tree for _, tree in pairs])


def with_labels(shown: Listing) -> Listing:
    """A last column with the labels of each object."""
    rows = []
    for row, tree in zip(shown.rows, shown.documents(), strict=True):
        labels = (tree.get("metadata") or {}).get("labels") or {}
        cell = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        rows.append(msgspec.structs.replace(row, last=(cell,)))
    return msgspec.structs.replace(shown, rows=tuple(rows), last_headers=("labels",))


def one_row_each(
    query: Query,
    kind: str,
    row_of: Callable[[Any, codec.Stored], Row | None],
    headers: tuple[str, ...],
    wide_headers: tuple[str, ...] = (),
) -> Listing:
    """Rows that show one object each, by namespace and in natural order; objects without a row are left out."""
    namespace = query.namespace if object_set.is_namespaced(kind) else None
    shown: list[tuple[Row, codec.Stored]] = []
    for stored in query.objects.listed(kind, namespace=namespace):
        if not query.wants(stored):
            continue
        row = row_of(stored.struct, stored)
        if row is not None:
            shown.append((row, stored))

    shown.sort(key=lambda pair: (pair[1].struct.metadata.namespace, text.natural(pair[0].name)))
    rows = tuple(row for row, _ in shown)
    return Listing(headers, wide_headers, rows, lambda: [stored.tree for _, stored in shown])


def presented(tree: Tree) -> Tree:
    """The object as kubectl prints it: its type first, its status last, and not who wrote which field."""
    first: Tree = {name: tree[name] for name in ("apiVersion", "kind") if name in tree}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict):
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        first["metadata"] = kept
    last = {name: tree[name] for name in ("status",) if name in tree}
    known = first.keys() | last.keys()
    return first | {name: value for name, value in tree.items() if name not in known} | last


def slices_of_pools(objects: object_set.ObjectSet, pools: set[tuple[str, str]]) -> list[Tree]:
    """All slices of pools given as (driver, name), including those with counters only."""
    trees = []
    for stored in objects.listed("ResourceSlice"):
        if not isinstance(stored.struct, slices.ResourceSlice):
            continue
        spec = stored.struct.spec
        if (spec.driver, spec.pool.name) in pools:
            trees.append(stored.tree)
    return trees


def allocatable(node: nodes.Node, resource: str) -> str:
    """A node's allocatable amount of a resource; empty if it has none."""
    amount = node.status.allocatable.get(resource)
    return "" if amount is None else str(amount)
